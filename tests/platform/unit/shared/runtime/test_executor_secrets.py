"""Keys are generated at the time of the write, and never twice; an expected rejection is recorded."""

from __future__ import annotations

import base64
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.kubernetes.errors import Conflict, Forbidden
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, SECRET, SERVICE, Obj
from shared.kubernetes.ownership import ForeignObject
from shared.kubernetes.secret_provenance import ADOPT
from shared.pki import certs
from shared.pki.ca import fulfil
from shared.pki.issuing import make
from shared.pki.rotation import CertificateOrder, Made
from shared.runtime.errors import DatabaseError
from shared.runtime.executor import CertificateNotMade
from shared.runtime.plan import Apply, Attempt, Call, Patch, WriteSecret
from shared.status.reasons import Reason
from simulator.harness import NAMESPACE
from tests.platform.unit.shared.runtime.test_executor import BOX, BoxUnreachable, Lab

BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
AUTHORITY = CertificateOrder("box", (), BEGINS, None, None, BEGINS + timedelta(days=100))


async def issued(order: CertificateOrder) -> Made:
    return fulfil(order)


async def not_issued(_: CertificateOrder) -> Made:
    raise OSError("issuing a certificate took more than 60 s")


@pytest.fixture
async def lab() -> Lab:
    made = Lab()
    issue(made, issued)
    return made


def issue(lab: Lab, how: Any) -> None:
    executor = lab.harness.reconciler._executor
    object.__setattr__(executor._controller, "issue", how)


def secret(lab: Lab, name: str = "a", /, **data: str) -> Obj:
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return lab.own.object(SECRET, name, component="box", data=encoded)


def stored(lab: Lab) -> dict[str, str]:
    found = lab.user_client.get(SECRET, NAMESPACE, "a")
    return {key: base64.b64decode(text).decode() for key, text in found["data"].items()}


async def test_authority_is_created_when_its_secret_is_written(lab: Lab) -> None:
    assert await lab.do(WriteSecret(secret(lab, known="yes"), None, AUTHORITY, ("ca.crt", "ca.key")))
    found = stored(lab)
    assert found.keys() == {"known", "ca.crt", "ca.key"}
    certs.server_context(certs.Pair(found["ca.crt"], found["ca.key"]))


async def test_random_password_is_generated_when_its_secret_is_written(lab: Lab) -> None:
    assert await lab.do(WriteSecret(secret(lab, known="yes"), None, token="password"))
    first = stored(lab)
    assert first["known"] == "yes"
    assert len(first["password"]) == 64
    await lab.do(WriteSecret(secret(lab), lab.user_client.get(SECRET, NAMESPACE, "a"), token="password"))
    assert stored(lab).keys() == {"password"}
    assert stored(lab) != first


async def test_first_of_two_concurrent_writers_wins(lab: Lab) -> None:
    write = WriteSecret(secret(lab), None, AUTHORITY, ("ca.crt", "ca.key"))
    await lab.do(write)
    first = stored(lab)
    with pytest.raises(Conflict):
        await lab.do(write)
    assert stored(lab) == first


async def test_secret_that_changed_since_it_was_observed_is_not_replaced(lab: Lab) -> None:
    await lab.do(WriteSecret(secret(lab, key="one"), None))
    seen = lab.user_client.get(SECRET, NAMESPACE, "a")
    assert await lab.do(WriteSecret(secret(lab, key="two"), seen))
    assert stored(lab) == {"key": "two"}
    with pytest.raises(Conflict):
        await lab.do(WriteSecret(secret(lab, key="three"), seen))
    lab.user_client.delete(SECRET, NAMESPACE, "a")
    with pytest.raises(Conflict):
        await lab.do(WriteSecret(secret(lab, key="three"), seen))
    assert not lab.server.objects(SECRET)


async def test_key_that_is_no_longer_written_is_removed(lab: Lab) -> None:
    await lab.do(WriteSecret(secret(lab, key="one", other="two"), None))
    await lab.do(WriteSecret(secret(lab, key="one"), lab.user_client.get(SECRET, NAMESPACE, "a")))
    assert stored(lab) == {"key": "one"}


async def test_foreign_secret_is_not_changed(lab: Lab) -> None:
    metadata = {"name": "a", "namespace": NAMESPACE}
    foreign = lab.user_client.create(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}})
    with pytest.raises(ForeignObject):
        await lab.do(WriteSecret(secret(lab, key="one"), foreign))


async def test_failure_to_issue_a_certificate_is_reported_and_retried(lab: Lab) -> None:
    issue(lab, not_issued)
    write = WriteSecret(secret(lab), None, AUTHORITY)
    with pytest.raises(CertificateNotMade, match="took more than 60 s"):
        await lab.do(write)
    assert not any(stored(lab).values()), "the Secret was created and has no content"
    assert await lab.plan(dataclasses.replace(write, seen=lab.user_client.get(SECRET, NAMESPACE, "a"))) == ["error"]


