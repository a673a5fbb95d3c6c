"""Owners of the Secrets that the operator makes, and repairs that would write to Secrets of unknown origin."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from operators.memcached.database import DATABASE
from shared.kubernetes.kinds import SECRET, Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.secret_provenance import ADOPT, RECORD
from shared.kubernetes.secrets import encoded
from shared.runtime.plan import PASS, Patch, Step, WriteSecret
from shared.status.reasons import FOREIGN_OBJECT
from shared.status.verdict import Progress
from shared.steps.connection import Connection, ConnectionSecret
from shared.steps.database import Database
from shared.steps.own_secrets import OwnSecrets
from tests.harness import cost

BOX = Kind("example.com", "v1", "Box", "boxes")
OWN = Owner(BOX, "ns", "a", "own", "box", "box-operator")
CONNECTION = Connection("box", "a.ns", 1, "box://a.ns:1", {})
NOW = datetime(2026, 1, 1, tzinfo=UTC)

OTHER: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "other"}
FORMER = OWN.reference() | {"uid": "former", "controller": False}
FORMER_VERSION = FORMER | {"apiVersion": "example.com/v1alpha1"}


def secret(name: str, *references: Obj, **content: str) -> Obj:
    made = OWN.object(SECRET, name, component="box", data=encoded(content))
    return {**made, "metadata": {**made["metadata"], "uid": f"uid-{name}", "ownerReferences": [*references]}}


def own_secrets(*found: Obj, published: Obj | None = None, own: Owner = OWN, **record: str) -> OwnSecrets:
    by_name = {each["metadata"]["name"]: each for each in found}
    metadata = {"name": "a", "namespace": "shop", "uid": "own"}
    return OwnSecrets(
        own=own,
        component="box",
        resource={"kind": "Box", "metadata": metadata, "status": {RECORD: record}},
        names=by_name.keys(),
        found=by_name,
        unproven=(),
        connection=CONNECTION,
        published=ConnectionSecret(published),
    )


def references(step: Step) -> list[Obj]:
    (patch,) = step.actions
    assert isinstance(patch, Patch)
    assert patch.change.keys() == {"metadata"}
    assert patch.change["metadata"].keys() == {"ownerReferences"}
    found: list[Obj] = patch.change["metadata"]["ownerReferences"]
    return found


@pytest.mark.parametrize("former", [FORMER, FORMER_VERSION])
def test_reference_to_a_former_resource_of_the_name_is_removed(former: Obj) -> None:
    found = secret("one", former, OTHER, OWN.reference())
    assert references(own_secrets(found, one="uid-one").keep_owners()) == [OTHER, OWN.reference()]
    lasting = replace(OWN, lasting=True)
    assert references(own_secrets(found, own=lasting, one="uid-one").keep_owners()) == [OTHER]


def test_secret_with_its_owners_is_not_changed() -> None:
    assert own_secrets(secret("one", OWN.reference(), OTHER), one="uid-one").keep_owners() == PASS


async def test_many_owners_of_a_secret_cost_little() -> None:
    found = secret("one", OWN.reference(), *(OTHER | {"uid": f"other-{number}"} for number in range(6_000)))
    async with cost.bounded():
        assert own_secrets(found, one="uid-one").keep_owners() == PASS


def test_spare_secret_of_the_resource_is_emptied_and_then_forgotten() -> None:
    found = secret("one", OWN.reference(), key="k")
    seen = replace(own_secrets(found, one="uid-one", two="uid-two"), spare={"one": ("key", "other"), "two": ("key",)})
    assert seen.empty_spare() == Step.do(Patch(SECRET, found, {"data": {"key": None}}))
    assert seen.record == {"one": "uid-one"}  # two does not exist
    empty = replace(own_secrets(secret("one", OWN.reference()), one="uid-one"), spare={"one": ("key",)})
    assert (empty.empty_spare(), empty.record) == (PASS, {})


def test_key_that_a_user_added_to_a_spare_secret_stays_and_so_does_its_record() -> None:
    """A later spec, which needs the Secret again, would find content of unknown origin."""
    found = secret("one", OWN.reference(), key="k", note="by a user")
    seen = replace(own_secrets(found, one="uid-one"), spare={"one": ("key",)})
    assert seen.empty_spare() == Step.do(Patch(SECRET, found, {"data": {"key": None}}))
    emptied = own_secrets(secret("one", OWN.reference(), note="by a user"), one="uid-one")
    emptied = replace(emptied, spare={"one": ("key",)})
    assert (emptied.empty_spare(), emptied.record) == (PASS, {"one": "uid-one"})


def test_spare_secret_of_another_controller_keeps_its_content() -> None:
    taken = own_secrets(secret("one", OTHER | {"controller": True}, key="k"), one="uid-one")
    assert replace(taken, spare={"one": ("key",)}).empty_spare() == PASS


def test_secret_of_another_controller_is_not_changed() -> None:
    """The API server refuses a second controller."""
    for controller in (FORMER | {"controller": True}, OTHER | {"controller": True}):
        assert own_secrets(secret("one", controller), one="uid-one").keep_owners() == PASS


def test_orphaned_connection_secret_is_owned_in_the_pass_that_recognizes_it() -> None:
    """No event would start another pass once the status records it."""
    content = {key: text for key, text in CONNECTION.content.items() if text}
    found = own_secrets(published=secret("a-connection", **content))
    assert references(found.keep_owners()) == [OWN.reference()]
    assert found.record == {"a-connection": "uid-a-connection"}
    seeded = own_secrets(published=secret("a-connection", **content, password="theirs"))
    assert (seeded.keep_owners(), seeded.record) == (PASS, {})


def test_repair_that_would_write_to_a_secret_of_unknown_origin_reports_how_to_adopt_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [secret(name, OWN.reference(), key="theirs") for name in ("one", "two")]
    secrets = replace(own_secrets(), unproven=tuple(found))
    monkeypatch.setattr(Database, "own_secrets", lambda *_: secrets)
    database: Database[Any] = DATABASE

    def repair(name: str, *_: object) -> Step:
        return Step.do(WriteSecret(OWN.object(SECRET, name, component="box"), None))

    def outcome(name: str) -> Step:
        return database.proven(partial(repair, name))(None)

    assert outcome("three") == repair("three")
    refused = outcome("two")
    assert (refused.actions, refused.progress, refused.reason) == ((), Progress.BLOCKED, FOREIGN_OBJECT)
    assert refused.message.endswith(f": `kubectl annotate box a -n shop --overwrite {ADOPT}=uid-one,uid-two`")
