"""What the operator sees of an EtcdCluster: who answers, who does not, and which disk is whose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from operators.etcd.api.resource import API, EtcdCluster
from operators.etcd.client.errors import Denied, EtcdError, NoLeader, Unreachable
from operators.etcd.client.server import (
    NOSPACE,
    Access,
    Alarm,
    Endpoint,
    EndpointStatus,
    HashKV,
    Member,
    Members,
    RaftProgress,
    Server,
)
from operators.etcd.objects import names
from operators.etcd.objects.bootstrap import REFUSED
from operators.etcd.observe import Observed
from operators.etcd.observer import observer
from operators.etcd.operator import clusters
from shared.cli.options import parse_options
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Kind, Obj
from shared.testing.api_server.server import ApiServer
from tests.unit.etcd.world import CLUSTER_ID, SETTINGS, cluster, member_id

OPTIONS = parse_options("etcd-operator", "etcd", [], {})


@dataclass
class Voice:
    """One member's server: what it answers, or why it does not."""

    status_: EndpointStatus | EtcdError
    members_: Members | EtcdError = field(default_factory=lambda: NoLeader("no leader"))
    remembered: Members | EtcdError = field(default_factory=lambda: Unreachable("no answer"))
    progress_: RaftProgress | EtcdError = field(default_factory=lambda: Unreachable("no answer"))
    password: str = ""
    asked: list[str] = field(default_factory=list)

    def connect(self, access: Access) -> Any:
        self.given = access.password
        return self

    def _answer(self, what: str, answer: Any) -> Any:
        self.asked.append(what)
        if self.password and self.given != self.password:
            raise Denied("invalid user ID or password")
        if isinstance(answer, EtcdError):
            raise answer
        return answer

    async def status(self) -> Any:
        return self._answer("status", self.status_)

    async def members(self) -> Any:
        return self._answer("members", self.members_)

    async def remembered_members(self) -> Any:
        return self._answer("remembered", self.remembered)

    async def progress(self) -> Any:
        return self._answer("progress", self.progress_)

    async def cluster_version(self) -> str:
        return "3.6.0"

    async def auth_enabled(self) -> bool:
        return bool(self.password)

    async def is_compacted(self, revision: int) -> bool:
        return self._answer("compacted", revision == 10) is True

    async def hash_kv(self, revision: int = 0) -> Any:
        return self._answer("hash", HashKV(1, revision, 1))

    async def aclose(self) -> None:
        self.asked.append("closed")


def status(
    number: int, *, leader: int = 0, cluster_id: int = CLUSTER_ID, errors: tuple[str, ...] = ()
) -> EndpointStatus:
    term = index = 7
    voice = member_id(leader) if leader >= 0 else 0
    return EndpointStatus(cluster_id, member_id(number), voice, "3.6.8", 10, term, index, index, 9, 9, errors=errors)


def listed(*numbers: int, cluster_id: int = CLUSTER_ID) -> Members:
    resource = cluster()
    return Members(
        cluster_id, tuple(Member(member_id(n), f"demo-{n}", (names.peer_url(resource, n),)) for n in numbers)
    )


class Kubernetes:
    """An API server with members' pods and claims, and a cache that has seen them."""

    def __init__(self, resource: EtcdCluster) -> None:
        self.resource = resource
        self.controller = clusters(OPTIONS)
        self.server = ApiServer([API.kind])
        self.cache = self.controller.cache(lambda _: None)
        self.labels = names.owner(resource, SETTINGS.operator).labels(names.COMPONENT)

    def pod(self, number: int, *, address: str | None = None, said: str = "", phase: str = "Running") -> None:
        container: Obj = {"name": "etcd", "ready": not said, "state": {"running": {}}}
        if said:
            container |= {"state": {"terminated": {"message": said}}}
        reported = {"phase": phase, "podIP": f"10.0.0.{number}" if address is None else address}
        obj = self._object(POD, f"demo-{number}", f"pod-{number}", self.labels)
        self.cache.put(POD, obj | {"status": reported | {"containerStatuses": [container]}})

    def volume(self, number: int, uid: str = "", *, seen: bool = True, exists: bool = True) -> None:
        labels = self.labels | {names.CLUSTER_UID: self.resource.uid}
        obj = self._object(PERSISTENT_VOLUME_CLAIM, f"data-demo-{number}", uid or f"disk-{number}", labels)
        if seen:
            self.cache.put(PERSISTENT_VOLUME_CLAIM, obj)
        if exists:
            person = self.server.actor("kubectl")
            person.create(PERSISTENT_VOLUME_CLAIM, {"metadata": {k: obj["metadata"][k] for k in ("name", "namespace")}})

    def _object(self, kind: Kind, name: str, uid: str, labels: dict[str, str]) -> Obj:
        metadata = {"name": name, "namespace": "default", "uid": uid, "labels": labels, "resourceVersion": "1"}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}

    async def observe(self, *voices: Voice | None) -> Observed:
        by_address = {f"10.0.0.{number}": voice for number, voice in enumerate(voices) if voice}

        def connect(endpoint: Endpoint, access: Access) -> Server:
            found: Server = by_address[endpoint.address].connect(access)
            return found

        look = observer(connect)
        return await look(self.resource, self.cache, Kube(self.server, manager=SETTINGS.operator))


def three(resource: EtcdCluster) -> Kubernetes:
    around = Kubernetes(resource)
    for number in range(3):
        around.pod(number)
        around.volume(number, exists=False)
    return around