async def test_client_certificate_and_authority_can_be_ordered_separately() -> None:
    authority = (await make(AUTHORITY)).authority
    assert authority is not None
    made = await make(CertificateOrder("client", (), BEGINS, BEGINS + timedelta(days=1), authority, None, client=True))
    assert made.authority is None
    assert made.serving is not None
    assert certs.read(made.serving.certificate)[0].hosts == frozenset()
    assert (await make(AUTHORITY)).serving is None


# Rejections.


def claim(lab: Lab) -> Obj:
    """Return a claim of a storage class without expansion."""
    labels = lab.own.labels("box")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "data-a-0", "namespace": NAMESPACE, "labels": labels}
    made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    return lab.user_client.create(PERSISTENT_VOLUME_CLAIM, made)


LARGER: Obj = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}


async def test_expected_rejection_is_recorded_on_the_object(lab: Lab) -> None:
    found = claim(lab)
    with pytest.raises(Forbidden):
        await lab.do(Patch(PERSISTENT_VOLUME_CLAIM, found, LARGER))
    assert await lab.do(Patch(PERSISTENT_VOLUME_CLAIM, found, LARGER, noted=("example.com/refused", "2Gi")))
    annotation = lab.user_client.get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, "data-a-0")["metadata"]["annotations"]
    assert annotation["example.com/refused"].startswith("2Gi: ")
    assert "resize" in annotation["example.com/refused"]


async def test_lasting_object_loses_its_owner_reference_and_gets_it_back(lab: Lab) -> None:
    spec: Obj = {"clusterIP": "None", "selector": {"app": "x"}, "ports": []}
    lasting = dataclasses.replace(lab.own, lasting=True)
    await lab.do(Apply(SERVICE, lab.own.object(SERVICE, "a", component="box", spec=spec)))
    assert await lab.do(Apply(SERVICE, lasting.object(SERVICE, "a", component="box", spec=spec)))
    assert not lab.user_client.get(SERVICE, NAMESPACE, "a")["metadata"].get("ownerReferences")
    assert not await lab.do(Apply(SERVICE, lasting.object(SERVICE, "a", component="box", spec=spec)))
    assert await lab.do(Apply(SERVICE, lab.own.object(SERVICE, "a", component="box", spec=spec)))
    (owner,) = lab.user_client.get(SERVICE, NAMESPACE, "a")["metadata"]["ownerReferences"]
    assert owner["uid"] == lab.own.uid


# Refusals by the database.


class Refusal(DatabaseError):
    """The box does not accept this."""

    reason = Reason("Refusal")


@dataclasses.dataclass(frozen=True)
class Shake(Call):
    def __str__(self) -> str:
        return "shake the box"


def noted(lab: Lab) -> str | None:
    found = lab.user_client.get(POD, NAMESPACE, "a-0")["metadata"].get("annotations") or {}
    return found.get("example.com/refused")


async def test_refusal_by_the_database_is_recorded_and_the_plan_continues(lab: Lab) -> None:
    pod = lab.pod()
    attempt = Attempt(Shake(), Refusal, POD, pod, ("example.com/refused", "hard at noon"))
    lab.boxes.call_error = Refusal("ERR too hard")
    label = Patch(POD, pod, {"metadata": {"labels": {"shaken": "no"}}})
    assert await lab.do(attempt, label)
    assert noted(lab) == "hard at noon: ERR too hard"
    assert lab.user_client.get(POD, NAMESPACE, "a-0")["metadata"]["labels"]["shaken"] == "no"
    lab.boxes.call_error = None
    assert await lab.do(dataclasses.replace(attempt, obj=lab.user_client.get(POD, NAMESPACE, "a-0")))
    assert noted(lab) is None, "the note is removed when the call succeeds"
    assert lab.boxes.done == [Shake()]


async def test_other_errors_of_an_attempt_end_the_reconcile(lab: Lab) -> None:
    lab.boxes.call_error = BoxUnreachable("no route to the box")
    with pytest.raises(BoxUnreachable):
        await lab.do(Attempt(Shake(), Refusal, POD, lab.pod(), ("example.com/refused", "hard")))
    assert noted(lab) is None


# Progress of calls.


async def test_call_records_its_progress_before_it_continues(lab: Lab) -> None:
    lab.boxes.recorded = ({"open": 1}, {"open": 2})
    await lab.do(Shake(), Apply(SERVICE, lab.own.object(SERVICE, "a", component="box")))
    writes = [(write.verb, write.kind, write.subresource) for write in lab.server.log.all_writes[-4:]]
    assert writes == [("PATCH", "Box", "status")] * 2 + [("CALL", "Shake", ""), ("APPLY", "Service", "")]
    assert lab.user_client.get(BOX, NAMESPACE, "a")["status"]["open"] == 2


