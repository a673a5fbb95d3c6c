"""The scheduler and the kubelets: they start pods, report their status and stop them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from shared.kubernetes.kinds import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, POD, SECRET, Obj
from simulator.kubelet.timing import PodTiming, delay

if TYPE_CHECKING:
    from simulator.api_server.server import ApiServer

RUNNING = ("", "Unready")
"""Problems of pods whose containers run."""


class Exit(NamedTuple):
    """A container that terminated and is not restarted."""

    code: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The state of a pod's processes.

    Attributes:
        pod_problem: reason why the pod is not ready. Empty if it is ready, `Unready` if it runs but fails its readiness
            probe, otherwise the waiting reason of its containers, and its message after a colon (CrashLoopBackOff,
            "ErrImagePull: not found").
        termination_message: message of containers that terminated and are restarted.
        exits: terminated containers that are not restarted, by name, including init containers. The pod is complete.
        image_id: ID of the image that the containers run; empty if the kubelet has not reported it.
        started: time since which containers run that just started, in RFC 3339; empty for the present time.
    """

    pod_problem: str = ""
    termination_message: str = ""
    exits: Mapping[str, Exit] = field(default_factory=dict)
    image_id: str = ""
    started: str = ""


@runtime_checkable
class Processes(Protocol):
    """The processes that run in pods.

    If their attribute `reads_files` is true, `run` receives the ConfigMaps and Secrets of a pod with its claims, by
    volume name.
    """

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> ProcessStatus:
        """Start a pod's processes unless they run, and return their state. Called repeatedly.

        Args:
            pod: Pod with its IP address.
            claims: PersistentVolumeClaims of the pod by volume name.
        """

    def end(self, uid: str) -> None:
        """Handle the deletion of the pod or claim with this UID."""


