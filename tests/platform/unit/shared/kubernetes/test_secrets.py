"""Messages about missing and invalid Secrets."""

from __future__ import annotations

import base64
import copy
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest

from shared.kubernetes import secret_provenance, secrets
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import Conflict
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import ForeignObject
from shared.kubernetes.secrets import TOO_LONG, content_of, digest, encoded, key_of, shorten
from shared.pki import ca
from shared.pki.certs import Pair
from shared.pki.secret_checks import UnusableSecret, texts, wrong_with_hosts, wrong_with_pair
from simulator.api_server.server import ApiServer

NOW = datetime.now(UTC)


@cache
def signer(name: str) -> Pair:
    return ca.authority(name, begins=NOW - timedelta(days=9), ends=NOW + timedelta(days=9))


@cache
def pair(*hosts: str, ended: bool = False, by: str = "ours") -> Pair:
    ends = NOW - timedelta(days=1) if ended else NOW + timedelta(days=1)
    return ca.issue(signer(by), "x", begins=NOW - timedelta(days=8), ends=ends, hosts=hosts, client=True)


def secret(**data: bytes) -> Obj:
    return {"metadata": {"uid": "u-1"}, "data": {key: base64.b64encode(text).decode() for key, text in data.items()}}


def test_values_are_returned_in_the_requested_order() -> None:
    assert texts("spec.a", "s", secret(one=b"1", two=b"2"), "two", "one") == ["2", "1"]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "spec.a: Secret s does not exist. Create it with one and two, or name another Secret."),
        (secret(one=b"1"), "spec.a: Secret s has no two. Add it."),
        (secret(one=b"1", two=b""), "spec.a: Secret s has no two. Add it."),
        (secret(one=b"1", two=b"\xff"), "spec.a: Secret s: one, two must be text."),
        ({"data": {"one": "!", "two": "x"}}, "spec.a: Secret s: one, two must be text."),
    ],
)
def test_missing_or_invalid_key_is_named(found: Obj | None, message: str) -> None:
    with pytest.raises(UnusableSecret) as wrong:
        texts("spec.a", "s", found, "one", "two")
    assert wrong.value.problem.message == message


def test_validity_period_does_not_count() -> None:
    ended, trusted = pair("a.example.com", ended=True), signer("ours").certificate
    assert wrong_with_pair(ended, trusted) == ""
    assert wrong_with_hosts(ended, trusted, ["a.example.com"]) == ""
    assert "does not verify" in wrong_with_pair(pair("a", by="theirs"), trusted), "everything else is still checked"


def test_server_certificate_must_have_every_name() -> None:
    trusted = signer("ours").certificate
    certificate = pair("*.example.com", "b")
    assert wrong_with_hosts(certificate, trusted, ["a.example.com", "b"]) == ""
    assert "reject tls.crt for c (Hostname mismatch" in wrong_with_hosts(certificate, trusted, ["b", "c"])
    assert "for b (" in wrong_with_hosts(certificate, signer("theirs").certificate, ["b"])
    assert "ca.crt: no certificate authority found" in wrong_with_hosts(certificate, "nonsense", ["b"])


def test_digest_distinguishes_content_and_is_stable() -> None:
    parts = [(b"k", b"one"), (b"l", b"two")]
    assert digest(parts) == "7beefcf6d6e944ff47ee538602f5fd78"
    assert digest([]) == ""
    assert len({digest(parts), digest([(b"k", b"onet"), (b"l", b"wo")]), digest([(b"x", b"one"), (b"l", b"two")])}) == 3
    assert key_of(secret()) == b"u-1"
    assert key_of(None) == b""


async def test_secret_that_is_adopted_during_a_reconcile_is_read_again() -> None:
    """A reconcile keeps no content that it must not use: what is left is not the content of the Secret."""
    secret: Obj = {"metadata": {"name": "a", "uid": "u"}, "data": secrets.encoded({"password": "one"})}
    resource: Obj = {"metadata": {"namespace": "default", "annotations": {}}}

    class Known(Kube):
        """Returns what the reconcile has read before."""

        async def find(self, *_: object) -> Obj:
            return secret

    kube = Known(ApiServer(), manager="box-operator")
    for _ in range(2):
        found, (unused,) = await secret_provenance.find(kube, resource, {}, ["a"])
        assert found == {"a": None}
        assert secrets.content_of(unused) == {}
    resource["metadata"]["annotations"][secret_provenance.ADOPT] = "u"
    with pytest.raises(Conflict):
        await secret_provenance.find(kube, resource, {}, ["a"])


UNUSED: dict[str, Obj] = {
    "more keys than are read, without values": {
        "metadata": {"name": "cache-auth", "uid": "theirs"},
        "data": {str(number): "" for number in range(secrets.MAX_KEYS + 1)},
    },
    "metadata that are too large": {
        "metadata": {"name": "cache-auth", "uid": ""},
        "data": dict(secrets.UNREAD_DATA),
    },
}


@pytest.mark.parametrize("name", UNUSED)
async def test_secret_of_another_client_that_is_not_read_stops_no_observation(name: str) -> None:
    """A client that may create Secrets could stop the observation of any resource."""
    known: dict[str, Obj] = {
        "cache-auth": copy.deepcopy(UNUSED[name]),
        "cache-server-tls": {"metadata": {"name": "cache-server-tls", "uid": "ours"}, "data": {"tls.key": "AAAA"}},
    }
    metadata = {"name": "cache", "namespace": "default"}
    resource: Obj = {"kind": "Box", "metadata": metadata, "status": {"secrets": {"cache-server-tls": "ours"}}}

    class Known(Kube):
        async def find(self, *of: object) -> Obj:
            return known[str(of[-1])]

    kube = Known(ApiServer(), manager="box-operator")
    for _ in range(2):  # a reconcile may read it again
        found, unproven = await secret_provenance.find(kube, resource, {}, [*known])
        assert found == {"cache-auth": None, "cache-server-tls": known["cache-server-tls"]}
        assert [each["metadata"]["name"] for each in unproven] == ["cache-auth"]
    message = secret_provenance.refusal(resource, unproven)
    adopt = f"`kubectl annotate box cache -n default --overwrite {secret_provenance.ADOPT}=theirs`"
    advice = f", or adopt it if you know its origin: {adopt}"
    assert message.endswith(f"Delete it{advice}" if unproven[0]["metadata"]["uid"] else "Delete it.")
    resource["status"]["secrets"]["cache-auth"] = UNUSED[name]["metadata"]["uid"] or "ours"
    known["cache-auth"] = copy.deepcopy(UNUSED[name])
    with pytest.raises(ForeignObject, match="Secret cache-auth: the Secrets that the operator made have more than"):
        await secret_provenance.find(kube, resource, {}, [*known])


def test_placeholder_of_a_long_value_is_no_content() -> None:
    """A password of that text would be known to all."""
    assert content_of({"data": {"password": TOO_LONG}}) == {}


def test_long_value_of_another_client_replaces_no_other_value() -> None:
    secret = {"data": encoded({"password": "secret", "ca.crt": "x" * 200_000, "mine": "x" * 700_000})}
    shorten(secret)
    assert content_of(secret) == {"password": "secret", "ca.crt": "x" * 200_000}
    assert secret["data"]["mine"] == TOO_LONG
