"""Step that makes running servers load a renewed certificate or a new CA, so that they keep their items. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.names import server_hosts, server_secret
from operators.memcached.reasons import REFRESHING_CERTIFICATES
from operators.memcached.security.certificates import REFRESH_INTERVAL_SECONDS, RefreshCertificates, ServedCertificate
from shared.kubernetes.pods import Pod
from shared.runtime.plan import PASS, Step
from shared.status.health import listed


def refresh_certificates(seen: Assessment) -> Step:
    """Send refresh_certs to servers that do not serve the certificate in the Secret, or do not trust its next CA.

    Nothing that is wrong with the spec stops it: a certificate that is renewed and not loaded expires. Only a
    certificate that clients do not accept is never loaded; servers then keep the former one.
    """
    served = seen.secrets.served
    if served is not None and not served.validity.includes(seen.now):
        return PASS
    mounting = seen.workload.mounting(seen.secrets.mounts or server_secret(seen.resource))

    def refreshable(servers: Sequence[Pod]) -> tuple[Pod, ...]:
        return tuple(pod for pod in servers if pod.name in mounting)  # others would not load it

    if stale := refreshable(seen.servers_with_old_certificate):
        return _refresh(seen, stale, "serve the certificate in the Secret")
    since = seen.successor_loads_from
    if since is None:
        return PASS
    if seen.now < since:  # the kubelet may not have updated the files
        return Step(requeue=max((since - seen.now).total_seconds(), 1.0))
    if unaware := refreshable(seen.servers_without_successor):
        return _refresh(seen, unaware, "trust the next certificate authority")
    return PASS


def _refresh(seen: Assessment, stale: Sequence[Pod], done: str) -> Step:
    """Refresh servers that were not refreshed within the interval.

    Args:
        stale: servers to refresh.
        done: state of the others, such as "serve the certificate in the Secret".
    """
    resource = seen.resource
    ready = len(seen.workload.ready)
    unknown = ServedCertificate(error="it was not inspected yet")
    reports = [(pod, seen.served_certificates.get(pod.name, unknown)) for pod in stale]
    due = tuple(
        (pod.name, pod.address)
        for pod, report in reports
        if not report.error and report.age >= REFRESH_INTERVAL_SECONDS
    )
    unreachable = [(pod.name, report.error.rstrip(".")) for pod, report in reports if report.error]
    unable = tuple(pod.name for pod, report in reports if pod.name not in seen.workload.queryable and not report.error)
    progress = f"{ready - len(stale)} of {ready} servers {done}"
    message = f"{progress}. The kubelet updates the files within two minutes; then the servers reload them."
    if unable:
        message = (
            f"{progress}. {listed(unable)}: a server that responds to no ASCII command (spec.extraArgs) cannot reload "
            "its certificate. Delete the pod before that ends: a new server loads the next one, and starts empty."
        )
    if unreachable:
        name, error = unreachable[0]
        message = f"{progress}. {name} cannot be inspected: {error}."
    call = RefreshCertificates(due, seen.workload.ports, seen.secrets, resource.certificate, server_hosts(resource))
    calls, is_warning = (call,) if due else (), bool(unreachable or unable)
    requeue = REFRESH_INTERVAL_SECONDS if len(unable) < len(stale) else None
    return Step.progressing(REFRESHING_CERTIFICATES, message, *calls, warning=is_warning, requeue=requeue)
