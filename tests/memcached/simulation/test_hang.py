"""A server that hangs: the status compares with what clients of the simulated servers get."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, SECRET, Obj
from shared.kubernetes.secrets import content_of
from shared.pki import ca, certs
from shared.pki.rotation import CertificateOrder, Made
from shared.runtime.reconciler import PAUSED_POLL_SECONDS
from shared.status.conditions import AVAILABLE, OBSERVED, READY
from shared.status.reconciliation_pause import PAUSE
from tests.harness.scenario import apply, delete, edit, lose
from tests.harness.scenario_runner import ScenarioRun, World
from tests.memcached.unit.world import UNPAUSED
from tests.support.memcached.scenarios import MEMCACHED, NAMED, Servers, given_certificate

DAY = 86_400


async def _issued(order: CertificateOrder) -> Made:
    """Issue a certificate for the time of the world."""
    return ca.fulfil(order)


class Lab:
    """A Memcached whose servers may hang: the kernel accepts connections to them, and no process responds."""

    def __init__(self) -> None:
        def controlled(servers: Servers) -> Any:
            return dataclasses.replace(MEMCACHED.controller(servers), issue=_issued)

        self.run = ScenarioRun(World(dataclasses.replace(MEMCACHED, controller=controlled, patience=0.0)))
        servers = self.run.world.database
        assert isinstance(servers, Servers)
        self.servers = servers
        self._resyncs = 0

    async def create(self, **spec: Any) -> None:
        await self.apply(**spec)
        self.addresses = [pod["status"]["podIP"] for pod in self.run.stage.find(POD)]

    async def apply(self, **spec: Any) -> None:
        await self.run.run_steps((apply(**NAMED | spec),))

    async def hang(self, count: int) -> None:
        """Let as many servers hang from now on, and resync."""
        self.servers.hung = set(self.addresses[:count])
        await self.resync()

    async def resync(self) -> None:
        self._resyncs += 1
        await self.run.run_steps((edit(None, {"metadata": {"labels": {"resync": str(self._resyncs)}}}),))

    def condition(self, kind: str) -> Obj:
        (resource,) = self.run.stage.find()
        return accessors.condition(resource, kind)

    @property
    def delays(self) -> list[float]:
        """Seconds until the operator observes again; none if only an event or the resync makes it."""
        assert self.run.operator is not None
        delay = self.run.operator.queue.delay
        return [] if delay is None else [delay]

    @property
    def available(self) -> str:
        return str(self.condition(AVAILABLE)["status"])


@pytest.mark.parametrize("spec", [{"metrics": {}}, {}], ids=["sidecar", "no sidecar"])
@pytest.mark.parametrize("size", [1, 2])
async def test_server_that_hangs_is_not_available(size: int, spec: Obj) -> None:
    lab = Lab()
    await lab.create(size=size, **spec)
    await lab.hang(1)
    await lab.run.wait(20)
    assert lab.available == "False"
    assert not accessors.is_true(lab.run.stage.find()[0], READY)
    await lab.hang(0)
    assert (lab.available, lab.condition(READY)["status"]) == ("True", "True")
    assert lab.servers.emptied == 0, "the operator ends no server"


async def test_server_that_is_slow_once_is_reported_and_stays_available() -> None:
    lab = Lab()
    await lab.create(size=2)
    await lab.hang(1)
    assert lab.condition(READY)["reason"] == "ServerNotResponding"
    assert "cache-0: accepting connections, but not responding" in lab.condition(READY)["message"]
    assert lab.available == "True"
    await lab.hang(0)
    assert (lab.available, lab.condition(READY)["status"]) == ("True", "True")


async def test_slow_response_after_another_reason_is_not_taken_for_a_hang() -> None:
    lab = Lab()
    await lab.create(size=2)
    lab.run.stage.workloads.pod_problem = lambda pod: "Unready" if pod["metadata"]["name"] == "cache-1" else ""
    await lab.hang(0)
    await lab.run.wait(3600)
    assert (lab.condition(READY)["status"], lab.condition(READY)["reason"]) == ("False", "Degraded")
    lab.run.stage.workloads.pod_problem = lambda _: ""
    for _ in range(3):
        await lab.hang(1)
    assert lab.condition(READY)["reason"] == "ServerNotResponding"
    assert lab.available == "True"
    await lab.run.wait(20)
    assert lab.available == "False"


@pytest.mark.parametrize("spec", [{"paused": True}, {"memoryMB": 8, "maxItemSizeMB": 8}], ids=["paused", "invalid"])
async def test_server_that_hangs_while_the_spec_is_not_applied_is_not_available(spec: Obj) -> None:
    lab = Lab()
    await lab.create(size=2)
    await lab.apply(size=2, **spec)
    await lab.hang(1)
    await lab.run.wait(20)
    reported = lab.condition(READY)
    assert (lab.available, reported["status"]) == ("False", "False")
    assert reported["reason"] in ("Paused", "InvalidSpec")
    await lab.hang(0)
    assert lab.available == "True"


async def test_server_that_hangs_while_another_one_is_not_ready_is_not_available() -> None:
    lab = Lab()
    await lab.create(size=3, workload="Deployment")
    unready = lab.run.stage.find(POD)[2]["metadata"]["name"]
    lab.run.stage.workloads.pod_problem = lambda pod: "Unready" if pod["metadata"]["name"] == unready else ""
    await lab.hang(1)
    await lab.run.wait(10, times=2)
    assert (lab.available, lab.condition(READY)["reason"]) == ("False", "Degraded")


async def in_a_stuck_update() -> Lab:
    """Return a Deployment whose new pods cannot pull their image."""
    lab = Lab()
    await lab.create(size=3, workload="Deployment")
    former = {pod["metadata"]["name"] for pod in lab.run.stage.find(POD)}
    lab.run.stage.workloads.pod_problem = lambda pod: "" if pod["metadata"]["name"] in former else "ImagePullBackOff"
    await lab.apply(size=3, workload="Deployment", version="1.6.18", **UNPAUSED)
    return lab


async def test_server_that_hangs_while_an_update_does_not_continue_is_not_available() -> None:
    lab = await in_a_stuck_update()
    await lab.run.wait(300)
    connections = lab.servers.connections
    await lab.hang(1)
    assert lab.servers.connections == connections, "not at each change of each pod"
    await lab.run.wait(10, times=3)
    assert (lab.available, lab.condition(READY)["reason"]) == ("False", "ImagePullFailed")


async def test_restarted_operator_queries_the_servers_of_an_update_that_does_not_continue() -> None:
    lab = await in_a_stuck_update()
    await lab.hang(1)
    await lab.run.wait(10, times=3)
    lab.run.end()
    lab.run.begin()
    await lab.run.settle()
    for _ in range(2):
        assert lab.delays == [10]
        await lab.run.wait(10)
    assert (lab.available, lab.condition(READY)["reason"]) == ("False", "ImagePullFailed")


async def test_query_of_a_deleted_resource_does_not_stay_in_memory() -> None:
    lab = Lab()
    await lab.create(size=2)
    await lab.hang(1)
    assert lab.run.operator is not None
    observe = lab.run.operator.controller.observe
    assert isinstance(observe, functools.partial)
    queries = next(each for each in observe.args if type(each) is dict)
    (uid,) = queries
    await lab.run.run_steps((delete(),))
    await lab.create(size=1)
    await lab.run.wait(3700, times=2)
    assert uid not in queries


@pytest.mark.parametrize("change", [{"podDisruptionBudget": {}}, {"size": 3}], ids=" ".join)
async def test_change_of_the_spec_does_not_end_the_report_of_a_server_that_hangs(change: Obj) -> None:
    lab = Lab()
    await lab.create(size=2)
    await lab.hang(1)
    await lab.run.wait(20)
    lab.run.world.start_counting()
    await lab.apply(**{"size": 2} | change)
    await lab.run.wait(10, times=6)
    (resource,) = lab.run.stage.find()
    written = [event["object"] for kind, event in lab.run.world.history if kind == lab.run.stage.kind]
    assert {accessors.condition(each, AVAILABLE)["status"] for each in (*written, resource)} == {"False"}
    assert (lab.condition(READY)["reason"], resource["status"]["phase"]) == ("ServerNotResponding", "Degraded")
    await lab.hang(0)
    assert (lab.available, lab.condition(READY)["status"]) == ("True", "True")


async def test_server_that_hangs_while_the_reconciliation_is_paused_is_not_available() -> None:
    """An observation takes time, too: the next query begins more than the 30 s of a pause after the last one."""
    lab = Lab()
    await lab.create(size=2)
    await lab.hang(1)
    await lab.run.wait(20)
    await lab.run.run_steps((edit(None, {"metadata": {"annotations": {PAUSE: "true"}}}),))
    for _ in range(3):
        await lab.run.wait(PAUSED_POLL_SECONDS + 0.1)
        assert (lab.available, lab.condition(OBSERVED)["status"]) == ("False", "True")


async def test_server_that_hangs_while_every_write_is_refused_is_not_available() -> None:
    """The operator then observes once a minute."""
    lab = Lab()
    await lab.create(size=2)
    await lab.hang(1)
    lab.run.world.server.faults.answer(422, when=lambda _, path: "/statefulsets/" in path, times=None)
    await lab.apply(size=2, memoryMB=128)
    await lab.run.wait(61, times=2)
    assert lab.available == "False"


@pytest.mark.parametrize(
    ("former", "spec"),
    [
        ({}, {"tls": {"secretName": "cache-tls"}, "paused": True}),
        ({"workload": "Deployment"}, {"workload": "StatefulSet", "paused": True}),
    ],
    ids=["tls", "workload"],
)
async def test_server_that_hangs_before_a_change_that_is_not_applied_is_not_available(former: Obj, spec: Obj) -> None:
    """The operator queries the servers that run, as they listen."""
    lab = Lab()
    await lab.run.run_steps((given_certificate(),))
    await lab.create(size=3, **former)
    await lab.hang(1)
    await lab.run.wait(20)
    assert lab.available == "False"
    await lab.apply(**{"size": 3} | former | spec)
    await lab.run.wait(10, times=3)
    assert (lab.available, lab.condition(OBSERVED)["status"]) == ("False", "True")
    await lab.hang(0)
    assert lab.available == "True"


async def test_server_that_hangs_in_a_workload_that_clients_do_not_use_yet_is_no_outage() -> None:
    lab = Lab()
    await lab.create(size=3, workload="Deployment")
    lab.run.stage.workloads.pod_problem = lambda pod: "Unready" if pod["metadata"]["name"] == "cache-2" else ""
    await lab.apply(size=3, workload="StatefulSet")
    pods = lab.run.stage.find(POD)
    assert len(pods) > 3
    lab.servers.hung = {pod["status"]["podIP"] for pod in pods if pod["metadata"]["name"] == "cache-0"}
    await lab.run.wait(10, times=4)
    assert (lab.available, lab.condition(OBSERVED)["status"]) == ("True", "True")


async def test_slow_responses_that_are_far_apart_are_not_taken_for_one_hang() -> None:
    """The operator may not observe for a while, as when another replica is the leader."""
    lab = Lab()
    await lab.create(size=2)
    await lab.hang(1)
    lab.run.world.clock.wait(600)
    await lab.resync()
    assert (lab.available, lab.condition(READY)["reason"]) == ("True", "ServerNotResponding")
    await lab.run.wait(20)
    assert lab.available == "False"


async def test_slow_responses_of_two_servers_are_not_taken_for_one_hang() -> None:
    lab = Lab()
    await lab.create(size=3)
    await lab.hang(1)
    await lab.run.wait(9)
    lab.addresses.reverse()
    await lab.hang(1)
    await lab.run.wait(9)
    assert lab.condition(READY)["reason"] == "ServerNotResponding"
    assert lab.available == "True"


async def test_servers_are_queried_when_the_resource_is_observed_but_not_while_they_are_created() -> None:
    lab = Lab()
    await lab.create(size=2)
    connections = lab.servers.connections
    assert connections <= 3, "the version, and one query of each"
    await lab.hang(0)
    assert connections < lab.servers.connections <= connections + 4


async def test_servers_that_all_hang_may_be_a_fault_of_the_operator() -> None:
    lab = Lab()
    await lab.create(size=2)
    await lab.hang(2)
    await lab.run.wait(60)
    assert (lab.available, lab.condition(OBSERVED)["status"]) == ("True", "False")
    assert "cache-0, cache-1" in lab.condition(OBSERVED)["message"]
    assert lab.condition(READY)["reason"] == "ServerNotResponding"


async def test_server_with_tls_that_hangs_is_reported_as_not_observed() -> None:
    """Without a handshake, the operator does not know whether the server or the network is the cause."""
    lab = Lab()
    await lab.create(size=2, tls={"mode": "self"})
    await lab.hang(1)
    await lab.run.wait(60)
    assert (lab.available, lab.condition(OBSERVED)["status"]) == ("True", "False")
    assert "cache-0" in lab.condition(OBSERVED)["message"]


async def test_server_that_the_operator_cannot_reach_is_not_taken_for_hung() -> None:
    lab = Lab()
    await lab.create(size=2)
    lab.servers.unreachable = set(lab.addresses[:1])
    await lab.hang(0)
    await lab.run.wait(60)
    assert (lab.available, lab.condition(OBSERVED)["status"]) == ("True", "False")
    assert lab.condition(READY)["status"] == "True"


async def test_server_that_the_operator_could_not_reach_is_queried_again_soon() -> None:
    lab = Lab()
    await lab.create(size=2)
    lab.servers.unreachable = set(lab.addresses[:1])
    await lab.resync()
    assert lab.condition(OBSERVED)["status"] == "False"
    assert lab.delays == [10]
    lab.servers.unreachable = set()
    await lab.run.wait(10)
    assert lab.condition(OBSERVED)["status"] == "True"
    assert not lab.delays


async def test_network_is_not_suspected_of_a_hang_that_is_certain() -> None:
    lab = Lab()
    await lab.create(size=2)
    await lab.hang(1)
    await lab.run.wait(20)
    assert (lab.available, lab.condition(OBSERVED)["status"]) == ("False", "True")
    lab.servers.unreachable = set(lab.addresses[1:])
    await lab.run.wait(10)
    assert (lab.available, lab.condition(OBSERVED)["status"]) == ("False", "False")
    assert lab.condition(OBSERVED)["message"].startswith("cache-1: ready according to the kubelet")


@pytest.mark.parametrize("args", [["-Bbinary"], ["-S"]], ids=" ".join)
@pytest.mark.parametrize("client_auth", ["none", "required"])
async def test_certificate_of_a_server_that_responds_to_no_ascii_command_is_known(
    args: list[str], client_auth: str
) -> None:
    lab = Lab()
    await lab.create(size=1, extraArgs=args, tls={"mode": "self", "clientAuth": client_auth})
    await lab.run.wait(60)
    (resource,) = lab.run.stage.find()
    first = resource["status"]["certificate"]
    assert (lab.condition(READY)["reason"], lab.condition(OBSERVED)["status"]) == ("Ready", "True")
    await lab.run.wait(61 * DAY)
    assert lab.condition(READY)["reason"] == "RefreshingCertificates"
    assert "cache-0: a server that responds to no ASCII command" in lab.condition(READY)["message"]
    assert (lab.available, lab.condition(OBSERVED)["status"], lab.delays) == ("True", "True", [])
    await lab.run.wait(30 * DAY)
    assert (lab.available, lab.condition(AVAILABLE)["reason"]) == ("False", "CertificateExpired")
    await lab.run.run_steps((lose(POD),))
    await lab.run.wait(DAY)
    (resource,) = lab.run.stage.find()
    assert (lab.available, lab.condition(READY)["reason"]) == ("True", "Ready")
    assert resource["status"]["certificate"] != first
    assert not lab.servers.refreshed


async def test_authority_signs_although_a_server_responds_to_no_ascii_command() -> None:
    """A server loads the next authority when it starts."""
    lab = Lab()
    await lab.create(size=1, extraArgs=["-Bbinary"], tls={"mode": "self", "clientAuth": "required"})
    authorities = set[bytes]()
    for _ in range(20):
        await lab.run.wait(60 * DAY)
        await lab.run.wait(DAY)  # the kubelet has updated the files
        for _ in range(2):  # once for the next authority, once for the first certificate that it signs
            await lab.run.run_steps((lose(POD),))
            await lab.run.wait(DAY)
        assert lab.available == "True"
        assert lab.condition(READY)["reason"] == "Ready", lab.condition(READY)["message"]
        (found,) = (each for each in lab.run.stage.find(SECRET) if each["metadata"]["name"] == "cache-server-tls")
        authorities.add(certs.read(content_of(found)["tls.crt"])[0].issuer)
    assert len(authorities) > 1


@pytest.mark.parametrize("args", [["-Bbinary"], ["-B", "binary"], ["--protocol=binary"], ["-S"], ["-vS"]], ids=" ".join)
async def test_server_that_responds_to_no_ascii_command_is_not_taken_for_hung(args: list[str]) -> None:
    lab = Lab()
    await lab.create(size=1, extraArgs=args)
    await lab.hang(1)
    await lab.run.wait(60)
    await lab.hang(1)
    assert (lab.available, lab.condition(READY)["status"], lab.condition(OBSERVED)["status"]) == ("True",) * 3


@pytest.mark.parametrize("args", [["-B", "ascii"], ["-Bauto"]], ids=" ".join)
async def test_server_that_accepts_the_ascii_protocol_is_queried(args: list[str]) -> None:
    lab = Lab()
    await lab.create(size=1, extraArgs=args)
    await lab.hang(1)
    assert lab.condition(READY)["reason"] == "ServerNotResponding"
