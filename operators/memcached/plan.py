"""What to do next about a Memcached, and what to say of it. Pure."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from operators.memcached.api.resource import Memcached, validate
from operators.memcached.objects import pod as template
from operators.memcached.objects import resources
from operators.memcached.observe import Observed
from operators.memcached.security.certificates import REFRESH_INTERVAL_SECONDS, RefreshCertificates
from shared.api.image import Image
from shared.kubernetes.kinds import AUTOSCALER, SERVICE, STATEFUL_SET, Obj
from shared.kubernetes.ownership import Owner, selector_text
from shared.runtime.plan import PASS, Apply, Delete, Plan, Step, StepOf, follow, refuse
from shared.status.deadlines import Deadline
from shared.status.verdict import Progress, Verdict
from shared.steps import provisioning

CREATING, SCALING, UPDATING, DEGRADED = "Creating", "Scaling", "Updating", "Degraded"
RUNNING, PAUSED, FAILED = "Running", "Paused", "Failed"

REFRESHING = "RefreshingCertificates"
"""Reason while servers that run as the spec says do not all show the Secret's certificate yet."""


@dataclasses.dataclass(frozen=True, slots=True)
class Planner:
    """Plans with what the operator's options give.

    Attributes:
        operator: the operator's name, which its objects bear.
        image_repository: where images come from if a resource gives only a version.
        agent_image: the operator's own image, which serves as metrics sidecar, too; empty if none is known.
        create_timeout: seconds that servers may take to become ready before that is told as a failure.
        upgrade_timeout: the same for a change that replaces them.
    """

    operator: str
    image_repository: str
    agent_image: str = ""
    create_timeout: float = 600.0
    upgrade_timeout: float = 1800.0

    def plan(self, resource: Memcached, seen: Observed, now: datetime) -> Plan:
        """The chain's answer, with the status that tells it."""
        actions, verdict, requeue = follow(self._steps(), resource, seen, now)
        phase = _phase(resource, seen, verdict)
        if verdict.done:
            verdict = dataclasses.replace(verdict, message=_ready_message(resource, seen))
        elif verdict.progress is Progress.PAUSED or verdict.reason == REFRESHING:
            verdict = dataclasses.replace(verdict, ready=len(seen.crew.ready) == resource.spec.size)
        if deadline := self._deadline(phase):
            verdict, left = deadline.judge(resource.obj, verdict, now)
            requeue = min((seconds for seconds in (requeue, left) if seconds is not None), default=None)
        return Plan(actions, verdict, self._status(resource, seen, phase), requeue)

    def _steps(self) -> tuple[StepOf[Memcached, Observed], ...]:
        return (
            hold_while_paused,  # a person works on it: report, touch nothing
            refuse_contradictions,  # the same rules as at admission, for what came past it
            self.require_exporter,  # metrics need an image
            require_secrets,  # what servers cannot start without; those that run stay as they are
            self.keep_service,  # a name before the servers that bear it
            self.keep_servers,  # the Deployment or StatefulSet as the spec says
            self.keep_disruption_budget,  # how many servers a drain may take at once
            self.keep_autoscaler,  # whoever chooses the size, where the spec lets it
            name_what_hinders,  # a server that cannot start, with Kubernetes' own words
            await_servers,  # all there, all current, all ready
            retire_former_workload,  # after a change of workload: the old one goes when the new one serves
            renew_certificates,  # every server shows the Secret's certificate, without losing its items
        )

    def require_exporter(self, resource: Memcached, _seen: Observed, _now: datetime) -> Step:
        """There is an image for the metrics sidecars, if any are wanted."""
        if resource.spec.metrics_port is None or self.agent_image:
            return PASS
        return Step.blocked(
            "NoExporterImage",
            "spec.metrics: the operator does not know its own image, which serves them: start it with "
            "--agent-image, as its chart does, or set metrics.enabled to false. Nothing was changed.",
        )

    def keep_service(self, resource: Memcached, _seen: Observed, _now: datetime) -> Step:
        """The headless Service exists as it must be."""
        return Step.do(Apply(SERVICE, resources.service(resource, self._owner(resource))))

    def keep_servers(self, resource: Memcached, seen: Observed, _now: datetime) -> Step:
        """The workload exists as the spec says."""
        own = self._owner(resource)
        pod = template.pod(resource, own, self._image(resource), self.agent_image, seen.secrets.digest)
        return Step.do(Apply(seen.crew.kind, resources.workload(resource, own, pod)))

    def keep_disruption_budget(self, resource: Memcached, seen: Observed, _now: datetime) -> Step:
        """The PodDisruptionBudget exists as the spec says, or is gone."""
        wanted = resources.disruption_budget(resource, self._owner(resource))
        return provisioning.keep_disruption_budget(wanted, seen.disruption_budget)

    def keep_autoscaler(self, resource: Memcached, seen: Observed, _now: datetime) -> Step:
        """The HorizontalPodAutoscaler exists as the spec says, or is gone."""
        return provisioning.keep(AUTOSCALER, resources.autoscaler(resource, self._owner(resource)), seen.autoscaler)

    def _owner(self, resource: Memcached) -> Owner:
        return resources.owner(resource, self.operator)

    def _image(self, resource: Memcached) -> str:
        return resource.spec.image_reference(self.image_repository)

    def _deadline(self, phase: str) -> Deadline | None:
        return {
            CREATING: Deadline("CreateTimeout", self.create_timeout, "--create-timeout"),
            UPDATING: Deadline("UpgradeTimeout", self.upgrade_timeout, "--upgrade-timeout"),
        }.get(phase)

    def _status(self, resource: Memcached, seen: Observed, phase: str) -> Obj:
        crew, image = seen.serving(resource.spec.size), self._image(resource)
        found: Obj = {
            "phase": phase,
            "replicas": len(crew.current),
            "readyReplicas": len(crew.ready),
            "selector": selector_text(self._owner(resource).selector(template.COMPONENT)),
            "image": image,
            "version": _version(image),
            "nodes": [pod.name for pod in crew.current],
            "servers": _servers(resource, seen),
        }
        certificate = _certificate(resource, seen)
        return found | ({"certificate": certificate} if certificate else {})


