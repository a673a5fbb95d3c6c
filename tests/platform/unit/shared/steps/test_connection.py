"""The Secret for clients: written when known, kept up to date, never taken from another owner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.kubernetes.kinds import SECRET, SERVICE, Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.secrets import MAX_KEYS, content_of, encoded
from shared.runtime.plan import Patch, Step, WriteSecret
from shared.steps.connection import (
    Connection,
    ConnectionSecret,
    credentials,
    keep_connection,
    known_credentials,
    status,
)

OWN = Owner(Kind("example.com", "v1", "Shop", "shops"), "default", "shop", "u-1", "redis", "redis-operator")
OWN_SERVICE = OWN.object(SERVICE, "shop", component="node")
KNOWN = Connection("redis", "shop.default.svc", 6379, "redis://shop", credentials("default", "one"))
UNKNOWN = replace(KNOWN, uri=None, values=credentials(None, None))


def keep(connection: Connection, found: Obj | None, *, is_requested: bool = True, is_proven: bool = True) -> Step:
    seen = ConnectionSecret(found, OWN_SERVICE, is_proven)
    return keep_connection(OWN, "node", connection, seen, is_requested=is_requested)


def written(step: Step) -> WriteSecret:
    (action,) = step.actions
    assert isinstance(action, WriteSecret)
    return action


def present(own: Owner | None = OWN, **content: str) -> Obj:
    """Return the Secret as the operator stored it, with other content."""
    made = written(keep(KNOWN, None)).obj
    data = encoded({**content_of(made), **content})
    if own is None:
        return {**made, "data": data, "metadata": {"name": "shop-connection", "uid": "s", "resourceVersion": "1"}}
    references = [replace(OWN, uid=own.uid, name=own.name).reference()]
    return {**made, "data": data, "metadata": made["metadata"] | {"ownerReferences": references, "uid": "s"}}


def test_secret_has_the_entries_of_the_service_binding_specification() -> None:
    made = written(keep(KNOWN, None)).obj
    assert (made["metadata"]["name"], made["type"]) == ("shop-connection", "servicebinding.io/redis")
    assert content_of(made) == {
        "type": "redis",
        "provider": "platform.ydzs.io",
        "host": "shop.default.svc",
        "port": "6379",
        "uri": "redis://shop",
        "username": "default",
        "password": "one",
    }


def test_current_secret_is_not_written() -> None:
    assert keep(KNOWN, present()) == Step()
    assert keep(KNOWN, present(added="by a user")) == Step(), "further keys of others are kept"


def test_changed_password_is_written_over_exactly_the_observed_secret() -> None:
    found = present(password="old")
    write = written(keep(KNOWN, found))
    assert (write.seen, content_of(write.obj)["password"]) == (found, "one")


def test_unknown_values_keep_the_present_ones() -> None:
    assert keep(UNKNOWN, present(password="old", uri="redis://old")) == Step()
    moved = content_of(written(keep(replace(UNKNOWN, host="moved"), present(password="old"))).obj)
    assert (moved["host"], moved["password"], moved["uri"]) == ("moved", "old", "redis://shop")


def test_secret_is_not_created_while_the_password_is_unknown() -> None:
    assert keep(UNKNOWN, None) == Step()


def test_unobserved_secret_is_not_written() -> None:
    assert keep_connection(OWN, "node", KNOWN, None, is_requested=True) == Step()
    reported = {"binding": {"name": "shop-connection"}}
    assert status(OWN, "node", KNOWN, None, reported) == reported


def test_password_is_removed_without_authentication() -> None:
    open_access = replace(KNOWN, values=credentials("", ""))
    assert "password" not in content_of(written(keep(open_access, present())).obj)


@pytest.mark.parametrize("own", [None, replace(OWN, uid="u-2", name="other")], ids=["a user's", "another owner's"])
def test_secret_of_another_owner_is_reported_and_never_changed(own: Any) -> None:
    found = present(own, password="theirs")
    for connection in (KNOWN, UNKNOWN):
        step = keep(connection, found)
        assert (step.actions, step.reason, step.progress.value) == ((), "ConnectionSecretTaken", "done")
        assert "theirs" not in step.message
        assert "set spec.connectionSecret to false" in step.message
    assert "rename that user in spec.users" in keep(replace(KNOWN, user="app"), found).message
    assert keep(KNOWN, found, is_requested=False) == Step()
    assert status(OWN, "node", KNOWN, ConnectionSecret(found), {}) == {}


def test_secret_with_too_many_keys_is_reported_and_never_changed() -> None:
    """The content counts as unknown, so that a write in each pass would not end."""
    found = present()
    found["data"] |= dict.fromkeys(map(str, range(MAX_KEYS)), "")
    step = keep(replace(KNOWN, host="moved"), found)
    assert (step.actions, step.reason, step.progress.value) == ((), "SecretInvalid", "done")
    assert step.message.startswith(
        "Secret shop-connection is not changed: more than 1,024 keys, or too large. Leave only"
    )
    assert keep(KNOWN, found, is_requested=False) == Step()
    reported = {"binding": {"name": "shop-connection"}}
    assert status(OWN, "node", KNOWN, ConnectionSecret(found), reported) == reported


def test_secret_of_a_deleted_resource_of_the_same_name_is_awaited() -> None:
    step = keep(KNOWN, present(replace(OWN, uid="u-0")))
    assert (step.actions, step.reason, bool(step.requeue)) == ((), "", True)


def test_content_is_removed_when_the_secret_is_no_longer_requested() -> None:
    found = present(added="by a user")
    (removal,) = keep(KNOWN, found, is_requested=False).actions
    assert removal == Patch(SECRET, found, {"data": dict.fromkeys(sorted(KNOWN.content))})
    assert keep(KNOWN, {**found, "data": encoded({"added": "by a user"})}, is_requested=False) == Step()
    assert keep(KNOWN, {**present(), "data": {}}, is_requested=False) == Step()
    assert keep(KNOWN, None, is_requested=False) == Step()


def test_secret_that_has_only_the_labels_of_the_resource_is_not_emptied() -> None:
    """Any client may have copied it, also with the operator's keys."""
    found = present()
    copied = {**found, "metadata": {key: part for key, part in found["metadata"].items() if key != "ownerReferences"}}
    assert keep(KNOWN, copied, is_requested=False) == Step()


