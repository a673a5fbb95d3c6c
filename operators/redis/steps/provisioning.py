"""Steps that apply the objects around the nodes: StatefulSet and Secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from operators.redis.facts.assessment import Assessment
from operators.redis.facts.bus_port import bus_port
from operators.redis.objects import names, pod, stateful_set
from operators.redis.objects.names import (
    APPLIED_PERSISTENCE,
    CERTIFICATE_MARK,
    CLUSTER_UID,
    COMPONENT,
    CONFIG_MARK,
    CONTAINER,
    EXPORTER_PASSWORD_KEY,
    FILES,
    REPLICATION_PASSWORD_KEY,
)
from operators.redis.objects.redis_conf import USERS_KEY
from operators.redis.reasons import FOREIGN_DATA, PREPARING_USERS
from operators.redis.security import certificates
from operators.redis.security.users import GENERATED, NEXT, REQUEST, USER, Passwords
from operators.redis.state.observed import Observed
from operators.redis.state.volume_record import origin
from operators.redis.steps.configuration import as_started, config_marks
from operators.redis.steps.fresh_identity import files_number, is_switching_off
from operators.redis.steps.rolling_update import permitted
from operators.redis.steps.rollout_markers import applied_everywhere, made_with
from operators.redis.steps.scale_down import replicas
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, SECRET, STATEFUL_SET, Obj
from shared.kubernetes.managed_fields import shared_keys
from shared.kubernetes.ownership import ForeignObject, Owner, require_owned
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS, content_of, encoded
from shared.pki.copies import CopiedCertificate, following
from shared.pki.stores import fingerprint
from shared.runtime.plan import PASS, Apply, Patch, Step, WriteSecret
from shared.status.reasons import FOREIGN_OBJECT, REPLACING_CERTIFICATES
from shared.status.verdict import Progress
from shared.steps import certificates as steps
from shared.steps import claims, connection, hibernation, provisioning
from shared.steps.certificates import Issuing, keep_certificates
from shared.steps.deferred import Deferred, keep_deferred
from shared.steps.passwords import ROTATE, GeneratedPassword
from shared.steps.resize import can_resize, resizable


def refuse_foreign_data(seen: Assessment) -> Step:
    """Block while a StatefulSet or claim of this name has another owner: it is not used before a user hands it over.

    The labels of the cluster's own claims are restored.
    """
    made, own = seen.stateful_set, names.owner(seen.resource, seen.settings.operator)
    volumes = [instance.volume for instance in seen.instances if instance.volume]
    if message := claims.refusal([*volumes, *([made] if made else [])], own, CLUSTER_UID, may_adopt=made is None):
        return Step.blocked(FOREIGN_DATA, message, requeue=claims.RETRY_SECONDS)
    return claims.keep_labels(volumes, own, COMPONENT, CLUSTER_UID)


RESOURCES = Deferred(CONTAINER, "resources")


def ensure_stateful_set(seen: Assessment) -> Step:
    """Apply the StatefulSet, with a replica for each node of the spec and each node that must not be removed yet.

    While a version is refused, the template keeps the image that nodes run, so that repairs continue.
    """
    own, running = names.owner(seen.resource, seen.settings.operator), permitted(seen)
    runs = running.resource
    image = runs.image_reference(seen.settings.image_repository)
    digest, mark, persistence = config_marks(running)
    uid = origin(seen.resource, seen)
    marks, text = made_with(seen.secrets) | {CONFIG_MARK: mark}, running.template_text
    starting = as_started(running)
    if is_switching_off(seen):  # also if the spec has persistence again
        starting = starting.changed_to({"config": starting.spec.config | {"appendonly": "no", "save": ""}})
    number, following = (files_number(seen, afresh=each) for each in (pod.starts_afresh(starting, text), False))
    files, numbered = (f"{uid}.{number}", {FILES: str(number)}) if number else (uid, {})
    template = pod.pod(starting, own, image, marks | numbered, digest, text, files, bus_port(seen))
    count = 0 if hibernation.stops(seen) else replicas(seen)
    made = stateful_set.stateful_set(runs, own, template, count, seen.stateful_set, uid)
    made["metadata"]["annotations"] |= {APPLIED_PERSISTENCE: persistence} | hibernation.note(seen)
    given = pod.from_spec(runs)
    # maxmemory follows the memory limit: with another one, nodes are replaced.
    pods = resizable(seen.instances, seen.stateful_set, pod.TEMPLATE)
    resizes = can_resize(made, seen.stateful_set, pods, CONTAINER, seen.settings.operator, seen.now, frozenset({"cpu"}))
    parts = (*pod.DEFERRED, RESOURCES) if resizes else pod.DEFERRED
    made = keep_deferred(made, seen.stateful_set, parts, seen.settings.operator, pod.DIGEST, from_spec=given)
    change: Obj = {"metadata": {"annotations": {FILES: str(following)}}}
    volumes = [each.volume for each in seen.instances if annotation(each.volume, FILES) != str(following)]
    records = (Patch(PERSISTENT_VOLUME_CLAIM, volume, change) for volume in volumes if volume and following)
    return Step.do(Apply(STATEFUL_SET, made, unchanged=True, seen=seen.stateful_set), *records)  # stale: pods end


# Secrets.


def provide_password(seen: Assessment) -> Step:
    """Keep the Secret with the generated password, if spec.auth names none; `rotate_password` applies it to nodes."""
    resource = seen.resource
    auth, secrets = resource.spec.auth, seen.secrets
    if auth is None or auth.secret_name:
        return PASS
    own = names.owner(resource, seen.settings.operator)
    valid = (secrets.passwords.next or secrets.passwords.current) if secrets.passwords else ""
    generated = GeneratedPassword(
        own=own,
        component=COMPONENT,
        at="spec.auth.secretName",
        user=USER,
        found=secrets.found.get(names.password_secret(resource)),
        request=annotation(resource.obj, ROTATE),
        recovered=valid or connection.known_credentials(own, COMPONENT, seen.connection)[1],
        may_rotate=secrets.passwords is not None and secrets.desired in secrets.passwords.good,
    )
    return generated.step(seen.now, is_permitted=seen.settings.write_secrets)


def ensure_secrets(seen: Assessment) -> Step:
    """Create the Secrets that nodes mount before the pods, and renew certificates before they expire."""
    own = names.owner(seen.resource, seen.settings.operator)
    try:
        if write := _first_users(seen, own):
            return Step.wait(PREPARING_USERS, "Creating the Secret with the users of the nodes.", write)
        issued = _issue(seen, own)
        if issued.progress is not Progress.DONE:
            return issued
        why, write = _mount(seen, own)
    except ForeignObject as error:
        return Step.blocked(FOREIGN_OBJECT, str(error))
    if write is not None:
        return Step.wait(
            REPLACING_CERTIFICATES, f"Updating the certificates that servers mount: {why}.", *issued.actions, write
        )
    return issued


def users_secret(seen: Assessment, own: Owner, passwords: Passwords) -> WriteSecret:
    """Return the write of the operator's Secret with the users; it voids keys that another client may own, too."""
    found = seen.secrets.found.get(name := names.users_secret(seen.resource))
    unused = (NEXT, *(key for key in content_of(found) if key.startswith((GENERATED, REQUEST))))
    voided = {key: passwords.current if key == NEXT else "" for key in shared_keys(found, unused, own=own.operator)}
    return _write(own, name, seen, voided | {**passwords.content()})