async def test_a_healthy_cluster_is_seen_as_it_is() -> None:
    voices = [Voice(status(n), listed(0, 1, 2)) for n in range(3)]
    seen = await three(cluster()).observe(*voices)
    assert [instance.name for instance in seen.healthy_voters] == ["demo-0", "demo-1", "demo-2"]
    assert [(instance.disk, instance.recorded) for instance in seen.instances] == [
        (f"disk-{n}", f"disk-{n}") for n in range(3)
    ]
    assert (seen.cluster_id, seen.cluster_version, seen.auth_enabled) == (CLUSTER_ID, "3.6.0", False)
    assert seen.leader is not None
    assert seen.leader.name == "demo-0"
    assert [voice.asked for voice in voices] == [
        ["status", "members", "closed"],
        ["status", "closed"],
        ["status", "closed"],
    ]


async def test_one_that_does_not_answer_is_a_place_with_an_error() -> None:
    voices = [Voice(status(0), listed(0, 1, 2)), Voice(Unreachable("no route")), Voice(status(2), listed(0, 1, 2))]
    seen = await three(cluster()).observe(*voices)
    assert seen.instances[1].error == "no route"
    assert [member.name for member in seen.down] == ["demo-1"]
    assert not seen.lost(seen.instances[1])


async def test_nobody_is_asked_whose_pod_has_no_address_or_has_ended() -> None:
    around = Kubernetes(cluster())
    around.pod(0, address="")
    around.pod(1, phase="Failed")
    seen = await around.observe(None, None, None)
    assert [(instance.pod is None, instance.error) for instance in seen.instances] == [
        (False, ""),
        (True, ""),
        (True, ""),
    ]
    assert seen.members is None


async def test_without_a_quorum_there_is_no_list_but_what_the_most_advanced_remembers() -> None:
    silent = Voice(Unreachable("refused"), progress_=RaftProgress(member_id(0), 5, 4))
    alone = Voice(status(1, leader=-1), remembered=listed(0, 1, 2))
    seen = await three(cluster()).observe(silent, alone, Voice(Unreachable("refused")))
    assert seen.members is None
    assert [member.name for member in seen.remembered] == ["demo-0", "demo-1", "demo-2"]
    assert seen.instances[0].progress == RaftProgress(member_id(0), 5, 4)
    assert "members" not in alone.asked, "who knows no leader is not asked for a list"


async def test_a_server_of_another_cluster_at_an_old_address_is_not_believed() -> None:
    foreign = Voice(status(0, cluster_id=0xBAD), listed(0, cluster_id=0xBAD))
    seen = await three(cluster()).observe(
        foreign, Voice(status(1, leader=1), listed(0, 1, 2)), Voice(status(2, leader=1), listed(0, 1, 2))
    )
    assert seen.cluster_id == CLUSTER_ID
    assert foreign.asked == ["status", "closed"]
    assert [member.name for member in seen.down] == ["demo-0"]


async def test_a_removed_members_record_is_kept_for_its_place_and_not_for_its_successor() -> None:
    resource = cluster()
    without = [Voice(status(0), listed(0, 2)), Voice(Unreachable("ended")), Voice(status(2), listed(0, 2))]
    assert (await three(resource).observe(*without)).instances[1].vacated
    later = Member(77, "", (names.peer_url(resource, 1),), learner=True)
    again = Members(CLUSTER_ID, (*listed(0, 2).members, later))
    seen = await three(resource).observe(Voice(status(0), again), Voice(Unreachable("…")), Voice(status(2), again))
    assert (seen.instances[1].member, seen.instances[1].recorded) == (later, "")


@pytest.mark.parametrize("exists", [True, False])
async def test_a_disk_that_seems_to_be_another_is_looked_at_live(exists: bool) -> None:
    """What is not there tells nothing yet: the one that comes in its place does."""
    around = Kubernetes(cluster())
    for number in range(3):
        around.pod(number)
        around.volume(number, "another" if number == 1 else "", exists=exists and number == 1)
    voices = [Voice(status(0), listed(0, 1, 2)), Voice(Unreachable("…")), Voice(status(2), listed(0, 1, 2))]
    seen = await around.observe(*voices)
    assert seen.instances[1].disk not in ("another", "disk-1")
    assert seen.lost(seen.instances[1]) is exists


async def test_a_claim_that_somebody_made_by_hand_is_seen_before_it_is_taken() -> None:
    around = Kubernetes(cluster(recorded=None))
    around.volume(0, seen=False)
    seen = await around.observe(None, None, None)
    assert seen.instances[0].volume is not None


async def test_an_empty_disk_is_read_from_etcds_last_words() -> None:
    around = Kubernetes(cluster())
    around.pod(1, said=f'"error":"{REFUSED} \\"demo-1\\" in the initial cluster configuration"')
    around.pod(2, said='"error":"something else"')
    seen = await around.observe(None, Voice(Unreachable("…")), Voice(Unreachable("…")))
    assert [instance.empty_data_dir for instance in seen.instances] == [False, True, False]


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (f"memberID:{member_id(1)} alarm:{NOSPACE} ", {"compacted"}),
        (f"memberID:{member_id(1)} alarm:CORRUPT ", {"hash"}),
        ("", set()),
    ],
)
async def test_only_where_something_is_the_matter_more_is_asked(error: str, asked: set[str]) -> None:
    errors = (error,) if error else ()
    voices = [Voice(status(n, errors=errors), listed(0, 1, 2)) for n in range(3)]
    seen = await three(cluster()).observe(*voices)
    assert {what for voice in voices for what in voice.asked} - {"status", "members", "closed"} == asked
    assert seen.alarms == ((Alarm(member_id(1), error.split(":")[2].strip()),) if error else ())
    assert len(seen.hashes) == (3 if "hash" in asked else 0)
