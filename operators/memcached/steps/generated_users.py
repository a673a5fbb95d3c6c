"""Step that keeps the generated users file, if spec.auth names no Secret. Pure.

The file has one user. After a rotation it has the new and the former password, until the former one expires: servers
check each line, so that clients with either password connect.
"""

from __future__ import annotations

from datetime import timedelta

from operators.memcached.client.users_file import MAX_LINE_BYTES, MAX_USERS
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.names import owner, users_secret
from operators.memcached.objects.pod import COMPONENT, USERS_KEY
from shared.kubernetes.accessors import annotation
from shared.kubernetes.secrets import content_of
from shared.runtime.plan import PASS, Step
from shared.steps import connection
from shared.steps.passwords import ROTATE, GeneratedPassword

USER = "memcached"
"""User in a generated file."""

OVERLAP = timedelta(minutes=10)
"""Time for which a former password stays valid after a rotation, as for Redis."""


def provide_users(seen: Assessment) -> Step:
    """Keep the Secret with the generated users file, which servers load without a restart."""
    resource = seen.resource
    if resource.spec.auth is None or resource.spec.auth.secret_name:
        return PASS
    own, secret = owner(resource, seen.settings.operator), seen.secrets.found.get(users_secret(resource))
    user, password = connection.known_credentials(own, COMPONENT, seen.connection)
    former = _lines(content_of(secret).get(USERS_KEY, ""))[: MAX_USERS - 1]
    generated = GeneratedPassword(
        own=own,
        component=COMPONENT,
        at="spec.auth.secretName",
        user=USER,
        found=secret,
        request=annotation(resource.obj, ROTATE),
        recovered=f"{user}:{password}\n" if user and password else "",
        may_rotate=True,
        key=USERS_KEY,
        around=(f"{USER}:", "\n" + "".join(former)),
    )
    step = generated.step(seen.now, is_permitted=seen.settings.write_secrets)
    return _expire(seen, generated) if step == PASS and seen.settings.write_secrets else step


def _expire(seen: Assessment, generated: GeneratedPassword) -> Step:
    """Remove former passwords once all servers have loaded the file with the new one, and the overlap is over."""
    lines = _lines(generated.present)
    if len(lines) < 2 or seen.loaded_users != seen.secrets.users_digest:
        return PASS
    generated_at = generated.generated_at
    ends = seen.now if generated_at is None else generated_at + OVERLAP
    if seen.now < ends:
        return Step(requeue=max((ends - seen.now).total_seconds(), 1.0))
    return Step.do(generated.rewritten(lines[0]))


def _lines(text: str) -> list[str]:
    """Return the lines of a users file, as far as memcached may read them."""
    return text[: MAX_USERS * MAX_LINE_BYTES].splitlines(keepends=True)
