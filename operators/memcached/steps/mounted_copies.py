"""Steps that keep the copies of Secrets of others, which the servers mount instead of the originals. Pure.

A server loads the mounted files when it starts, and, from 1.6.40 on, its certificate also whenever it reloads its users
file (SIGHUP). So only a copy keeps from it a users file from which it would lock users out, and a certificate that has
ended, or is not valid yet, while the former one is valid.
"""

from __future__ import annotations

from collections.abc import Mapping

from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects import names
from operators.memcached.objects.pod import COMPONENT, USERS_KEY, mounts_of
from operators.memcached.reasons import SECRET_COPY_OUTDATED, SECRETS_NOT_COPIED
from operators.memcached.security.secrets import SOURCE, sources, usable_users
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import SECRET
from shared.kubernetes.secrets import CERTIFICATE_KEYS, SECRETS_RETRY_SECONDS, content_of, encoded, has_content
from shared.pki.copies import CopiedCertificate
from shared.runtime.plan import PASS, Step, WriteSecret
from shared.status.phases import UPDATING
from shared.steps.certificates import report_withheld_certificates


def copy_secrets(seen: Assessment) -> Step:
    """Copy originals that the spec names newly, as far as servers may load them; `renew_copies` copies the others."""
    if not seen.settings.write_secrets:
        return PASS
    if _renewals(seen):  # two writes would conflict, and servers wait for the first
        return Step.wait(UPDATING, "Copying Secrets that have changed.")
    return Step.do(*outdated_copies(seen))


def renew_copies(seen: Assessment) -> Step:
    """Copy changed originals, although the spec cannot be applied: those of which the copies were made.

    If the operator may no longer write, report the copies instead until servers that mount the originals replace all.
    """
    due = _renewals(seen)
    if seen.settings.write_secrets:
        return Step.do(*due)
    made = {each.obj["metadata"]["name"]: annotation(each.obj, SOURCE) for each in due}
    outdated, workload = made.keys() & seen.mounted, seen.workload.obj
    if not outdated:
        return PASS
    such = ", such as removed users" if names.copy_names(seen.resource).users in outdated else ""
    former = f"the former content of Secret {', '.join(sorted({made[name] for name in outdated}))}{such}"
    if workload is not None and outdated.isdisjoint(mounts_of(workload["spec"]["template"])):
        return Step.wait(SECRET_COPY_OUTDATED, f"Replacing the servers that still use {former}.", warning=True)
    return Step.blocked(
        SECRET_COPY_OUTDATED,
        f"Servers still use {former}: the operator may not write their copy. Set the chart value rbac.writeSecrets, or "
        "let the spec be applied, which replaces them.",
        requeue=SECRETS_RETRY_SECONDS,
    )


def _renewals(seen: Assessment) -> list[WriteSecret]:
    """Return the writes of the mounted copies that differ from the originals of which they were made."""
    due = _outdated(seen, sources(seen.resource, seen.secrets.found).users, seen.secrets.applied)
    return [each for each in due if each.obj["metadata"]["name"] in seen.mounted]


def outdated_copies(seen: Assessment) -> list[WriteSecret]:
    """Return the writes of the copies that differ from originals of the spec that servers may load."""
    given, copied = names.originals(seen.resource).users, names.copies(seen.resource).users
    return _outdated(seen, given if given != copied else "", seen.secrets.copied)


def _outdated(seen: Assessment, users: str, copied: CopiedCertificate | None) -> list[WriteSecret]:
    """Return the writes of the copies that differ from originals that servers may load.

    Args:
        users: name of the Secret with the original users; empty without one.
        copied: certificate with its copy; None without one.
    """
    own, found = names.owner(seen.resource, seen.settings.operator), seen.secrets.found
    originals = dict[str, tuple[str, Mapping[str, str]]]()
    if text := usable_users(users, found):
        originals[names.copy_names(seen.resource).users] = users, {USERS_KEY: text}
    if copied is not None and copied.original is not None and not copied.withheld(seen.now):
        stored = content_of(found.get(copied.source))
        originals[copied.name] = copied.source, {key: stored.get(key, "") for key in CERTIFICATE_KEYS}
    due = list[WriteSecret]()
    for copy, (source, content) in originals.items():
        before = found.get(copy)
        if not has_content(before, content) or annotation(before, SOURCE) != source:
            made = own.object(SECRET, copy, component=COMPONENT, data=encoded(content)) | {"type": "Opaque"}
            made["metadata"]["annotations"] = {SOURCE: source}
            due.append(WriteSecret(made, before))
    return due


def next_mounts(seen: Assessment) -> names.Mounts:
    """Return the Secrets that new servers mount; without the right to write copies, originals that are not withheld."""
    given, copies, copied = names.originals(seen.resource), names.copies(seen.resource), seen.secrets.copied
    if seen.settings.write_secrets:
        return copies
    return given._replace(certificate=copied.name) if copied is not None and copied.withheld(seen.now) else given


def report_withheld_certificate(seen: Assessment) -> Step:
    """Report a certificate that is not copied: the servers keep the former one."""
    copied = seen.secrets.copied
    return report_withheld_certificates((copied,) if copied is not None else (), seen.now)


def report_mounted_originals(seen: Assessment) -> Step:
    """Report servers that mount the Secrets of others, with the content that they have when a server starts."""
    copied = {*names.originals(seen.resource)} - {*names.copies(seen.resource)}
    mounted = {pod["metadata"]["name"]: copied.intersection(mounts_of(pod)) for pod in seen.workload.pod_objs}
    exposed = [each for each in mounted.values() if each]
    if not exposed:
        return PASS
    advice = (
        "An annotation in spec.annotations replaces the servers."
        if seen.settings.write_secrets
        else "The operator may not write a copy: set the chart value rbac.writeSecrets."
    )
    return Step.note(
        SECRETS_NOT_COPIED,
        f"{len(exposed)} of {len(mounted)} servers mount Secret {', '.join(sorted(set().union(*exposed)))} itself: one "
        f"that starts loads invalid content, too. {advice}",
    )
