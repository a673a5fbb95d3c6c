"""The least world in which membership can go wrong: members, disks, pods, who is away. It judges what is done to it.

Members catch up at once and logs are not told apart: what counts here is who has a vote, whose disk it is on, and who
is there. `test_crash.py` plays the same on a world with an API server.
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
from operators.etcd.lifecycles import MEMBER, MemberEvent, MemberState
from operators.etcd.objects import bootstrap, names
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Action, Apply, Delete, Patch, Plan
from shared.status import conditions
from tests.unit.etcd.membership.abstract_view import observe
from tests.unit.etcd.world import PLANNER, UID


class Violation(AssertionError):
    """Something was done that may cost data, or the quorum."""


class Refused(Exception):
    """etcd, or Kubernetes, refuses."""


@dataclass
class Disk:
    """A volume: whose data is on it, and whether its deletion was asked for."""

    uid: str
    member: int = 0
    leaving: bool = False


@dataclass
class Server:
    """A pod: what it was made of; whether its node is away, its deletion was asked for, its disk found empty."""

    uid: str
    template: Obj
    made: datetime
    away: bool = False
    leaving: bool = False
    empty_data_dir: bool = False


@dataclass
class World:
    """One cluster, and what is around it."""

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

    # What there is.

    @property
    def resource(self) -> EtcdCluster:
        storage = {"medium": self.medium, "size": "1Gi"}
        spec: Obj = {"size": self.size, "version": "3.6.8", "storage": storage, "quotaBackendBytes": 2**25}
        spec["annotations"] = {"template": str(self.template)}
        metadata = {"name": "demo", "namespace": "default", "uid": UID, "generation": self.generation}
        return EtcdCluster.parse({"metadata": metadata, "spec": spec, "status": copy.deepcopy(self.status)})

    def number(self, member: Member) -> int:
        found = names.number_of(self.resource, member.peer_urls[0])
        assert found is not None
        return found

    def serves(self, number: int) -> bool:
        """Whether etcd runs at a place, as a member."""
        pod, disk = self.pods.get(number), self.disks.get(number)
        return bool(pod and disk and not pod.away and number not in self.broken and disk.member in self.members)

    @property
    def voters(self) -> list[Member]:
        return [member for member in self.members.values() if not member.learner]

    @property
    def up(self) -> list[Member]:
        """Voters that take part."""
        return [voter for voter in self.voters if self.serves(self.number(voter)) and self._at(voter)]

    def _at(self, member: Member) -> bool:
        disk = self.disks.get(self.number(member))
        return disk is not None and disk.member == member.id

    @property
    def needed(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def has_quorum(self) -> bool:
        return bool(self.voters) and len(self.up) >= self.needed

    @property
    def can_recover(self) -> bool:
        """Whether a majority of voters still has its data, or nothing was begun."""
        return not self.begun or sum(self._at(voter) for voter in self.voters) >= self.needed

    def member_state(self, number: int) -> MemberState:
        """What a member really is, whatever the operator sees of it."""
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
    def _goes(self, number: int, event: MemberEvent) -> Iterator[None]:
        """Judge a change of a member by its lifecycle."""
        before = self.member_state(number)
        if not MEMBER.allows(before, event):
            raise Violation(f"demo-{number}: {event.name} while it is {before.name}")
        yield
        after = self.member_state(number)
        gone = MEMBER.after(before, event) is MemberState.REMOVED and after is MemberState.VACANT  # it left nothing
        assert after is MEMBER.after(before, event) or gone
        self.transitions.add((before, event))

    # What the operator sees and does.

    def elect(self) -> None:
        """A quorum has a leader; who leads and is well goes on to lead."""
        if not self.has_quorum:
            self.leader = 0
        elif self.leader not in {voter.id for voter in self.up}:
            self.leader = min(voter.id for voter in self.up)

    def votes(self, number: int) -> bool:
        """Whether the disk at a place is a voter's."""
        disk = self.disks.get(number)
        return disk is not None and disk.member in self.members and not self.members[disk.member].learner

    def reconcile(self, *, crash_after: int | None = None) -> Plan | None:
        """Observe, plan and act, until nothing is left to do now; then the status is written.

        Args:
            crash_after: so many changes; then the operator is gone.

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
            case Delete() if action.obj["kind"] == "PersistentVolumeClaim":
                with self._goes(int(action.obj["metadata"]["name"].removeprefix("data-demo-")), MemberEvent.DELETE):
                    self._delete_volume(action.obj)
            case AddLearner():
                number = names.number_of(self.resource, action.peer_url)
                assert number is not None
                with self._goes(number, MemberEvent.ADD):
                    self._add(action.peer_url)
            case Promote():
                with self._goes(self.number(action.member), MemberEvent.PROMOTE):
                    self._promote(action.member)
            case Remove():
                with self._goes(self.number(action.member), MemberEvent.REMOVE):
                    self._remove(action.member)
            case MoveLeader():
                with self._goes(self.number(self.members[self.leader]), MemberEvent.HAND_OVER):
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
            raise Violation(f"{replicas} replicas leave no place for {self.members}")
        self.stateful_set = copy.deepcopy(obj)
        return True

    def _patch(self, action: Patch) -> bool:
        pod = self.pods.get(int(action.obj["metadata"]["name"].removeprefix("demo-")))
        if pod is None or pod.uid != action.obj["metadata"]["uid"]:
            raise Refused("gone")
        before, pod.template = pod.template, copy.deepcopy(pod.template)
        for part, change in action.change["metadata"].items():
            pod.template["metadata"][part] |= change
        return bool(before != pod.template)

    def _delete_pod(self, obj: Obj) -> None:
        number = int(obj["metadata"]["name"].removeprefix("demo-"))
        pod = self.pods.get(number)
        if pod is None or pod.uid != obj["metadata"]["uid"]:
            raise Refused("gone")
        before = self.has_quorum
        voter = self.serves(number) and self.votes(number)
        pod.leaving = True
        if voter:
            self._count("voters restarted")
            others = len(self.up) - 1
            if before and len(self.voters) > 2 and others < self.needed:
                raise Violation(f"demo-{number} is restarted with {others} others of {len(self.voters)} up")
            if before and others < len(self.voters) - 1:
                raise Violation(f"demo-{number} is restarted while another voter is down")
            if self.medium == "Memory":
                raise Violation(f"the pod of voter demo-{number} goes with its data")

    def _delete_volume(self, obj: Obj) -> None:
        number = int(obj["metadata"]["name"].removeprefix("data-demo-"))
        disk = self.disks.get(number)
        if disk is None or disk.uid != obj["metadata"]["uid"]:
            raise Refused("gone")
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

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # What Kubernetes and the nodes do.

    def turn(self) -> None:
        """Pods and volumes go that are to go, and come that are to come; then etcd starts where it can."""
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
        """Etcd starts on an empty disk, if its flags let it."""
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
                raise Violation("a cluster begins twice")
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
        """A person asks for so many members."""
        self.size, self.generation = size, self.generation + 1

    def change(self) -> None:
        """A person changes something for which members must restart."""
        self.template, self.generation = self.template + 1, self.generation + 1

    def leave(self, number: int, *, away: bool) -> None:
        """A node cannot be reached, or can be again."""
        if number in self.pods:
            self.pods[number].away = away

    def lose(self, number: int) -> None:
        """A node is gone for good, with the disk on it; somebody deletes pod and claim."""
        self.pods.pop(number, None)
        self.disks.pop(number, None)

    def wipe(self, number: int) -> None:
        """A node starts again with an empty disk, or an empty memory, under the same volume and the same pod.

        Not before clients are let in: until then nobody relies on what is there.
        """
        pod = self.pods.get(number)
        if pod is not None and number in self.disks and names.SERVES in pod.template["metadata"]["labels"]:
            self.disks[number].member = 0

    def kill(self, number: int) -> None:
        """A pod is evicted."""
        if number in self.pods:
            self._drop_pod(number)

    def heal(self) -> None:
        """Everybody is back, and can be seen."""
        self.broken.clear()
        self.hidden.clear()
        for pod in self.pods.values():
            pod.away = False

    def settle(self, turns: int = 150) -> Plan | None:
        """Operator and Kubernetes take turns until all is as wanted; the last plan, or None if it never was."""
        for _ in range(turns):
            made = self.reconcile()
            self.turn()
            if made is not None and made.verdict.done:
                return made
        return None


def numbers(members: Iterable[Member], world: World) -> list[int]:
    return sorted(map(world.number, members))
