"""Step that keeps the copy of a certificate of other issuers, which the servers mount instead of the original. Pure.

A server loads the mounted files when it starts, and, from 1.6.40 on, whenever it reloads its users file (SIGHUP). So
only a copy keeps a certificate from it that has ended, or is not valid yet, while the former one is valid.
"""

from __future__ import annotations

from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.names import mounted_secret, owner, server_secret
from operators.memcached.objects.pod import COMPONENT
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import SECRET
from shared.kubernetes.ownership import ForeignObject, require_owned
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, content_of, encoded
from shared.runtime.plan import PASS, Step, WriteSecret
from shared.status.reasons import FOREIGN_OBJECT
from shared.steps.certificates import report_withheld_certificates

SOURCE = "cache.example.com/copied-from"
"""Annotation of the copy: name of the Secret with the original."""


def copy_certificate(seen: Assessment) -> Step:
    """Copy the certificate, unless it is outside its validity and the present copy is not."""
    copied, found = seen.secrets.copied, seen.secrets.found
    if copied is None or copied.original is None or not seen.settings.write_secrets or copied.withheld(seen.now):
        return PASS
    stored = content_of(found.get(copied.source))
    keys = (CERTIFICATE_KEY, PRIVATE_KEY, AUTHORITY_KEY)
    content = {key: stored[key] for key in keys if key in stored}
    before = found.get(copied.name)
    if content_of(before) == content and annotation(before, SOURCE) == copied.source:
        return PASS
    own = owner(seen.resource, seen.settings.operator)
    made = own.object(SECRET, copied.name, component=COMPONENT, data=encoded(content)) | {"type": "Opaque"}
    made["metadata"]["annotations"] = {SOURCE: copied.source}
    try:
        if before is not None:
            require_owned(made, before, own.uid)
    except ForeignObject as error:
        return Step.blocked(FOREIGN_OBJECT, str(error))
    return Step.do(WriteSecret(made, before))


def renew_copy(seen: Assessment) -> Step:
    """Copy a renewed certificate, although another part of the spec cannot be applied; not that of another Secret."""
    found = seen.secrets.found.get(mounted_secret(seen.resource))
    if annotation(found, SOURCE) != server_secret(seen.resource):
        return PASS
    return copy_certificate(seen)


def report_withheld_certificate(seen: Assessment) -> Step:
    """Report a certificate that is not copied: the servers keep the former one."""
    copied = seen.secrets.copied
    return report_withheld_certificates((copied,) if copied is not None else (), seen.now)
