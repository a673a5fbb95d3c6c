"""Steps that keep the certificates that the operator issues or requests from cert-manager. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import Memcached
from operators.memcached.api.spec import Tls
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.names import owner
from operators.memcached.objects.pod import COMPONENT
from operators.memcached.security.certificate_requests import TRUST_CHANGED, leaves
from shared.pki.secret_names import authority_secret, server_secret
from shared.pki.stores import authorities_of, issued_in
from shared.runtime.plan import PASS, Step
from shared.steps.certificates import Issuing, keep_certificates


def create_certificates(seen: Assessment) -> Step:
    """Create the Secrets that servers mount, before the first servers; afterwards `renew_certificates` keeps them."""
    return PASS if seen.resource.certificate else _keep(seen, seen.resource)


def renew_certificates(seen: Assessment) -> Step:
    """Keep the certificates of running servers: they expire although a part of the spec, also its TLS, is not applied.

    cert-manager renews by itself what it issued, also in a Secret of the operator; while paused, nothing is requested.
    """
    resource, mode, found = seen.resource, seen.resource.spec.tls_mode, seen.secrets.found
    if mode in ("none", "secret") or (mode == "certManager" and resource.spec.paused):
        name, trusted = server_secret(resource.name), authorities_of(found.get(authority_secret(resource.name))).trusted
        issuers = {issued.certificate.issuer} if (issued := issued_in(found.get(name))) else set()
        if name not in seen.workload.mounted or not trusted or not issuers <= {each.subject for each in trusted}:
            return PASS
        resource = resource.changed_to({"tls": Tls(mode="self")})
    return _keep(seen, resource) if resource.certificate else PASS


def _keep(seen: Assessment, resource: Memcached) -> Step:
    tls = resource.spec.tls
    if tls is None:
        return PASS
    own, found, rotation = owner(resource, seen.settings.operator), seen.secrets.found, seen.settings.rotation
    issuing = Issuing(own, COMPONENT, leaves(resource), found, seen.informed, seen.now, rotation, TRUST_CHANGED)
    return keep_certificates(issuing, tls.mode, tls.issuer, is_permitted=seen.settings.write_secrets)
