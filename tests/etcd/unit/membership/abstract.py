"""A minimal model of membership: members, volumes, pods and unreachable nodes. It checks every action on them.

Members catch up at once, and logs have no content: only voters, their volumes and their reachability matter.
`test_crash.py` runs the whole operator on a simulation with an API server.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.commands import AddLearner, MoveLeader, Promote, Remove
from operators.etcd.client.server import Member
from operators.etcd.facts.lifecycles import MEMBER, MemberEvent, MemberState
from operators.etcd.objects import bootstrap, names
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Action, Apply, Delete, Evict, Patch, Plan
from shared.status import conditions
from tests.etcd.unit.membership.abstract_view import observe
from tests.etcd.unit.world import PLANNER, UID


class Violation(AssertionError):
    """An action may lose data or the quorum."""


class Refused(Exception):
    """A refusal by etcd or Kubernetes."""


@dataclass
class Disk:
    """A volume, the member whose data it contains, and whether it is being deleted."""

    uid: str
    member: int = 0
    leaving: bool = False


@dataclass
class Server:
    """A pod with its template; whether its node is away, it is being deleted, or its data directory is empty."""

    uid: str
    template: Obj
    made: datetime
    away: bool = False
    leaving: bool = False
    empty_data_dir: bool = False


@dataclass
class World:
    """One cluster with its pods, volumes and StatefulSet."""

    size: int = 3
    template: int = 0
    medium: str = "Volume"
    status: Obj = field(default_factory=dict)
    generation: int = 1
    stateful_set: Obj | None = None
    pods: dict[int, Server] = field(default_factory=dict)
    disks: dict[int, Disk] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)
    leader: int = 0
    begun: bool = False
    broken: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    made: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    transitions: set[tuple[MemberState, MemberEvent]] = field(default_factory=set)

    # State of the world.

    @property
    def resource(self) -> EtcdCluster:
        storage = {"medium": self.medium, "size": "1Gi"}
        spec: Obj = {"size": self.size, "version": "3.6.8", "storage": storage, "quotaBackendBytes": 2**25}
        spec["annotations"] = {"template": str(self.template)}
        metadata = {"name": "demo", "namespace": "default", "uid": UID, "generation": self.generation}
        return EtcdCluster.parse(
            {"kind": "EtcdCluster", "metadata": metadata, "spec": spec, "status": copy.deepcopy(self.status)}
        )

    def number(self, member: Member) -> int:
        found = names.number_of(self.resource, member.peer_urls[0])
        assert found is not None
        return found

    def serves(self, number: int) -> bool:
        """Whether etcd runs in pod `number`, as a member."""
        pod, disk = self.pods.get(number), self.disks.get(number)
        return bool(pod and disk and not pod.away and number not in self.broken and disk.member in self.members)

    @property
    def voters(self) -> list[Member]:
        return [member for member in self.members.values() if not member.learner]

    @property
    def up(self) -> list[Member]:
        """Voters whose servers take part."""
        return [voter for voter in self.voters if self.serves(self.number(voter)) and self._at(voter)]

    def _at(self, member: Member) -> bool:
        disk = self.disks.get(self.number(member))
        return disk is not None and disk.member == member.id

    @property
    def quorum(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def has_quorum(self) -> bool:
        return bool(self.voters) and len(self.up) >= self.quorum

    @property
    def can_recover(self) -> bool:
        """Whether a majority of voters still has its data, or the cluster is not bootstrapped."""
        return not self.begun or sum(self._at(voter) for voter in self.voters) >= self.quorum

    def member_state(self, number: int) -> MemberState:
        """Return the actual state of a member, independent of what the operator observes."""
        member = next((member for member in self.members.values() if self.number(member) == number), None)
        pod, disk = self.pods.get(number), self.disks.get(number)
        if member is None:
            replicas = self.stateful_set["spec"]["replicas"] if self.stateful_set else 0
            recorded = {known.get("volume") for known in self.status.get("members") or ()}
            written = disk is not None and bool(disk.member or disk.leaving or disk.uid in recorded)
            return MemberState.REMOVED if written or (number >= replicas and (pod or disk)) else MemberState.VACANT
        if not member.name:
            return MemberState.ADDED
        if not self._at(member):
            return MemberState.LOST
        if member.learner:
            return MemberState.CAUGHT_UP if self.serves(number) else MemberState.CATCHING_UP
        return MemberState.LEADER if member.id == self.leader else MemberState.VOTER

    @contextmanager
    def _transition(self, number: int, event: MemberEvent) -> Iterator[None]:
        """Check that the lifecycle allows a change of a member."""
        before = self.member_state(number)
        if not MEMBER.allows(before, event):
            raise Violation(f"demo-{number}: {event.name} while it is {before.name}")
        yield
        after = self.member_state(number)
        left_nothing = MEMBER.after(before, event) is MemberState.REMOVED and after is MemberState.VACANT
        assert after is MEMBER.after(before, event) or left_nothing
        self.transitions.add((before, event))

    # Actions of the operator.

    def elect(self) -> None:
        """Elect a leader if there is a quorum; a healthy leader stays leader."""
        if not self.has_quorum:
            self.leader = 0
        elif self.leader not in {voter.id for voter in self.up}:
            self.leader = min(voter.id for voter in self.up)

    def votes(self, number: int) -> bool:
        """Whether volume `number` has the data of a voter."""
        disk = self.disks.get(number)
        return disk is not None and disk.member in self.members and not self.members[disk.member].learner

    def reconcile(self, *, crash_after: int | None = None) -> Plan | None:
        """Observe, plan and act until no action is left; then write the status.

        Args:
            crash_after: number of changes after which the operator crashes.

        Returns:
            The last plan, if its status was written.
        """
        resource, left = self.resource, crash_after
        for _ in range(5):
            made, changed = PLANNER.plan(resource, observe(self), self.now), False
            for action in made.actions:
                try:
                    acted = self.act(action)
                except Refused:
                    return None
                changed |= acted
                if acted and left is not None:
                    left -= 1
                    if left < 0:
                        return None
            if not changed:
                break
        self.status = conditions.compose(resource.obj, made.status, made.verdict, self.now.isoformat())
        return made

    def act(self, action: Action) -> bool:
        match action:
            case Apply() if action.obj["kind"] == "StatefulSet":
                return self._apply(action.obj)
            case Patch() if action.obj["kind"] == "Pod":
                return self._patch(action)
            case Delete() if action.obj["kind"] == "Pod":
                self._delete_pod(action.obj)
            case Evict():
                self._delete_pod(action.obj, within_budget=True)
            case Delete() if action.obj["kind"] == "PersistentVolumeClaim":
                with self._transition(
                    int(action.obj["metadata"]["name"].removeprefix("data-demo-")), MemberEvent.DELETE
                ):
                    self._delete_volume(action.obj)
            case AddLearner():
                number = names.number_of(self.resource, action.peer_url)
                assert number is not None
                with self._transition(number, MemberEvent.ADD):
                    self._add(action.peer_url)
            case Promote():
                with self._transition(self.number(action.member), MemberEvent.PROMOTE):
                    self._promote(action.member)
            case Remove():
                with self._transition(self.number(action.member), MemberEvent.REMOVE):
                    self._remove(action.member)
            case MoveLeader():
                with self._transition(self.number(self.members[self.leader]), MemberEvent.HAND_OVER):
                    self._count("leader moved")
                    self.leader = action.to.id
            case _:
                return False
        return True

    def _apply(self, obj: Obj) -> bool:
        if obj == self.stateful_set:
            return False
        if bootstrap.of(obj["spec"]["template"])[0] == "new" and self.status.get("clusterID"):
            raise Violation("New is rendered again")
        replicas = obj["spec"]["replicas"]
        if self.members and replicas <= max(map(self.number, self.members.values())):
            raise Violation(f"{replicas} replicas leave no pod for {self.members}")
        self.stateful_set = copy.deepcopy(obj)
        return True

    def _patch(self, action: Patch) -> bool:
        pod = self.pods.get(int(action.obj["metadata"]["name"].removeprefix("demo-")))
        if pod is None or pod.uid != action.obj["metadata"]["uid"]:
            raise Refused("not found")
        before, pod.template = pod.template, copy.deepcopy(pod.template)
        for part, change in action.change["metadata"].items():
            pod.template["metadata"][part] |= change
        return bool(before != pod.template)

    def _delete_pod(self, obj: Obj, *, within_budget: bool = False) -> None:
        number = int(obj["metadata"]["name"].removeprefix("demo-"))
        pod = self.pods.get(number)
        if pod is None or pod.uid != obj["metadata"]["uid"]:
            raise Refused("not found")
        before = self.has_quorum
        voter = self.serves(number) and self.votes(number)
        pod.leaving = True
        if voter:
            self._count("voters restarted")
            others = len(self.up) - 1
            if before and len(self.voters) > 2 and others < self.quorum:
                raise Violation(f"demo-{number} is restarted with {others} others of {len(self.voters)} up")
            if before and others < len(self.voters) - 1:
                raise Violation(f"demo-{number} is restarted while another voter is down")
            if self.medium == "Memory" and not within_budget:  # a drain could do the same to another member
                raise Violation(f"the pod of voter demo-{number} is deleted with its data")

    def _delete_volume(self, obj: Obj) -> None:
        number = int(obj["metadata"]["name"].removeprefix("data-demo-"))
        disk = self.disks.get(number)
        if disk is None or disk.uid != obj["metadata"]["uid"]:
            raise Refused("not found")
        if disk.member in self.members:
            raise Violation(f"the disk of member demo-{number} is deleted")
        disk.leaving = True
        self._count("volumes deleted")

    def _add(self, url: str) -> None:
        self._require_quorum()
        if len(self.up) < len(self.voters):
            raise Refused("unhealthy cluster")
        if any(member.learner for member in self.members.values()):
            raise Violation("a second learner is added")
        number = names.number_of(self.resource, url)
        disk = self.disks.get(number) if number is not None else None
        if disk is not None and disk.member:
            raise Violation(f"demo-{number} is added over the data of a former member")
        self.made += 1
        self.members[1000 + self.made] = Member(1000 + self.made, "", (url,), learner=True)
        self._count("learners added")

    def _promote(self, learner: Member) -> None:
        self._require_quorum()
        if not self.serves(self.number(learner)):
            raise Refused("not in sync")
        self.members[learner.id] = Member(learner.id, learner.name, learner.peer_urls)
        self._count("learners promoted")
        if not self.has_quorum:
            raise Violation("the quorum is lost by a promotion")

    def _remove(self, member: Member) -> None:
        self._require_quorum()
        member = self.members[member.id]
        if not member.learner:
            self._count("voters removed")
            others = [voter for voter in self.voters if voter.id != member.id]
            down = [voter for voter in others if voter not in self.up]
            if member in self.up and down:
                raise Violation(f"healthy {member.name} is removed while {down} is down")
            if len(others) - len(down) < len(others) // 2 + 1:
                raise Violation(f"the quorum is lost by removing {member.name}")
            if member.id == self.leader:
                raise Violation("the leader is removed before it handed over")
        del self.members[member.id]

    def _require_quorum(self) -> None:
        if not self.has_quorum:
            raise Refused("no leader")

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    # Actions of Kubernetes and the nodes.

    def run_kubelet(self) -> None:
        """Delete and create pods and volumes as Kubernetes does, then start etcd where it can start."""
        self.now += timedelta(seconds=60)
        replicas = self.stateful_set["spec"]["replicas"] if self.stateful_set else 0
        for number, pod in list(self.pods.items()):
            pod.leaving |= number >= replicas
            if pod.leaving and not pod.away:
                self._drop_pod(number)
        for number, disk in list(self.disks.items()):
            if disk.leaving and number not in self.pods:
                del self.disks[number]
        for number in range(replicas):
            if number not in self.pods and not (number in self.disks and self.disks[number].leaving):
                assert self.stateful_set is not None
                self.made += 1
                self.disks.setdefault(number, Disk(f"disk-{self.made}"))
                self.pods[number] = Server(f"pod-{self.made}", self.stateful_set["spec"]["template"], self.now)
                if self.medium == "Memory":
                    self.disks[number] = Disk(f"pod-{self.made}")
        for number in sorted(self.pods):
            self._start(number)
        self.elect()

    def _drop_pod(self, number: int) -> None:
        del self.pods[number]
        if self.medium == "Memory":
            self.disks.pop(number, None)

    def _start(self, number: int) -> None:
        """Start etcd on an empty volume, if its flags allow it."""
        pod, disk = self.pods[number], self.disks[number]
        if pod.away or number in self.broken or disk.member:
            return
        state, text = bootstrap.of(pod.template)
        listed = dict(entry.split("=") for entry in text.split(","))
        if f"demo-{number}" not in listed:
            pod.empty_data_dir = True
            return
        if state == "new":
            if self.begun:
                raise Violation("the cluster is bootstrapped twice")
            self.begun = True
            self.members[1] = Member(1, "demo-0", (listed["demo-0"],))
            disk.member = 1
            return
        urls = sorted(url for member in self.members.values() for url in member.peer_urls)
        own = next((member for member in self.members.values() if self.number(member) == number), None)
        if not self.has_quorum or own is None or sorted(listed.values()) != urls:
            return
        if not own.learner:
            raise Violation(f"voter demo-{number} starts with an empty disk")
        disk.member = own.id
        self.members[own.id] = Member(own.id, f"demo-{number}", own.peer_urls, learner=True)

    def resize(self, size: int) -> None:
        """Change spec.size."""
        self.size, self.generation = size, self.generation + 1

    def change(self) -> None:
        """Change the spec so that members must restart."""
        self.template, self.generation = self.template + 1, self.generation + 1

    def leave(self, number: int, *, away: bool) -> None:
        """Make the node of a pod unreachable, or reachable again."""
        if number in self.pods:
            self.pods[number].away = away

    def lose(self, number: int) -> None:
        """Lose a node permanently with its volume; a user deletes the pod and the claim."""
        self.pods.pop(number, None)
        self.disks.pop(number, None)

    def wipe(self, number: int) -> None:
        """Reboot a node with an empty disk or memory; the volume and the pod keep their names and UIDs.

        This happens only after clients have access: until then no client relies on the data.
        """
        pod = self.pods.get(number)
        if pod is not None and number in self.disks and names.SERVES in pod.template["metadata"]["labels"]:
            self.disks[number].member = 0

    def kill(self, number: int) -> None:
        """Evict a pod."""
        if number in self.pods:
            self._drop_pod(number)

    def heal(self) -> None:
        """Make all nodes and members reachable again."""
        self.broken.clear()
        self.hidden.clear()
        for pod in self.pods.values():
            pod.away = False

    def settle(self, turns: int = 150) -> Plan | None:
        """Alternate operator and Kubernetes until the desired state; return the last plan, or None on a timeout."""
        for _ in range(turns):
            made = self.reconcile()
            self.run_kubelet()
            if made is not None and made.verdict.done:
                return made
        return None


def numbers(members: Iterable[Member], world: World) -> list[int]:
    return sorted(map(world.number, members))
