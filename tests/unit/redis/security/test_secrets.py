"""What Secrets must hold, and what lets the operator in."""

from __future__ import annotations

from typing import Any

from operators.redis.security.secrets import Secrets, judge, names, read
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.secrets import encoded
from shared.testing.api_server.kinds import NAMESPACE
from shared.testing.api_server.server import ApiServer
from tests.unit.redis.security.rotation import GIVEN, OWN, Lab, certificate, wished

AUTH: Obj = {"auth": {"secretName": GIVEN}}
TLS: Obj = {"tls": {"mode": "secret", "secretName": OWN}}
ISSUED: Obj = {"tls": {"mode": "certManager", "issuer": {"name": "ours"}}}


def secret(name: str, content: dict[str, str]) -> Obj:
    return {"kind": "Secret", "metadata": {"name": name, "namespace": "default", "uid": "1"}, "data": encoded(content)}


def judged(*found: Obj, **spec: Any) -> Secrets:
    resource = wished(**spec)
    return judge(resource, dict.fromkeys(names(resource)) | {each["metadata"]["name"]: each for each in found})


def complaint(*found: Obj, **spec: Any) -> tuple[str, str]:
    problem = judged(*found, **spec).problem
    return (problem.reason, problem.message) if problem else ("", "")


def test_secrets_are_read_by_name() -> None:
    assert names(wished()) == {"demo-users"}
    assert names(wished(**AUTH, **TLS)) == {"demo-users", GIVEN, OWN, "demo-nodes-tls"}
    ours = {"demo-users", "demo-server-tls", "demo-client-tls", "demo-nodes-tls"}
    assert names(wished(**ISSUED)) == ours
    assert names(wished(tls={"mode": "self"})) == {*ours, "demo-ca"}


async def test_they_are_read_live() -> None:
    server = ApiServer()
    chart = server.actor("kubectl")
    chart.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    resource, kube = wished(**AUTH), Kube(server, manager="redis-operator")
    assert (await read(resource, kube)).problem is not None
    chart.create(SECRET, {"apiVersion": "v1"} | secret(GIVEN, {"password": "one"}))
    found = await read(resource, kube)
    assert (found.problem, found.desired) == (None, "one")


def test_who_asks_for_no_password_wants_none() -> None:
    found = judged()
    assert (found.problem, found.desired, found.access.password, found.access.former) == (None, "", "", ())


def test_a_password_that_is_missing_or_cannot_be_typed_is_told_and_is_not_known() -> None:
    reason, message = complaint(**AUTH)
    assert (reason, message.split(".")[0]) == ("SecretMissing", "spec")
    assert "Secret given does not exist" in message
    assert complaint(secret(GIVEN, {"else": "x"}), **AUTH)[0] == "SecretMissing"
    reason, message = complaint(secret(GIVEN, {"password": "hunter2\n"}), **AUTH)
    assert reason == "SecretInvalid"
    assert "line break" in message
    assert "hunter2" not in message
    assert judged(**AUTH).desired is None


def test_the_operator_enters_by_what_is_good_and_else_by_what_might_be() -> None:
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


def test_users_that_nodes_may_have_read_are_told_apart_by_a_mark_that_tells_nothing() -> None:
    one, other = Lab(), Lab()
    for lab, password in ((one, "one"), (other, "one")):
        lab.give(password)
        lab.begin()
    assert one.judged().users_mark == one.judged().users_mark != ""
    users = other.found["demo-users"]
    assert users is not None
    users["metadata"]["uid"] = "another"
    assert one.judged().users_mark != other.judged().users_mark, "nobody can try passwords by it"


def test_a_certificate_that_nobody_would_take_is_told() -> None:
    assert complaint(**TLS)[0] == "SecretMissing"
    assert complaint(secret(OWN, certificate("a", "old")), **TLS) == ("", "")
    mixed = certificate("a", "old") | {"ca.crt": certificate("a", "new")["ca.crt"]}
    reason, message = complaint(secret(OWN, mixed), **TLS)
    assert reason == "SecretInvalid"
    assert "does not verify tls.crt" in message
    assert judged(secret(OWN, mixed), **TLS).original is None
    assert "cert-manager has not issued Secret demo-server-tls yet" in complaint(**ISSUED)[1]


def test_the_operator_shows_what_nodes_show_and_trusts_what_comes_too() -> None:
    lab = Lab(resource=wished(**TLS))
    lab.put(OWN, certificate("a", "old"))
    lab.begin()
    lab.put(OWN, certificate("b", "new"))
    access = lab.judged().access
    assert access.pair is not None
    assert access.pair.certificate == certificate("a", "old")["tls.crt"], "all nodes take it already"
    assert certificate("a", "old")["ca.crt"].strip() in access.authority
    assert certificate("b", "new")["ca.crt"].strip() in access.authority


def test_when_certificates_end_is_known_by_their_secrets() -> None:
    assert judged(secret(OWN, certificate("a", "old")), **TLS).expires.keys() == {OWN}
    lab = Lab(resource=wished(tls={"mode": "self"})).begin()
    assert lab.judged().expires.keys() == {"demo-ca", "demo-server-tls", "demo-client-tls"}


def test_nothing_secret_is_shown() -> None:
    lab = Lab()
    lab.give("hunter2", previous="correct horse")
    lab.begin()
    shown = repr(lab.judged())
    assert "hunter2" not in shown
    assert "correct" not in shown
