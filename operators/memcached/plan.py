"""What to do next about a Memcached, and what to say of it. Pure."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from operators.memcached import resources
from operators.memcached.api import Memcached, validate
from operators.memcached.observe import Observed
from shared.kube import DEPLOYMENT, SERVICE, Obj
from shared.ownership import Owner, selector_text
from shared.plan import PASS, Apply, Plan, Progress, Step, StepOf, Verdict, follow

CREATING, SCALING, UPDATING, DEGRADED = "Creating", "Scaling", "Updating", "Degraded"
RUNNING, PAUSED, FAILED = "Running", "Paused", "Failed"


@dataclasses.dataclass(frozen=True, slots=True)
class Planner:
    """Plans with what the operator's options give.

    Attributes:
        operator: the operator's name, which its objects bear.
        image_repository: where images come from if a resource gives only a version.
    """

    operator: str
    image_repository: str

    def plan(self, resource: Memcached, seen: Observed, now: datetime) -> Plan:
        """The chain's answer, with the status that tells it."""
        actions, verdict, requeue = follow(self._steps(), resource, seen, now)
        if verdict.done:
            verdict = dataclasses.replace(verdict, message=_ready_message(resource, seen))
        elif verdict.progress is Progress.HELD:
            verdict = dataclasses.replace(verdict, ready=len(seen.servers) == resource.spec.size)
        return Plan(actions, verdict, self._status(resource, seen, verdict), requeue)

    def _steps(self) -> tuple[StepOf[Memcached, Observed], ...]:
        return (
            hold_while_paused,  # a person works on it: report, touch nothing
            refuse_contradictions,  # the same rules as at admission, for what came past it
            self.keep_service,  # a name before the servers that bear it
            self.keep_servers,  # the Deployment as the spec says
            name_what_hinders,  # a server that cannot start, with Kubernetes' own words
            await_servers,  # all there, all current, all ready
        )

    def keep_service(self, resource: Memcached, _seen: Observed, _now: datetime) -> Step:
        """The headless Service exists as it must be."""
        return Step.do(Apply(SERVICE, resources.service(resource, self._owner(resource))))

    def keep_servers(self, resource: Memcached, _seen: Observed, _now: datetime) -> Step:
        """The Deployment exists as the spec says."""
        return Step.do(Apply(DEPLOYMENT, resources.deployment(resource, self._owner(resource), self._image(resource))))

    def _owner(self, resource: Memcached) -> Owner:
        return resources.owner(resource, self.operator)

    def _image(self, resource: Memcached) -> str:
        return resource.spec.image_reference(self.image_repository)

    def _status(self, resource: Memcached, seen: Observed, verdict: Verdict) -> Obj:
        own = self._owner(resource)
        return {
            "phase": _phase(resource, seen, verdict),
            "replicas": len(seen.current),
            "readyReplicas": len(seen.servers),
            "selector": selector_text(own.selector(resources.COMPONENT)),
            "image": self._image(resource),
            "nodes": [pod.name for pod in seen.current],
            "servers": sorted(f"{_host(pod.address)}:{resource.spec.container_port}" for pod in seen.servers),
        }


def hold_while_paused(resource: Memcached, _seen: Observed, _now: datetime) -> Step:
    """While spec.paused holds, nothing is changed."""
    if not resource.spec.paused:
        return PASS
    return Step.hold(PAUSED, "spec.paused is true: nothing is changed until it is false again.")


def refuse_contradictions(resource: Memcached, _seen: Observed, _now: datetime) -> Step:
    """A spec that contradicts itself changes nothing; what runs goes on."""
    wrong = validate(resource)
    return Step.stall("InvalidSpec", " ".join(wrong) + " Nothing was changed.") if wrong else PASS


def name_what_hinders(resource: Memcached, seen: Observed, _now: datetime) -> Step:
    """What keeps servers from starting is said in the words of whoever keeps them."""
    ready = f"{len(seen.servers)} of {resource.spec.size} servers are ready"
    if seen.refusal:
        return Step.underway("PodsRefused", f"{ready}. No further pod can be created: {seen.refusal}", warning=True)
    for pod in seen.current:
        if pod.trouble and not pod.ready:
            return Step.underway("ServerFailing", f"{ready}. {pod.name} does not start: {pod.trouble}", warning=True)
    return PASS


def await_servers(resource: Memcached, seen: Observed, _now: datetime) -> Step:
    """Every server is there, current and ready, and none is left over."""
    size, present, ready = resource.spec.size, len(seen.current), len(seen.servers)
    # Others' edits raise the Deployment's generation too (an annotation does): what ran before still runs.
    taken_up = seen.rolled_out or (resource.phase == RUNNING and not resource.changed)
    if taken_up and present == ready == size and not seen.outdated:
        return PASS
    reason = _movement(resource, seen)
    if present > size and not seen.outdated:
        message = f"{present} servers run; {size} are wanted."
    elif seen.outdated > 0:
        message = f"{ready} of {size} servers are ready; {seen.outdated} still run as before the change."
    elif present == ready == size:
        message = f"{ready} of {size} servers are ready; Kubernetes has not yet taken up the change."
    else:
        message = f"{ready} of {size} servers are ready."
    return Step.underway(reason, message, warning=reason == DEGRADED)


def _movement(resource: Memcached, seen: Observed) -> str:
    """What a resource whose servers are not as wanted is doing.

    A movement keeps its name until it is over; servers missing without one are a loss.
    """
    before = resource.phase
    if before in ("", CREATING):
        return CREATING
    if seen.outdated > 0 or before == UPDATING:
        return UPDATING
    if before == SCALING:
        return SCALING
    if before == FAILED:  # a person mended what held it up
        return UPDATING if seen.servers else CREATING
    if resource.changed:
        return UPDATING if len(seen.current) == resource.spec.size else SCALING
    return DEGRADED


_PHASES = {Progress.DONE: RUNNING, Progress.HELD: PAUSED, Progress.STALLED: FAILED}


def _phase(resource: Memcached, seen: Observed, verdict: Verdict) -> str:
    return _PHASES.get(verdict.progress) or _movement(resource, seen)


def _ready_message(resource: Memcached, seen: Observed) -> str:
    if resource.spec.size == 0:
        return "No server is wanted, and none runs."
    return f"{len(seen.servers)} of {resource.spec.size} servers are ready."


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