def _first_users(seen: Assessment, own: Owner) -> WriteSecret | None:
    """Return the write that completes the users' Secret; None if it is complete (`rotate_password` changes it).

    Replicas of new pods use their user from the start. Servers of present ones may not have it.
    """
    secrets, name = seen.secrets, names.users_secret(seen.resource)
    content, passwords = content_of(secrets.found.get(name)), secrets.passwords
    for key in (EXPORTER_PASSWORD_KEY, REPLICATION_PASSWORD_KEY):
        if not content.get(key):
            return _write(own, name, seen, content, token=key)
    if passwords is None and secrets.desired is not None:
        is_new = all(instance.pod_obj is None for instance in seen.instances)
        exporter, replication = content[EXPORTER_PASSWORD_KEY], content[REPLICATION_PASSWORD_KEY]
        passwords = Passwords(secrets.desired, exporter=exporter, replication=replication, uses_replication=is_new)
    if passwords is None:
        return None
    return users_secret(seen, own, passwords) if passwords.text != content.get(USERS_KEY) else _generated(seen, own)


def _generated(seen: Assessment, own: Owner) -> WriteSecret | None:
    """Return the write of the next password to generate for a user of the spec; None if there is none."""
    name, request = names.users_secret(seen.resource), annotation(seen.resource.obj, ROTATE)
    content, users = content_of(seen.secrets.found.get(name)), seen.secrets.applied_users
    for user in seen.resource.spec.users if seen.settings.write_secrets else ():
        key, requested = f"{GENERATED}{user.name}", f"{REQUEST}{user.name}"
        present, known = content.get(key, ""), users.get(user.name)
        is_idle = known is not None and (known.current, known.next) == (present, None)
        if user.password_secret or (present and (not is_idle or request in ("", content.get(requested)))):
            continue
        rest = {each: text for each, text in content.items() if each != key} | ({requested: request} if request else {})
        published = seen.user_connections.get(names.user_secret(seen.resource, user.name))
        lost = "" if present else connection.known_credentials(own, COMPONENT, published)[1]
        return _write(own, name, seen, rest | ({key: lost} if lost else {}), token="" if lost else key)
    return None