def test_status_names_the_secret_once_it_has_content() -> None:
    binding = {"binding": {"name": "shop-connection"}}
    assert status(OWN, "node", KNOWN, ConnectionSecret(present()), {}) == binding
    assert status(OWN, "node", KNOWN, ConnectionSecret({**present(), "data": {}}, is_proven=True), {}) == {}
    assert status(OWN, "node", KNOWN, ConnectionSecret(), binding) == {}


def test_secret_of_unknown_origin_is_replaced_and_nothing_in_it_is_used() -> None:
    forged = ConnectionSecret(present(password="theirs"))
    assert known_credentials(OWN, "node", forged) == ("", "")
    assert known_credentials(OWN, "node", replace(forged, is_proven=True)) == ("default", "theirs")
    assert status(OWN, "node", KNOWN, forged, {}) == {}
    assert keep(UNKNOWN, forged.found, is_proven=False) == Step(), "nothing is mixed with its content"
    assert content_of(written(keep(KNOWN, forged.found, is_proven=False)).obj)["password"] == "one"
    (removal,) = keep(KNOWN, present(added="by anyone"), is_proven=False).actions
    assert removal == Patch(SECRET, present(added="by anyone"), {"data": {"added": None}})


def test_password_is_in_no_text_of_the_plan() -> None:
    secret = replace(KNOWN, values=credentials("default", "pa55word"))
    assert "pa55word" not in repr((secret, keep(secret, None), ConnectionSecret(present(password="pa55word"))))


@pytest.mark.parametrize("uid", ["", "u-2"])
def test_secret_is_not_created_while_another_resource_has_the_name(uid: str) -> None:
    """Clients of that resource would find a database that does not exist."""
    other = replace(OWN, uid=uid).object(SERVICE, "shop", component="node") if uid else None
    seen = ConnectionSecret(None, other)
    assert not keep_connection(OWN, "node", KNOWN, seen, is_requested=True).actions
