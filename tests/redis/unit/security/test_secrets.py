"""Content of Secrets, and credentials of the operator."""

from __future__ import annotations

from typing import Any

import pytest

from operators.redis.security.secrets import Secrets, judge, names, read
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.secrets import TOO_LONG, encoded
from shared.pki.secret_checks import SecretProblem
from simulator.api_server.kinds import NAMESPACE
from simulator.api_server.server import ApiServer
from tests.redis.unit.security.rotation import GIVEN, OWN, Lab, certificate, issued, wished

AUTH: Obj = {"auth": {"secretName": GIVEN}}
TLS: Obj = {"tls": {"mode": "secret", "secretName": OWN}}
ISSUED: Obj = {"tls": {"mode": "certManager", "issuer": {"name": "issuer"}}}


def secret(name: str, content: dict[str, str]) -> Obj:
    return {"kind": "Secret", "metadata": {"name": name, "namespace": "default", "uid": "1"}, "data": encoded(content)}


def judged(*found: Obj, **spec: Any) -> Secrets:
    resource = wished(**spec)
    return judge(resource, dict.fromkeys(names(resource)) | {each["metadata"]["name"]: each for each in found})


def problem_of(*found: Obj, **spec: Any) -> tuple[str, str]:
    problem = judged(*found, **spec).problem
    return (problem.reason, problem.message) if problem else ("", "")


def test_secret_names_follow_from_the_spec() -> None:
    assert {*names(wished())} == {"demo-users"}
    assert {*names(wished(**AUTH, **TLS))} == {"demo-users", GIVEN, OWN, "demo-nodes-tls"}
    owned = {"demo-users", "demo-server-tls", "demo-client-tls", "demo-nodes-tls"}
    assert {*names(wished(**ISSUED))} == owned
    assert {*names(wished(tls={"mode": "self"}))} == {*owned, "demo-ca"}


async def test_secrets_are_read_from_the_api_server() -> None:
    server = ApiServer()
    chart = server.actor("kubectl")
    chart.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    resource, kube = wished(**AUTH), Kube(server, manager="redis-operator")
    assert (await read(resource, kube)).problem is not None
    chart.create(SECRET, {"apiVersion": "v1"} | secret(GIVEN, {"password": "one"}))
    found = await read(resource, kube)
    assert (found.problem, found.desired) == (None, "one")


async def test_only_what_is_used_stays_of_the_secrets_of_users() -> None:
    server, mine = ApiServer(), {"name": "shared", "key": "mine"}
    chart = server.actor("kubectl")
    chart.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    content = {"password": "one", "previousPassword": "two", "mine": "x" * 20_000, "other": "y"}
    for name in ("shared", GIVEN):
        chart.create(SECRET, {"apiVersion": "v1"} | secret(name, content))
    users = [
        {"name": f"u{at}", "rules": "+@read", "passwordSecret": of}
        for at, of in enumerate(({"name": "shared"}, mine, {"name": GIVEN}, {"name": "none"}))
    ]
    found = await read(wished(**AUTH, users=users), Kube(server, manager="redis-operator"))
    kept = found.found["shared"]
    assert kept is not None
    assert kept["data"] == encoded({"password": "one"}) | {"mine": TOO_LONG}
    given = found.found[GIVEN]
    assert given is not None
    assert given["data"] == encoded({"password": "one", "previousPassword": "two"})
    assert given["metadata"].keys() == {"name", "namespace", "uid", "resourceVersion"}
    assert (found.of_users["u0"], found.of_users["u2"]) == ("one", "one")
    problem = found.of_users["u1"]
    assert isinstance(problem, SecretProblem)
    assert problem.message == "spec.users u1: Secret shared: mine has more than 4,096 bytes. Shorten it."


def test_cluster_without_auth_needs_no_password() -> None:
    found = judged()
    assert (found.problem, found.desired, found.access.password, found.access.former) == (None, "", "", ())


def test_missing_or_invalid_password_is_reported_without_its_value() -> None:
    reason, message = problem_of(**AUTH)
    assert (reason, message.split(".")[0]) == ("SecretMissing", "spec")
    assert "Secret given does not exist" in message
    assert problem_of(secret(GIVEN, {"else": "x"}), **AUTH)[0] == "SecretMissing"
    reason, message = problem_of(secret(GIVEN, {"password": "hunter2\n"}), **AUTH)
    assert reason == "SecretInvalid"
    assert "line break" in message
    assert "hunter2" not in message
    assert judged(**AUTH).desired is None


@pytest.mark.parametrize("password", ["hunter2\0x", "hun\nter2", "hunter2\x1b", "\thunter2"])
def test_password_with_a_control_character_is_refused(password: str) -> None:
    """A configuration file, an environment variable or a C program would cut it there."""
    reason, message = problem_of(secret(GIVEN, {"password": password}), **AUTH)
    assert reason == "SecretInvalid"
    assert "password contains a control character" in message
    assert "hun" not in message


def test_operator_tries_the_current_password_before_others() -> None:
    lab = Lab()
    lab.give("one")
    lab.begin()
    lab.give("two", previous="zero")
    access = lab.judged().access
    assert (access.password, access.former) == ("one", ("two", "zero"))
    lab.settle()
    access = lab.judged().access
    assert access.password == "two"
    assert set(access.former) == {"one", "zero"}