async def test_call_ends_if_the_resource_has_changed_since_it_was_planned(lab: Lab) -> None:
    """Another replica of the operator may lead, or the spec is another one."""
    lab.boxes.recorded = ({"open": 1},)
    lab.user_client.merge(BOX, NAMESPACE, "a", {"metadata": {"labels": {"by": "hand"}}})
    with pytest.raises(Conflict):
        await lab.do(Shake())
    assert lab.boxes.done == []


# Provenance.


def record(lab: Lab) -> dict[str, str]:
    found: dict[str, str] = lab.user_client.get(BOX, NAMESPACE, "a").get("status", {}).get("secrets", {})
    return found


def seeded(lab: Lab, **data: str) -> Obj:
    """Create the Secret as another client, with the labels and the owner reference of the operator's."""
    return lab.user_client.create(SECRET, secret(lab, **data))


async def test_uid_is_recorded_before_a_secret_has_content(lab: Lab) -> None:
    await lab.do(WriteSecret(secret(lab, key="one"), None))
    assert record(lab) == {"a": lab.user_client.get(SECRET, NAMESPACE, "a")["metadata"]["uid"]}
    written = [(write.verb, write.kind, write.subresource) for write in lab.server.log.all_writes[-3:]]
    assert written == [("APPLY", "Secret", ""), ("PATCH", "Box", "status"), ("APPLY", "Secret", "")]


async def test_chains_that_create_one_secret_each_keep_the_records_of_each_other(lab: Lab) -> None:
    """Another client deleted Secrets of the operator: the plan's record has their former UIDs."""
    former = {"a": "former-a", "b": "former-b", "c": "kept"}
    lab.box = lab.user_client.merge(BOX, NAMESPACE, "a", {"status": {"secrets": former}}, subresource="status")
    chains = [[WriteSecret(secret(lab, name, key="one"), None)] for name in ("a", "b")]
    done = await lab.harness.reconciler._executor.execute(lab.box, chains, former)
    assert done.failure is None
    made = {name: lab.user_client.get(SECRET, NAMESPACE, name)["metadata"]["uid"] for name in ("a", "b")}
    assert record(lab) == {**made, "c": "kept"}


async def test_secret_of_unknown_origin_is_neither_used_nor_changed(lab: Lab) -> None:
    found = seeded(lab, key="theirs")
    for seen in (None, found):
        with pytest.raises(ForeignObject, match=f"adopt-secrets={found['metadata']['uid']}"):
            await lab.do(WriteSecret(secret(lab, key="one"), seen))
    assert (stored(lab), record(lab)) == ({"key": "theirs"}, {})


async def test_secret_without_content_is_recorded_and_filled(lab: Lab) -> None:
    """A stopped operator leaves one behind; if another client created it, there is nothing to trust in it."""
    await lab.do(WriteSecret(secret(lab, key="one"), seeded(lab, key="")))
    assert stored(lab) == {"key": "one"}
    assert record(lab) == {"a": lab.user_client.get(SECRET, NAMESPACE, "a")["metadata"]["uid"]}


async def test_consent_is_for_one_object(lab: Lab) -> None:
    found = seeded(lab, key="restored")
    consent = {"metadata": {"annotations": {ADOPT: f"other, {found['metadata']['uid']}"}}}
    lab.box = lab.user_client.merge(BOX, NAMESPACE, "a", consent)
    await lab.do(WriteSecret(secret(lab, key="one"), found))
    assert stored(lab) == {"key": "one"}
    lab.user_client.delete(SECRET, NAMESPACE, "a")
    with pytest.raises(ForeignObject):
        await lab.do(WriteSecret(secret(lab, key="one"), seeded(lab, key="another")))


async def test_connection_secret_needs_no_record(lab: Lab) -> None:
    await lab.do(WriteSecret(secret(lab, key="one"), None, is_copy=True))
    assert (stored(lab), record(lab)) == ({"key": "one"}, {})


def change_spec(lab: Lab) -> None:
    """Change the resource, which the operator has not observed yet."""
    lab.user_client.merge(BOX, NAMESPACE, "a", {"spec": {"lid": "open"}})


async def test_clients_get_no_password_of_a_former_spec(lab: Lab) -> None:
    """Servers may not require it any longer, and would store it."""
    await lab.do(WriteSecret(secret(lab, key="one"), None, is_copy=True))
    change_spec(lab)
    with pytest.raises(Conflict):
        await lab.do(WriteSecret(secret(lab, key="two"), lab.user_client.get(SECRET, NAMESPACE, "a"), is_copy=True))
    assert stored(lab) == {"key": "one"}


async def test_secret_that_was_emptied_for_a_newer_spec_stays_empty(lab: Lab) -> None:
    """The newer status does not record it any longer, so that nothing would empty it again."""
    await lab.do(WriteSecret(secret(lab, key="one"), None))
    emptied = lab.user_client.merge(SECRET, NAMESPACE, "a", {"data": None})
    change_spec(lab)
    with pytest.raises(Conflict):
        await lab.do(WriteSecret(secret(lab, key="one"), emptied))
    assert "data" not in lab.user_client.get(SECRET, NAMESPACE, "a")
