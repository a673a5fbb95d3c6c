"""Observation of an EtcdCluster: reachable and unreachable members, and the volumes that they use."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from operators.etcd.api.resource import API, EtcdCluster
from operators.etcd.api.spec import MAX_SIZE
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
from operators.etcd.observe import observer
from operators.etcd.operator import clusters
from operators.etcd.state.observed import Observed
from shared.cli.options import parse_options
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, SECRET, STATEFUL_SET, Kind, Obj
from shared.kubernetes.ordinals import MAX_SURPLUS
from simulator.api_server.server import ApiServer
from tests.etcd.unit.world import CLUSTER_ID, SETTINGS, UID, VOTER, cluster, member_id, plan, replicas_and_start, seen
from tests.harness import cost

OPTIONS = parse_options("etcd-operator", "etcd", [], {})


@dataclass
class FakeMember:
    """The server of one member, with its answers or the errors that it raises."""

    status_: EndpointStatus | EtcdError
    members_: Members | EtcdError = field(default_factory=lambda: NoLeader("no leader"))
    remembered: Members | EtcdError = field(default_factory=lambda: Unreachable("no answer"))
    progress_: RaftProgress | EtcdError = field(default_factory=lambda: Unreachable("no answer"))
    password: str = ""
    requests: list[str] = field(default_factory=list)

    def connect(self, access: Access) -> Any:
        self.given = access.password
        return self

    def _answer(self, request: str, answer: Any) -> Any:
        self.requests.append(request)
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
        self.requests.append("closed")


def status(
    number: int, *, leader: int = 0, cluster_id: int = CLUSTER_ID, errors: tuple[str, ...] = ()
) -> EndpointStatus:
    term = index = 7
    leader_id = member_id(leader) if leader >= 0 else 0
    return EndpointStatus(
        cluster_id, member_id(number), leader_id, "3.6.8", 10, term, index, index, 9, 9, errors=errors
    )


def listed(*numbers: int, cluster_id: int = CLUSTER_ID) -> Members:
    resource = cluster()
    return Members(
        cluster_id, tuple(Member(member_id(n), f"demo-{n}", (names.peer_url(resource, n),)) for n in numbers)
    )


class Kubernetes:
    """An API server with pods and claims of members, and a cache that contains them."""

    def __init__(self, resource: EtcdCluster) -> None:
        self.resource = resource
        self.controller = clusters(OPTIONS)
        self.server = ApiServer([API.kind])
        self.cache = self.controller.cache(lambda _: None)
        self.labels = names.owner(resource, SETTINGS.operator).labels(names.COMPONENT)

    def pod(self, number: int, *, address: str | None = None, last_message: str = "", phase: str = "Running") -> None:
        container: Obj = {"name": "etcd", "ready": not last_message, "state": {"running": {}}}
        if last_message:
            ended = {"message": last_message, "startedAt": "2026-01-01T12:00:00Z"}
            container |= {"state": {"terminated": ended}}
        reported = {"phase": phase, "podIP": f"10.0.0.{number}" if address is None else address}
        obj = self._object(POD, f"demo-{number}", f"pod-{number}", self.labels)
        self.cache.put(POD, obj | {"status": reported | {"containerStatuses": [container]}})

    def volume(self, number: int, uid: str = "", *, observed: bool = True, exists: bool = True) -> None:
        labels = self.labels | {names.CLUSTER_UID: self.resource.uid}
        obj = self._object(PERSISTENT_VOLUME_CLAIM, f"data-demo-{number}", uid or f"disk-{number}", labels)
        if observed:
            self.cache.put(PERSISTENT_VOLUME_CLAIM, obj)
        if exists:
            user_client = self.server.actor("kubectl")
            user_client.create(
                PERSISTENT_VOLUME_CLAIM, {"metadata": {k: obj["metadata"][k] for k in ("name", "namespace")}}
            )

    def _object(self, kind: Kind, name: str, uid: str, labels: dict[str, str]) -> Obj:
        metadata = {"name": name, "namespace": "default", "uid": uid, "labels": labels, "resourceVersion": "1"}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}

    async def observe(self, *servers: FakeMember | None) -> Observed:
        by_address = {f"10.0.0.{number}": server for number, server in enumerate(servers) if server}

        def connect(endpoint: Endpoint, access: Access) -> Server:
            found: Server = by_address[endpoint.address].connect(access)
            return found

        observe_cluster = observer(connect)
        return await observe_cluster(self.resource, self.cache, Kube(self.server, manager=SETTINGS.operator))


def three_pods(resource: EtcdCluster) -> Kubernetes:
    kubernetes = Kubernetes(resource)
    for number in range(3):
        kubernetes.pod(number)
        kubernetes.volume(number, exists=False)
    return kubernetes


async def test_healthy_cluster_is_observed_with_one_member_list_request() -> None:
    servers = [FakeMember(status(n), listed(0, 1, 2)) for n in range(3)]
    observed = await three_pods(cluster()).observe(*servers)
    assert [instance.name for instance in observed.healthy_voters] == ["demo-0", "demo-1", "demo-2"]
    assert [(instance.disk, instance.recorded) for instance in observed.instances] == [
        (f"disk-{n}", f"disk-{n}") for n in range(3)
    ]
    assert (observed.cluster_id, observed.cluster_version, observed.auth_enabled) == (CLUSTER_ID, "3.6.0", False)
    assert observed.leader is not None
    assert observed.leader.name == "demo-0"
    assert [server.requests for server in servers] == [
        ["status", "members", "closed"],
        ["status", "closed"],
        ["status", "closed"],
    ]


@pytest.mark.parametrize("quorum", [True, False], ids=["quorum", "no quorum"])
@pytest.mark.parametrize("replicas", [5_000, 2**31 - 1])
async def test_replicas_that_no_spec_permits_are_not_expanded(replicas: int, *, quorum: bool) -> None:
    """Someone scaled the StatefulSet: the operator of all tenants must survive what it then observes, and undo it."""
    resource = cluster()
    kubernetes = three_pods(resource)
    made = seen(resource, VOTER, VOTER, VOTER, replicas=replicas).stateful_set
    assert made is not None
    kubernetes.cache.put(STATEFUL_SET, made | {"metadata": made["metadata"] | {"resourceVersion": "1"}})
    answer = listed(0, 1, 2) if quorum else NoLeader("no leader")
    async with cost.bounded():
        observed = await kubernetes.observe(*(FakeMember(status(n), answer) for n in range(3)))
        applied, _ = replicas_and_start(plan(resource, observed))
    assert (len(observed.instances), applied) == (MAX_SIZE, 3 if quorum else MAX_SIZE)


async def test_of_pods_and_volumes_beyond_any_size_the_lowest_are_observed() -> None:
    """The operator deletes these, and then observes the next ones."""
    kubernetes = three_pods(cluster())
    for number in range(3, 1_000):
        kubernetes.pod(number, address="")
        kubernetes.volume(number, exists=False)
    async with cost.bounded():
        observed = await kubernetes.observe(*(FakeMember(status(n), listed(0, 1, 2)) for n in range(3)))
    assert [each.number for each in observed.instances] == [*range(MAX_SIZE + MAX_SURPLUS)]
    assert (len(observed.stray_pods), len(observed.job_pods)) == (0, 0)


async def test_recorded_member_beyond_any_size_is_not_expanded() -> None:
    resource = cluster(recorded=(0, 1, 2, 5_000))
    kubernetes = Kubernetes(resource)
    async with cost.bounded():
        observed = await kubernetes.observe()
        applied, _ = replicas_and_start(plan(resource, observed))
    assert (len(observed.instances), applied) == (3, 3)


STRAYS = (
    {"apiVersion": "batch/v1", "kind": "Job", "name": "demo"},
    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "d"},
)


@pytest.mark.parametrize("controller", STRAYS, ids=["Job", "StatefulSet"])
async def test_pod_of_another_controller_is_no_member(controller: Obj) -> None:
    """Labels and a matching name are not enough: a scale-in would delete the pod."""
    kubernetes = three_pods(cluster())
    kubernetes.pod(7)
    stray = kubernetes.cache.get(POD, "default", "demo-7")
    assert stray is not None
    owners = [{**controller, "uid": "x", "controller": True}]
    stray["metadata"] |= {"resourceVersion": "2", "ownerReferences": owners}
    kubernetes.cache.put(POD, stray)
    observed = await kubernetes.observe(*(FakeMember(status(n), listed(0, 1, 2)) for n in range(3)))
    assert [instance.name for instance in observed.instances] == ["demo-0", "demo-1", "demo-2"]


async def test_unreachable_member_is_observed_with_its_error() -> None:
    servers = [
        FakeMember(status(0), listed(0, 1, 2)),
        FakeMember(Unreachable("no route")),
        FakeMember(status(2), listed(0, 1, 2)),
    ]
    observed = await three_pods(cluster()).observe(*servers)
    assert observed.instances[1].error == "no route"
    assert [member.name for member in observed.down] == ["demo-1"]
    assert not observed.lost(observed.instances[1])


async def test_pod_without_an_address_or_that_has_ended_is_not_queried() -> None:
    kubernetes = Kubernetes(cluster())
    kubernetes.pod(0, address="")
    kubernetes.pod(1, phase="Failed")
    observed = await kubernetes.observe(None, None, None)
    assert [(instance.pod is None, instance.error) for instance in observed.instances] == [
        (False, ""),
        (True, ""),
        (True, ""),
    ]
    assert observed.members is None


async def test_most_advanced_member_provides_the_member_list_without_a_quorum() -> None:
    refusing = FakeMember(Unreachable("refused"), progress_=RaftProgress(member_id(0), 5, 4))
    alone = FakeMember(status(1, leader=-1), remembered=listed(0, 1, 2))
    observed = await three_pods(cluster()).observe(refusing, alone, FakeMember(Unreachable("refused")))
    assert observed.members is None
    assert [member.name for member in observed.remembered] == ["demo-0", "demo-1", "demo-2"]
    assert observed.instances[0].progress == RaftProgress(member_id(0), 5, 4)
    assert "members" not in alone.requests, "a member without a leader is not queried for the list"


@pytest.mark.parametrize("receiving", [True, False])
async def test_metrics_of_a_learner_that_does_not_answer_are_read(*, receiving: bool) -> None:
    """While it receives a snapshot, it serves nothing else. A voter that does not answer is not queried again."""
    members = listed(0, 1, 2)
    members = replace(members, members=(*members.members[:2], replace(members.members[2], learner=True)))
    found = RaftProgress(member_id(2), 0, 1, receiving=receiving)
    voter, learner = FakeMember(Unreachable("timeout")), FakeMember(Unreachable("timeout"), progress_=found)
    observed = await three_pods(cluster()).observe(FakeMember(status(0), members), voter, learner)
    assert [instance.progress for instance in observed.instances] == [None, None, found]
    assert "progress" not in voter.requests
    unknown = await three_pods(cluster()).observe(FakeMember(status(0), members), voter, FakeMember(Unreachable("no")))
    assert unknown.instances[2].progress is None


async def test_answer_of_another_clusters_server_at_an_old_address_is_ignored() -> None:
    foreign = FakeMember(status(0, cluster_id=0xBAD), listed(0, cluster_id=0xBAD))
    observed = await three_pods(cluster()).observe(
        foreign, FakeMember(status(1, leader=1), listed(0, 1, 2)), FakeMember(status(2, leader=1), listed(0, 1, 2))
    )
    assert observed.cluster_id == CLUSTER_ID
    assert foreign.requests == ["status", "closed"]
    assert [member.name for member in observed.down] == ["demo-0"]


async def test_recorded_volume_is_kept_for_a_removed_member_not_its_successor() -> None:
    resource = cluster()
    without = [
        FakeMember(status(0), listed(0, 2)),
        FakeMember(Unreachable("ended")),
        FakeMember(status(2), listed(0, 2)),
    ]
    assert (await three_pods(resource).observe(*without)).instances[1].vacated
    later = Member(77, "", (names.peer_url(resource, 1),), learner=True)
    again = Members(CLUSTER_ID, (*listed(0, 2).members, later))
    observed = await three_pods(resource).observe(
        FakeMember(status(0), again), FakeMember(Unreachable("…")), FakeMember(status(2), again)
    )
    assert (observed.instances[1].member, observed.instances[1].recorded) == (later, "")


@pytest.mark.parametrize("exists", [True, False])
async def test_replaced_volume_is_confirmed_by_a_live_read(exists: bool) -> None:
    """A missing claim proves nothing yet; its replacement does."""
    kubernetes = Kubernetes(cluster())
    for number in range(3):
        kubernetes.pod(number)
        kubernetes.volume(number, "another" if number == 1 else "", exists=exists and number == 1)
    servers = [
        FakeMember(status(0), listed(0, 1, 2)),
        FakeMember(Unreachable("…")),
        FakeMember(status(2), listed(0, 1, 2)),
    ]
    observed = await kubernetes.observe(*servers)
    assert observed.instances[1].disk not in ("another", "disk-1")
    assert observed.lost(observed.instances[1]) is exists


async def test_existing_claim_is_observed_before_the_seed_uses_it() -> None:
    kubernetes = Kubernetes(cluster(recorded=None))
    kubernetes.volume(0, observed=False)
    observed = await kubernetes.observe(None, None, None)
    assert observed.instances[0].volume is not None


async def test_empty_data_directory_is_read_from_etcds_last_message() -> None:
    kubernetes = Kubernetes(cluster())
    kubernetes.pod(1, last_message=f'"error":"{REFUSED} \\"demo-1\\" in the initial cluster configuration"')
    kubernetes.pod(2, last_message='"error":"something else"')
    observed = await kubernetes.observe(None, FakeMember(Unreachable("…")), FakeMember(Unreachable("…")))
    assert [instance.empty is not None for instance in observed.instances] == [False, True, False]
    assert not observed.lost(observed.instances[1]), "the disk may not be mounted"


@pytest.mark.parametrize(
    ("error", "requests"),
    [
        (f"memberID:{member_id(1)} alarm:{NOSPACE} ", {"compacted"}),
        (f"memberID:{member_id(1)} alarm:CORRUPT ", {"hash"}),
        ("", set()),
    ],
)
async def test_further_requests_are_sent_only_for_a_raised_alarm(error: str, requests: set[str]) -> None:
    errors = (error,) if error else ()
    servers = [FakeMember(status(n, errors=errors), listed(0, 1, 2)) for n in range(3)]
    observed = await three_pods(cluster()).observe(*servers)
    assert {request for server in servers for request in server.requests} - {"status", "members", "closed"} == requests
    assert observed.alarms == ((Alarm(member_id(1), error.split(":")[2].strip()),) if error else ())
    assert len(observed.hashes) == (3 if "hash" in requests else 0)


class OpenMember(FakeMember):
    """A member before 3.5.22: status and list of members need no password."""

    async def status(self) -> Any:
        return self.status_

    async def members(self) -> Any:
        return self.members_


async def test_rejected_password_is_noticed_although_the_list_of_members_needs_none() -> None:
    servers = [OpenMember(status(n), listed(0, 1, 2), password="unknown") for n in range(3)]
    observed = await three_pods(cluster()).observe(*servers)
    assert "invalid user ID or password" in observed.denied
    open_members = [OpenMember(status(n), listed(0, 1, 2)) for n in range(3)]
    assert (await three_pods(cluster()).observe(*open_members)).denied == ""


async def test_rejected_password_is_noticed_by_the_list_of_members() -> None:
    servers = [FakeMember(status(n), Denied("no permission")) for n in range(3)]
    assert (await three_pods(cluster()).observe(*servers)).denied == "no permission"


async def test_only_pods_that_the_cluster_controls_work_for_it() -> None:
    """W10: any pod may have the labels, and the result of a recovery decides which data the cluster has."""
    kubernetes, own = three_pods(cluster()), names.owner(cluster(), SETTINGS.operator)
    owners = {
        "demo-restore": [own.reference()],
        "demo-recovery": [own.reference() | {"uid": "other"}],
        "demo-clean": [],
    }
    for name, references in owners.items():
        pod = own.object(POD, name, component="restore")
        identity = {"uid": name, "resourceVersion": "1", "ownerReferences": references}
        kubernetes.cache.put(POD, pod | {"metadata": pod["metadata"] | identity})
    seen = await kubernetes.observe(*(FakeMember(status(n), listed(0, 1, 2)) for n in range(3)))
    assert (set(seen.job_pods), set(seen.stray_pods)) == ({"demo-restore"}, {"demo-recovery", "demo-clean"})


async def test_pod_of_a_former_resource_of_this_name_gets_no_password() -> None:
    """The pod may have another owner by now, and its ids are not accepted either."""
    kubernetes = three_pods(cluster())
    for number, uid in ((1, UID), (2, "u-0")):
        pod = kubernetes.cache.get(POD, "default", f"demo-{number}")
        assert pod is not None
        made = {"containers": [{"name": "etcd", "args": [f"--initial-cluster-token={uid}"]}]}
        version = {"metadata": pod["metadata"] | {"resourceVersion": "2"}}
        kubernetes.cache.put(POD, pod | version | {"spec": made})
    data = {"password": base64.b64encode(b"secret").decode()}
    kubernetes.resource = cluster(auth={"rootSecretName": "root"})
    kubernetes.server.actor("kubectl").create(
        SECRET, {"metadata": {"name": "root", "namespace": "default"}, "data": data}
    )
    servers = [FakeMember(status(n), listed(0, 1, 2)) for n in range(3)]
    await kubernetes.observe(*servers)
    assert [server.given for server in servers] == ["secret", "secret", ""]


def adopting(former: str) -> Kubernetes:
    """Return Kubernetes with the claims of a deleted resource, one of which is not in the cache yet."""
    kubernetes = Kubernetes(cluster(recorded=None, adopt={"fromUID": former}))
    user_client = kubernetes.server.actor("kubectl")
    for number in range(2):
        labels = kubernetes.labels | {names.CLUSTER_UID: former}
        metadata = {"name": f"data-demo-{number}", "namespace": "default", "labels": labels}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = user_client.create(PERSISTENT_VOLUME_CLAIM, {"metadata": metadata, "spec": spec})
        if number == 0:
            found = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"} | claim
            kubernetes.cache.put(PERSISTENT_VOLUME_CLAIM, found)
    return kubernetes


async def test_volumes_to_adopt_are_read_live() -> None:
    observed = await adopting("u-0").observe()
    assert [bool(instance.volume) for instance in observed.instances] == [True, True, False]
    assert observed.former_resource == ""


async def test_resource_with_the_uid_of_the_former_owner_is_found() -> None:
    kubernetes = adopting("u-0")
    spec = {"size": 1, "version": "3.6.8"}
    metadata = {"name": "other", "namespace": "default"}
    other = kubernetes.server.actor("kubectl").create(API.kind, {"metadata": metadata, "spec": spec})
    resource = cluster(recorded=None, adopt={"fromUID": other["metadata"]["uid"]})
    kubernetes.resource = resource
    labels = {"metadata": {"labels": {names.CLUSTER_UID: other["metadata"]["uid"]}}}
    kubernetes.server.actor("kubectl").merge(PERSISTENT_VOLUME_CLAIM, "default", "data-demo-0", labels)
    assert (await kubernetes.observe()).former_resource == "default/other"


async def test_resource_in_another_namespace_is_found_in_the_cache() -> None:
    kubernetes = adopting("u-0")
    metadata = {"name": "demo", "namespace": "team-a", "uid": "u-0", "resourceVersion": "1"}
    kubernetes.cache.put(API.kind, {"apiVersion": API.kind.api_version, "kind": API.kind.name, "metadata": metadata})
    assert (await kubernetes.observe()).former_resource == "team-a/demo"
