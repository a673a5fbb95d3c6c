"""Steps that keep the certificates that the operator issues or requests from cert-manager. Pure."""

from __future__ import annotations

from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.names import owner
from operators.memcached.objects.pod import COMPONENT
from operators.memcached.security.certificate_requests import TRUST_CHANGED, leaves
from shared.runtime.plan import PASS, Step
from shared.steps.certificates import Issuing, keep_certificates


def create_certificates(seen: Assessment) -> Step:
    """Create the Secrets that servers mount, before the first servers; afterwards `renew_certificates` keeps them."""
    return PASS if seen.resource.certificate else _keep(seen)


def renew_certificates(seen: Assessment) -> Step:
    """Keep the certificates of running servers: they expire although another part of the spec cannot be applied.

    cert-manager renews by itself, so that a paused resource needs no change of its requests.
    """
    resource = seen.resource
    is_ordered = resource.spec.tls_mode == "certManager"
    if not resource.certificate or (is_ordered and resource.spec.paused):
        return PASS
    return _keep(seen)


def _keep(seen: Assessment) -> Step:
    resource = seen.resource
    tls = resource.spec.tls
    if tls is None:
        return PASS
    own, found, rotation = owner(resource, seen.settings.operator), seen.secrets.found, seen.settings.rotation
    issuing = Issuing(own, COMPONENT, leaves(resource), found, seen.informed, seen.now, rotation, TRUST_CHANGED)
    return keep_certificates(issuing, tls.mode, tls.issuer, is_permitted=seen.settings.write_secrets)