def test_users_mark_is_stable_and_differs_between_clusters() -> None:
    one, other = Lab(), Lab()
    for lab, password in ((one, "one"), (other, "one")):
        lab.give(password)
        lab.begin()
    assert one.judged().users_mark == one.judged().users_mark != ""
    users = other.found["demo-users"]
    assert users is not None
    users["metadata"]["uid"] = "another"
    assert one.judged().users_mark != other.judged().users_mark, "the mark does not allow guessing passwords"


def test_invalid_certificate_is_reported() -> None:
    assert problem_of(**TLS)[0] == "SecretMissing"
    assert problem_of(secret(OWN, certificate("a", "old")), **TLS) == ("", "")
    mixed = certificate("a", "old") | {"ca.crt": certificate("a", "new")["ca.crt"]}
    reason, message = problem_of(secret(OWN, mixed), **TLS)
    assert reason == "SecretInvalid"
    assert "does not verify tls.crt" in message
    assert judged(secret(OWN, mixed), **TLS).original is None
    assert "cert-manager has not issued Secret demo-server-tls yet" in problem_of(**ISSUED)[1]


def test_operator_uses_the_old_certificate_and_trusts_the_new_authority() -> None:
    lab = Lab(resource=wished(**TLS))
    lab.put(OWN, certificate("a", "old"))
    lab.begin()
    lab.put(OWN, certificate("b", "new"))
    access = lab.judged().access
    assert access.pair is not None
    assert access.authority is not None
    assert access.pair.certificate == certificate("a", "old")["tls.crt"], "all nodes accept it already"
    assert certificate("a", "old")["ca.crt"].strip() in access.authority
    assert certificate("b", "new")["ca.crt"].strip() in access.authority


@pytest.mark.parametrize("tls", [TLS["tls"], ISSUED["tls"], {"mode": "self"}], ids=lambda tls: str(tls["mode"]))
def test_no_server_is_contacted_while_no_certificate_is_usable(tls: Obj) -> None:
    """The mounted Secret may be deleted, invalid, or restored with another UID, which hides it (`usable`)."""
    lab = Lab(resource=wished(**AUTH, tls=tls))
    lab.give("hunter2", previous="hunter1")
    for name in (OWN, "demo-server-tls", "demo-client-tls") if tls["mode"] != "self" else ():
        lab.put(name, certificate("a", "old"))
    lab.begin()
    before = lab.judged().access
    assert before.authority
    for content in ({"tls.crt": "x", "tls.key": "y", "ca.crt": "z"}, {}):
        lab.put("demo-nodes-tls", content)
        assert lab.judged().access == before, "the original has the same certificate and authority"
    lab.found["demo-nodes-tls"] = None
    assert lab.judged().access == before
    lab.found |= dict.fromkeys((OWN, "demo-server-tls", "demo-client-tls"))
    assert lab.judged().access.authority == "", "no connection is opened"


def issued_lab() -> Lab:
    """Return a cluster whose certificates cert-manager issued with the authority `old`."""
    lab = Lab(resource=wished(**ISSUED))
    for name in ("demo-server-tls", "demo-client-tls"):
        lab.put(name, certificate("a", "old"))
    return lab.begin()


def authorities(lab: Lab) -> set[str]:
    mounted = lab.judged().mounted
    assert mounted is not None
    return {each.pem.strip() for each in mounted.trusted}


OLD, NEW = (certificate("a", by)["ca.crt"].strip() for by in ("old", "new"))


def test_authority_of_a_renewed_client_certificate_is_trusted_before_that_of_the_nodes_is_renewed() -> None:
    lab = issued_lab()
    lab.put("demo-client-tls", certificate("b", "new"))
    lab.settle()
    assert authorities(lab) == {OLD, NEW}, "cert-manager renews each certificate on its own"
    lab.check()


def test_clients_with_a_certificate_of_the_former_authority_stay_connected() -> None:
    lab = issued_lab()
    lab.put("demo-server-tls", certificate("b", "new"))
    lab.settle()
    assert lab.judged().access.pair == issued("b", "new")
    lab.put("demo-client-tls", certificate("b", "new"))
    lab.settle()
    assert authorities(lab) == {OLD, NEW}, "until it expires: clients of other Certificates may still present one"


def test_authority_that_a_user_removes_is_not_trusted_any_more() -> None:
    lab = Lab(resource=wished(**TLS))
    lab.put(OWN, certificate("a", "old"))
    lab.begin()
    lab.put(OWN, certificate("b", "new"))
    lab.settle()
    assert authorities(lab) == {NEW}


def test_renewed_certificate_is_loaded_although_the_password_is_missing() -> None:
    lab = Lab(resource=wished(**AUTH, **TLS))
    lab.give("one")
    lab.put(OWN, certificate("a", "old"))
    lab.begin()
    lab.found[GIVEN] = None
    lab.put(OWN, certificate("b", "old"))
    lab.settle()
    found = lab.judged()
    assert found.problem is not None
    assert (found.problem.reason, found.desired) == ("SecretMissing", None)
    assert found.access.pair == issued("b", "old")
    assert found.access.password == "one"


def test_expiry_is_recorded_by_secret() -> None:
    assert judged(secret(OWN, certificate("a", "old")), **TLS).validity.keys() == {OWN}
    lab = Lab(resource=wished(tls={"mode": "self"})).begin()
    assert lab.judged().validity.keys() == {"demo-ca", "demo-server-tls", "demo-client-tls"}


def test_representation_has_no_password() -> None:
    lab = Lab()
    lab.give("hunter2", previous="correct horse")
    lab.begin()
    shown = repr(lab.judged())
    assert "hunter2" not in shown
    assert "correct" not in shown