def _issue(seen: Assessment, own: Owner) -> Step:
    resource, mounted = seen.resource, seen.secrets.mounted
    trusts = mounted is not None and applied_everywhere(seen, CERTIFICATE_MARK, mounted.mark)
    leaves, informed = certificates.leaves(resource), fingerprint(mounted.trusted[0]) if mounted and trusts else ""
    issuing = Issuing(own, COMPONENT, leaves, seen.secrets.found, informed, seen.now, seen.settings.rotation)
    return keep_certificates(issuing, resource.spec.tls.mode, resource.spec.tls.issuer)


def _mount(seen: Assessment, own: Owner) -> tuple[str, WriteSecret | None]:
    """Return why the mounted Secret changes, and its next write; None if it does not change."""
    mounted, original = seen.secrets.mounted, seen.secrets.original
    applied = mounted is not None and applied_everywhere(seen, CERTIFICATE_MARK, mounted.mark)
    keeps_former = seen.resource.spec.tls.mode == "certManager"  # of clients whose certificate is not renewed yet
    why, desired = following(mounted, original, informed=applied, now=seen.now, keeps_former=keeps_former)
    if desired is None:
        return "", None
    return why, _write(own, names.tls_secret(seen.resource), seen, desired.content(), kind="kubernetes.io/tls")


def _write(
    own: Owner, name: str, seen: Observed, content: Mapping[str, str], *, token: str = "", kind: str = "Opaque"
) -> WriteSecret:
    found = seen.secrets.found.get(name)
    made = own.object(SECRET, name, component=COMPONENT, data=encoded(content)) | {"type": kind}
    if found is not None:
        require_owned(made, found, own.uid)
    return WriteSecret(made, found, token=token)


def require_secrets(seen: Assessment) -> Step:
    """Require what nodes cannot start without; an existing cluster continues with the last valid content."""
    secrets = seen.secrets
    step = PASS if secrets.problem is None else provisioning.report_unusable_secret(secrets.problem)
    if secrets.passwords is None or (seen.resource.spec.tls.mode != "none" and secrets.mounted is None):
        message = "Creating the Secrets that the nodes mount."
        lacking = Step.wait(PREPARING_USERS, message, requeue=SECRETS_RETRY_SECONDS)
        return lacking if step.progress is Progress.DONE else step
    if step.progress is not Progress.DONE:
        message = step.message.removesuffix("Nothing was changed.") + "Nodes continue with the last valid content."
        return Step.progressing(step.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)
    source, mounted = names.server_secret(seen.resource), names.tls_secret(seen.resource)
    copied = CopiedCertificate(source, mounted, secrets.original, secrets.mounted)
    withheld = steps.report_withheld_certificates((copied,), seen.now)
    if withheld.progress is not Progress.DONE:
        return withheld
    judge = steps.report_invalid_certificates if seen.resource.formed else steps.require_valid_certificates
    return judge(secrets.validity, seen.now)
