"""Step that keeps the key by which the operator recognizes what sidecars attest. Pure.

Only the operator and the sidecars of the resource know it. With a digest of the users file that anyone can compute, any
client that reaches a sidecar could guess passwords.
"""

from __future__ import annotations

from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.names import attestation_secret, owner
from operators.memcached.objects.pod import ATTESTATION_KEY, COMPONENT
from shared.kubernetes.kinds import SECRET
from shared.runtime.plan import PASS, Step, WriteSecret


def keep_attestation_key(seen: Assessment) -> Step:
    """Create the Secret with the key, before the servers that mount it."""
    resource = seen.resource
    secrets, name = seen.secrets, attestation_secret(resource)
    if resource.spec.auth is None or not seen.settings.write_secrets or secrets.attestation_key:
        return PASS
    made = owner(resource, seen.settings.operator).object(SECRET, name, component=COMPONENT, data={}) | {
        "type": "Opaque"
    }
    return Step.do(WriteSecret(made, secrets.found.get(name), token=ATTESTATION_KEY))