def hold_while_paused(resource: Memcached, _seen: Observed, _now: datetime) -> Step:
    """While spec.paused holds, nothing is changed."""
    if not resource.spec.paused:
        return PASS
    return Step.paused(PAUSED, "spec.paused is true: nothing is changed until it is false again.")


def refuse_contradictions(resource: Memcached, _seen: Observed, _now: datetime) -> Step:
    """A spec that contradicts itself changes nothing; what runs goes on."""
    return refuse(validate(resource))


def require_secrets(_resource: Memcached, seen: Observed, _now: datetime) -> Step:
    """What servers cannot start without is there; servers that run are left as they are."""
    problem = seen.secrets.problem
    return provisioning.lacking(problem) if problem is not None else PASS


def name_what_hinders(resource: Memcached, seen: Observed, _now: datetime) -> Step:
    """What keeps servers from starting is said in the words of whoever keeps them."""
    ready = _count(resource, seen)
    if seen.crew.refusal:
        message = f"{ready}. No further pod can be created: {seen.crew.refusal}"
        return Step.progressing("PodsRefused", message, warning=True)
    for pod in seen.crew.current:
        if pod.trouble and not pod.ready:
            return Step.progressing("ServerFailing", f"{ready}. {pod.name} does not start: {pod.trouble}", warning=True)
    return PASS


def await_servers(resource: Memcached, seen: Observed, _now: datetime) -> Step:
    """Every server is there, current and ready, and none is left over."""
    if _settled(resource, seen):
        return PASS
    size, crew = resource.spec.size, seen.crew
    present, ready = len(crew.current), len(crew.ready)
    reason = _movement(resource, seen)
    if seen.former is not None:
        reason = "SwitchingWorkload"
        message = f"{_count(resource, seen)} in the {crew.kind}; until all are, those of the {seen.former.kind} serve."
    elif present > size and not crew.outdated:
        message = f"{present} servers run; {size} are wanted."
    elif crew.outdated > 0:
        message = f"{_count(resource, seen)}; {crew.outdated} still run as before the change."
    elif present == ready == size:
        message = f"{_count(resource, seen)}; Kubernetes has not yet taken up the change."
    else:
        message = f"{_count(resource, seen)}."
    return Step.progressing(reason, message, warning=reason == DEGRADED)


def retire_former_workload(resource: Memcached, seen: Observed, _now: datetime) -> Step:
    """Of two workloads, the one that the spec no longer asks for goes, as soon as it is not needed."""
    former = seen.former
    if former is None or former.workload is None or not _settled(resource, seen):
        return PASS
    message = f"{_count(resource, seen)} in the {seen.crew.kind}; the {former.kind} goes."
    return Step.wait("SwitchingWorkload", message, Delete(former.kind, former.workload))