class Kubelet:
    """The scheduler and the kubelets of all nodes.

    Args:
        created: number of addresses assigned before; new pods get other ones.
        nodes: number of nodes. A new pod is bound to the node with the fewest pods.

    Attributes:
        processes: processes that run in pods; None if a test needs none.
        reusable: addresses to assign again before new ones.
        cordoned: nodes to which no new pod is bound.
        ignores_stop: whether a pod runs on although it is deleted, until its grace period ends. The first process of a
            container gets no signal for which it has no handler yet (`man 7 pid_namespaces`).
        hosts: names of the nodes, if they are not node-1 and so on. A pod then returns to the node of the last pod of
            its name.
        sleeps: whether the containers of a deleted pod run on while its preStop hooks sleep. Otherwise that time is
            skipped: most scenarios do not depend on it.
        timing: lets the time pass that pods take; None if they start and stop at once.
    """

    def __init__(self, server: ApiServer, *, created: int = 0, nodes: int = 1) -> None:
        self.processes: Processes | None = None
        self.created = created
        self.reusable: list[str] = []
        self.cordoned: set[str] = set()
        self.ignores_stop: Callable[[Obj], bool] = lambda _: False
        self.sleeps = False
        self.hosts: tuple[str, ...] = ()
        self.timing: PodTiming | None = None
        self.nodes = nodes
        self._last: dict[str, str] = {}
        self._server = server
        self._actor = server.actor("kubelet")
        self._started: dict[str, None] = {}
        self._exits: dict[tuple[str, str], tuple[int, datetime]] = {}

    def fork(self, server: ApiServer) -> Kubelet:
        """Return a copy for a fork of the server, without its processes."""
        kubelet = Kubelet(server, created=self.created, nodes=self.nodes)
        kubelet._started, kubelet.reusable = dict(self._started), list(self.reusable)
        kubelet._exits = dict(self._exits)
        kubelet.cordoned, kubelet.ignores_stop = set(self.cordoned), self.ignores_stop
        kubelet.sleeps, kubelet.hosts, kubelet._last = self.sleeps, self.hosts, dict(self._last)
        return kubelet

    def report_deletions(self) -> None:
        """Report deleted pods and claims to the processes."""
        if self.processes is None:
            return
        existing = {
            obj["metadata"]["uid"] for kind in (POD, PERSISTENT_VOLUME_CLAIM) for _, obj in self._server.objects(kind)
        }
        for uid in [uid for uid in self._started if uid not in existing]:
            del self._started[uid]
            self.processes.end(uid)

    def due(self, pod: Obj) -> tuple[datetime, int] | None:
        """Return when a pod that starts or stops is ready or removed; None for any other, and if neither takes time."""
        changes = pod["metadata"].get("deletionTimestamp") or not pod["status"].get("containerStatuses")
        return self.timing.due(pod) if self.timing is not None and changes else None

    def sync_pod(self, pod: Obj, pod_problem: str) -> bool:
        """Stop, bind, start or report on a pod; return whether there was anything to do.

        Args:
            pod_problem: reason why the pod is not ready, regardless of its processes.
        """
        metadata = pod["metadata"]
        address = (POD, metadata["namespace"], metadata["name"])
        if metadata.get("deletionTimestamp"):
            if not metadata.get("deletionGracePeriodSeconds"):
                return False  # stopped, but its finalizers block its removal
            if self._server.now() >= metadata["deletionTimestamp"] or not (self.ignores_stop(pod) or self._asleep(pod)):
                if self.timing is not None:
                    self.timing.stop(pod)
                self._actor.delete(*address, gracePeriodSeconds=0)
                return True
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            return False
        claims, missing = self._claims(pod)
        if missing:
            return self._report(pod, self._unscheduled(pod, missing))
        if self.hosts and pod["spec"].get("nodeName"):
            self._last[metadata["name"]] = pod["spec"]["nodeName"]
        if not pod["spec"].get("nodeName"):
            bound = {"nodeName": self._node(metadata["name"])}
            self._actor.merge(*address, {"spec": bound})
            pod = pod | {"spec": pod["spec"] | bound}
        ip = pod["status"].get("podIP") or self._address()
        is_new = not pod["status"].get("containerStatuses")
        started = self.timing.start(pod) if self.timing is not None and is_new else ""
        fate = ProcessStatus(pod_problem)
        if self.processes is not None and pod_problem in RUNNING:
            self._started |= dict.fromkeys((metadata["uid"], *(claim["metadata"]["uid"] for claim in claims.values())))
            known = pod["status"] | {"podIP": ip}
            files = self._files(pod) if getattr(self.processes, "reads_files", False) else {}
            fate = self.processes.run(pod | {"status": known}, claims | files)
            fate = replace(fate, pod_problem=fate.pod_problem or pod_problem)
        return self._report(pod, self._status(pod, replace(fate, started=started), ip))

    def _asleep(self, pod: Obj) -> bool:
        """Return whether a preStop hook of a deleted pod still sleeps."""
        if not self.sleeps:
            return False
        metadata = pod["metadata"]
        grace = timedelta(seconds=metadata["deletionGracePeriodSeconds"] - delay(pod))
        until = datetime.fromisoformat(metadata["deletionTimestamp"]) - grace
        return datetime.fromisoformat(self._server.now()) < until

    def _claims(self, pod: Obj) -> tuple[dict[str, Obj], str]:
        """Return the claims that a pod uses, and the reason why it cannot be scheduled, if any."""
        claims: dict[str, Obj] = {}
        namespace = pod["metadata"]["namespace"]
        for volume in pod["spec"].get("volumes", ()):
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if not name:
                continue
            claim = self._server.stored(PERSISTENT_VOLUME_CLAIM, namespace, name)
            if claim is None:
                return {}, f'persistentvolumeclaim "{name}" not found'
            if claim["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName"):
                return {}, f'persistentvolumeclaim "{name}" is being deleted'
            claims[volume["name"]] = claim
        return claims, ""

    def _files(self, pod: Obj) -> dict[str, Obj]:
        """Return the existing ConfigMaps and Secrets that a pod mounts, by volume name."""
        found: dict[str, Obj] = {}
        for volume in pod["spec"].get("volumes", ()):
            for kind, name in (
                (CONFIG_MAP, (volume.get("configMap") or {}).get("name")),
                (SECRET, (volume.get("secret") or {}).get("secretName")),
            ):
                if name and (obj := self._server.stored(kind, pod["metadata"]["namespace"], name)) is not None:
                    found[volume["name"]] = obj
        return found

    def _node(self, pod: str) -> str:
        """Return the node with the fewest pods; of cordoned ones only if all are."""
        if self.hosts and (last := self._last.get(pod)) in self.hosts:
            return str(last)
        taken = Counter(each["spec"].get("nodeName") for _, each in self._server.objects(POD)) if self.nodes > 1 else {}
        names = list(self.hosts) or [f"node-{number + 1}" for number in range(self.nodes)]
        return min(set(names) - self.cordoned or names, key=lambda name: (taken.get(name, 0), names.index(name)))

    def _report(self, pod: Obj, status: Obj) -> bool:
        if status == {key: pod["status"].get(key) for key in status}:
            return False
        metadata = pod["metadata"]
        self._actor.merge(POD, metadata["namespace"], metadata["name"], {"status": status}, subresource="status")
        return True

    def _unscheduled(self, pod: Obj, why: str) -> Obj:
        conditions = self.conditions(pod["status"], [("PodScheduled", False)])
        return {"phase": "Pending", "conditions": [conditions[0] | {"reason": "Unschedulable", "message": why}]}

    def _status(self, pod: Obj, fate: ProcessStatus, ip: str) -> Obj:
        before = pod["status"]
        ended, failed = bool(fate.exits), any(exited.code for exited in fate.exits.values())
        ready, runs = not fate.pod_problem and not ended, fate.pod_problem in RUNNING
        phase = "Running" if runs or before.get("phase") == "Running" else "Pending"
        initialized = not any(
            fate.exits.get(container["name"], Exit()).code for container in pod["spec"].get("initContainers", ())
        )
        holds = [("PodScheduled", True), ("Initialized", initialized), ("ContainersReady", ready), ("Ready", ready)]
        status = {
            "phase": ("Failed" if failed else "Succeeded") if ended else phase,
            "startTime": before.get("startTime") or self._server.now(),
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": self.conditions(before, holds),
            "containerStatuses": self._containers(pod, fate, "containers", "containerStatuses"),
        }
        if ended and pod["spec"].get("initContainers"):
            status["initContainerStatuses"] = self._containers(pod, fate, "initContainers", "initContainerStatuses")
        return status

    def _containers(self, pod: Obj, fate: ProcessStatus, of: str, named: str) -> list[Obj]:
        before: Obj = {known["name"]: known for known in pod["status"].get(named, ())}
        return [
            self._container(pod["metadata"]["uid"], container, fate, before.get(container["name"], {}))
            for container in pod["spec"][of]
        ]

    def _container(self, uid: str, container: Obj, fate: ProcessStatus, known: Obj) -> Obj:
        runs = fate.pod_problem in RUNNING
        since = fate.started or self._server.now()
        state: Obj = {"running": {"startedAt": since}} if runs else {"waiting": _waiting(fate.pod_problem)}
        same = known.get("state", {}).keys() == state.keys() and (runs or known["state"] == state)
        before: Obj = known.get("lastState", {})
        crashed = fate.pod_problem == "CrashLoopBackOff" and self._crashes((uid, container["name"]), again=same)
        status = {
            "name": container["name"],
            "image": container["image"],
            "ready": not fate.pod_problem and not fate.exits,
            "restartCount": known.get("restartCount", 0) + crashed,
            "state": known["state"] if same else state,
        }
        if image_id := fate.image_id or known.get("imageID"):
            status["imageID"] = image_id
        if fate.termination_message:
            status["lastState"] = self._terminated(Exit(1, fate.termination_message), {} if crashed else before)
        elif before:
            status["lastState"] = before
        if fate.exits:
            ended = fate.exits.get(container["name"])
            waits: Obj = {"waiting": {"reason": "PodInitializing"}}
            status["state"] = self._terminated(ended, known.get("state", {})) if ended else waits
        return status

    def _crashes(self, container: tuple[str, str], *, again: bool) -> bool:
        """Whether a container that exits does so now: `again` after a back-off of 10 s, 20 s and so on, up to 5 min.

        10 minutes without an exit end the back-off, as in the kubelet.
        """
        now = datetime.fromisoformat(self._server.now())
        count, last = self._exits.get(container, (0, now))
        waited = (now - last).total_seconds()
        if again and count and waited < min(10 * 2 ** (count - 1), 300):
            return False
        self._exits[container] = (count + 1 if waited <= 600 else 1, now)
        return True

    def _terminated(self, ended: Exit, before: Obj) -> Obj:
        """Return the terminated state of a container; an unchanged one keeps its time."""
        result = {"exitCode": ended.code, "reason": "Error" if ended.code else "Completed"}
        result |= {"message": ended.message} if ended.message else {}
        known: Obj = before.get("terminated", {})
        if result.items() <= known.items():
            return before
        return {"terminated": result | {"startedAt": self._server.now(), "finishedAt": self._server.now()}}

    def conditions(self, status: Obj, holds: list[tuple[str, bool]]) -> list[Obj]:
        """Build conditions; an unchanged one keeps its last transition time."""
        known = {condition["type"]: condition for condition in status.get("conditions", ())}
        found = []
        for name, value in holds:
            text = "True" if value else "False"
            same = known.get(name, {}).get("status") == text
            since = known[name]["lastTransitionTime"] if same else self._server.now()
            found.append({"type": name, "status": text, "lastTransitionTime": since})
        return found

    def _address(self) -> str:
        """Return a spare IP address if there is one, otherwise one that no pod had before."""
        if self.reusable:
            return self.reusable.pop(0)
        self.created += 1
        return f"10.244.{self.created // 250}.{self.created % 250 + 1}"


def _waiting(pod_problem: str) -> Obj:
    reason, _, message = pod_problem.partition(": ")
    return {"reason": reason, "message": message} if message else {"reason": reason}