def renew_certificates(resource: Memcached, seen: Observed, _now: datetime) -> Step:
    """Servers that show another certificate than the Secret's are told to read theirs anew."""
    stale = [pod for pod in seen.crew.ready if seen.shows_another(pod.name)]
    if not stale:
        return PASS
    answers = [(pod, seen.served[pod.name]) for pod in stale]
    told = [pod for pod, answer in answers if not answer.error and answer.age >= REFRESH_INTERVAL_SECONDS]
    silent = [f"{pod.name} cannot be asked: {answer.error}." for pod, answer in answers if answer.error]
    message = f"{len(seen.crew.ready) - len(stale)} of {len(seen.crew.ready)} servers show the Secret's certificate"
    message = f"{message}. {silent[0]}" if silent else f"{message}; the kubelet brings it within two minutes."
    call = RefreshCertificates(
        tuple((pod.name, pod.address) for pod in told), resource.spec.container_port, seen.secrets
    )
    actions = (call,) if told else ()
    return Step(
        actions, Progress.PROGRESSING, REFRESHING, message, warning=bool(silent), requeue=REFRESH_INTERVAL_SECONDS
    )


def _settled(resource: Memcached, seen: Observed) -> bool:
    """Whether the servers are what the spec asks for."""
    # Others' edits raise the workload's generation too (an annotation does): what ran before still runs.
    taken_up = seen.crew.rolled_out or (resource.phase == RUNNING and not resource.changed)
    return taken_up and seen.complete(resource.spec.size)


def _count(resource: Memcached, seen: Observed) -> str:
    return f"{len(seen.crew.ready)} of {resource.spec.size} servers are ready"


def _movement(resource: Memcached, seen: Observed) -> str:
    """What a resource whose servers are not as wanted is doing.

    A movement keeps its name until it is over; servers missing without one are a loss.
    """
    before = resource.phase
    if before in ("", CREATING):
        return CREATING
    if seen.former is not None or seen.crew.outdated > 0 or before == UPDATING:
        return UPDATING
    if before == SCALING:
        return SCALING
    if before == FAILED:  # a person mended what held it up
        return UPDATING if seen.crew.ready else CREATING
    if resource.changed:
        return UPDATING if len(seen.crew.current) == resource.spec.size else SCALING
    return DEGRADED


_PHASES = {Progress.DONE: RUNNING, Progress.PAUSED: PAUSED, Progress.BLOCKED: FAILED}


def _phase(resource: Memcached, seen: Observed, verdict: Verdict) -> str:
    if verdict.reason == REFRESHING:
        return RUNNING
    return _PHASES.get(verdict.progress) or _movement(resource, seen)


def _ready_message(resource: Memcached, seen: Observed) -> str:
    return "No server is wanted, and none runs." if resource.spec.size == 0 else f"{_count(resource, seen)}."


def _version(image: str) -> str:
    try:
        return Image.parse(image).version
    except ValueError:  # the spec is refused for it
        return ""


def _servers(resource: Memcached, seen: Observed) -> list[str]:
    """Where clients find the servers.

    With a StatefulSet, one that was ready before keeps its place though it is not now: the ring of keys that clients
    make of the list must not shift while a server is replaced.
    """
    crew = seen.serving(resource.spec.size)
    if crew.kind != STATEFUL_SET:
        return sorted(f"{_host(pod.address)}:{resource.spec.container_port}" for pod in crew.ready)
    ready, listed = {pod.name for pod in crew.ready}, set(resource.listed)
    names = {
        resources.server_name(resource, n): resources.server_address(resource, n) for n in range(resource.spec.size)
    }
    return [address for name, address in names.items() if name in ready or address in listed]


def _certificate(resource: Memcached, seen: Observed) -> str:
    """The fingerprint of what every server shows; what it was before until that is so again; empty without TLS."""
    if resource.spec.tls is None:
        return ""
    shown = [pod for pod in seen.crew.ready if not seen.shows_another(pod.name)]
    whole = seen.complete(resource.spec.size) and len(shown) == len(seen.crew.ready)
    return seen.secrets.fingerprint if whole and seen.secrets.pair else resource.certificate


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
