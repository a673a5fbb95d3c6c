"""Secrets of a cluster: required content, credentials of the operator, and the digest that restarts members."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from operators.etcd.client.errors import Unreachable
from operators.etcd.client.server import Access
from operators.etcd.security.secrets import Secrets, judge, names, read
from operators.etcd.steps.credentials import other_credentials
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import SECRET, Obj
from shared.pki import ca
from shared.pki.certs import Pair
from shared.pki.secret_checks import SecretProblem
from shared.status.reasons import Reason
from simulator.api_server.kinds import NAMESPACE
from simulator.api_server.server import ApiServer
from tests.etcd.unit.client.gateway_stub import STATUS, fake, requiring_token
from tests.etcd.unit.security.secret_fixtures import BEGINS, ClusterSecrets, encoded
from tests.etcd.unit.world import UID, cluster

ROOT: Obj = {"auth": {"rootSecretName": "root"}}
GIVEN: Obj = {"tls": {"mode": "secret", "peer": {"secretName": "peers"}, "client": {"secretName": "clients"}}}
OPEN: Obj = {"tls": GIVEN["tls"] | {"client": {"secretName": "clients", "auth": "none"}}}
ISSUED: Obj = {"tls": {"mode": "certManager", "issuer": {"name": "team-ca"}}}
MEMBER, SERVICE = "*.demo.default.svc", "demo-client.default.svc"


@cache
def signer(name: str) -> Pair:
    return ca.authority(name, begins=BEGINS, ends=BEGINS + timedelta(days=1000))


@cache
def pair(*hosts: str, by: str = "own-ca", client: bool = True, name: str = "x") -> Pair:
    ends = BEGINS + timedelta(days=90)
    return ca.issue(signer(by), name, begins=BEGINS, ends=ends, hosts=hosts, client=client)


def secret(name: str, uid: str = "1", **content: str) -> Obj:
    """Build a Secret; `tls_crt` means `tls.crt`."""
    data = {key.replace("_", "."): encoded(text) for key, text in content.items()}
    return {"kind": "Secret", "metadata": {"name": name, "namespace": "default", "uid": uid}, "data": data}


def tls(name: str, leaf: Pair, by: str = "own-ca", uid: str = "1") -> Obj:
    certificate = signer(by).certificate
    return secret(name, uid, tls_crt=leaf.certificate, tls_key=leaf.key, ca_crt=certificate)


PEERS, CLIENTS = tls("peers", pair(MEMBER)), tls("clients", pair(MEMBER, SERVICE))


def judged(*found: Obj, **spec: Any) -> Secrets:
    resource = cluster(**spec)
    return judge(resource, dict.fromkeys(names(resource)) | {each["metadata"]["name"]: each for each in found})


def complaint(*found: Obj, **spec: Any) -> tuple[str, str]:
    problem = judged(*found, **spec).problem
    return (problem.reason, problem.message) if problem else ("", "")


def test_cluster_without_tls_and_users_needs_no_secrets() -> None:
    assert judged() == Secrets()
    assert {*names(cluster())} == set()


def test_names_of_the_secrets_follow_from_the_spec() -> None:
    copies = {"demo-peer-mounted", "demo-server-mounted"}
    users = {"root", "demo-operator-auth", "demo-client-password"}
    assert {*names(cluster(**ROOT, **GIVEN))} == {*users, "peers", "clients", *copies}
    assert {*names(cluster(auth={"rootSecretName": "root", "connectAs": "root"}))} == {"root", "demo-operator-auth"}
    assert {*names(cluster(**ROOT, connectionSecret=False))} == {"root", "demo-operator-auth"}
    assert {*names(cluster(tls={"mode": "self"}))} == {"demo-ca", "demo-peer-tls", "demo-server-tls", "demo-client-tls"}
    issued = {"demo-peer-tls", "demo-server-tls", "demo-client-tls"}
    assert {*names(cluster(**ISSUED))} == {*issued, *copies, "demo-client-mounted"}


async def test_secrets_are_read_from_the_api_server() -> None:
    server = ApiServer()
    user = server.actor("kubectl")
    user.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    resource, kube = cluster(**ROOT), Kube(server, manager="etcd-operator")
    assert (await read(resource, kube)).problem is not None
    user.create(SECRET, {"apiVersion": "v1", **secret("root", password="s3cret")})
    assert (await read(resource, kube)).access == Access(user="root", password="s3cret")


# Passwords.


def test_missing_password_is_reported() -> None:
    reason, message = complaint(**ROOT)
    assert reason == "SecretMissing"
    assert message.startswith("spec.auth: Secret root does not exist. Create it with password")
    assert complaint(secret("root", other="x"), **ROOT) == (
        "SecretMissing",
        "spec.auth: Secret root has no password. Add it.",
    )


def test_password_with_a_trailing_line_break_is_refused() -> None:
    reason, message = complaint(secret("root", password="s3cret\n"), **ROOT)
    assert reason == "SecretInvalid"
    assert "s3cret" not in message


@pytest.mark.parametrize("password", ["s3cret\0x", "s3\ncret", "s3cret\x1b"])
def test_password_with_a_control_character_is_refused(password: str) -> None:
    reason, message = complaint(secret("root", password=password), **ROOT)
    assert reason == "SecretInvalid"
    assert "password contains a control character" in message
    assert "s3" not in message


def test_password_is_optional_while_authentication_is_being_disabled() -> None:
    ended: Obj = {"auth": {"rootSecretName": "root", "enabled": False}}
    assert complaint(**ended) == ("", "")
    assert judged(secret("root", password="s3cret"), **ended).access == Access(user="root", password="s3cret")


def test_previous_password_is_known_while_the_password_changes() -> None:
    assert judged(secret("root", password="new", previousPassword="old"), **ROOT).previous_password == "old"


async def test_password_is_not_used_before_the_certificates_exist() -> None:
    """A server without TLS at the address of a member requires a password, and gets none of those that are known."""
    secrets = ClusterSecrets(cluster(tls={"mode": "self"}, **ROOT))
    secrets.found["root"] = secret("root", password="s3cret", previousPassword="0ther")
    known = secrets.judged()
    for access in (known.access, *other_credentials(known, refused=Access())):
        async with fake(maintenance_status=requiring_token(STATUS, set())) as server, server.connected(access) as etcd:
            with pytest.raises(Unreachable, match="requires TLS, and its certificate authority is unknown"):
                await etcd.status()
            assert not server.requests
    secrets.settle()
    assert (secrets.judged().access.user, secrets.judged().access.password) == ("root", "s3cret")


def test_repr_discloses_no_content_of_the_secrets() -> None:
    secrets = ClusterSecrets(cluster(tls={"mode": "self"}, **ROOT))
    secrets.settle()
    secrets.found["root"] = secret("root", password="s3cret", previousPassword="0ther")
    shown = repr(secrets.judged())
    assert not [hidden for hidden in ("s3cret", "0ther", "PRIVATE", encoded("s3cret")) if hidden in shown]


# Certificates supplied by the user.


def test_valid_certificates_are_accepted() -> None:
    found = judged(PEERS, CLIENTS, **GIVEN)
    assert found.problem is None
    assert found.access == Access(signer("own-ca").certificate, pair(MEMBER, SERVICE))
    assert {name: each.ends for name, each in found.validity.items()} == dict.fromkeys(
        ("peers", "clients"), BEGINS + timedelta(days=90)
    )


def test_operator_presents_no_certificate_without_client_authentication() -> None:
    server_only = tls("clients", pair(MEMBER, SERVICE, client=False))
    found = judged(PEERS, server_only, **OPEN)
    assert (found.problem, found.access) == (None, Access(signer("own-ca").certificate))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((), "spec.tls.peer: Secret peers does not exist"),
        ((PEERS,), "spec.tls.client: Secret clients does not exist"),
        ((PEERS, secret("clients", tls_crt="x", tls_key="y")), "spec.tls.client: Secret clients has no ca.crt"),
        ((tls("peers", pair("elsewhere")), CLIENTS), "reject tls.crt for demo-0.demo.default.svc"),
        ((PEERS, tls("clients", pair(MEMBER))), "reject tls.crt for demo-client.default.svc"),
        ((PEERS, tls("clients", pair(MEMBER, SERVICE, client=False))), "as a client certificate (un"),
        ((tls("peers", pair(MEMBER, client=False)), CLIENTS), "as a client certificate (un"),
        ((PEERS, tls("clients", pair(MEMBER, SERVICE, by="other-ca"))), "does not verify tls.crt"),
        (
            (tls("peers", Pair(pair(MEMBER).certificate, pair(SERVICE).key)), CLIENTS),
            "the key does not belong to the certificate",
        ),
        ((secret("peers", tls_crt="no", tls_key="no", ca_crt="no"), CLIENTS), "no certificate in PEM format found"),
    ],
)
def test_certificates_that_members_or_clients_would_refuse_are_refused(found: tuple[Obj, ...], expected: str) -> None:
    reason, message = complaint(*found, **GIVEN)
    assert reason in ("SecretMissing", "SecretInvalid")
    assert expected in message


def test_with_users_the_operators_certificate_must_not_have_a_common_name() -> None:
    root, nameless = secret("root", password="s3cret"), tls("clients", pair(MEMBER, SERVICE, name=""))
    reason, message = complaint(root, PEERS, CLIENTS, **GIVEN, **ROOT)
    assert reason == "SecretInvalid"
    assert "Secret clients: tls.crt has a common name" in message
    assert complaint(root, PEERS, nameless, **GIVEN, **ROOT) == ("", "")
    assert complaint(root, PEERS, CLIENTS, **OPEN, **ROOT) == ("", ""), "the operator presents none"


def test_secret_checks_ignore_the_validity_period() -> None:
    assert complaint(PEERS, CLIENTS, **GIVEN) == ("", ""), f"the validity starts at {BEGINS}"


# Certificates issued by cert-manager.


def test_certificates_not_yet_issued_by_cert_manager_are_reported() -> None:
    assert judged(**ISSUED).problem == SecretProblem(
        Reason("SecretMissing"),
        "spec.tls: cert-manager has not issued Secret demo-peer-tls yet. See kubectl describe certificate "
        "demo-peer-tls.",
    )
    three = [
        tls("demo-peer-tls", pair(MEMBER)),
        tls("demo-server-tls", pair(MEMBER, SERVICE)),
        tls("demo-client-tls", pair()),
    ]
    assert judged(*three, **ISSUED).access == Access(signer("own-ca").certificate, pair())
    assert "Secret demo-client-tls" in complaint(*three[:2], **ISSUED)[1]


def own_secret(**texts: str) -> Obj:
    owner = {"uid": UID, "controller": True}
    metadata = {"name": "demo-operator-auth", "ownerReferences": [owner]}
    return {"metadata": metadata, "data": {key: encoded(text) for key, text in texts.items()}}


def test_stored_password_replaces_a_missing_secret_of_root() -> None:
    found = {"root": None, "demo-operator-auth": own_secret(password="one", previousPassword="zero")}
    known = judge(cluster(**ROOT), found)
    assert known.problem is not None, "pods are not affected, but the user learns of it"
    assert known.access_problem is None, "snapshots are still taken"
    assert (known.access.user, known.access.password, known.password_secret) == ("root", "one", "demo-operator-auth")
    assert known.stored == ("one", "zero")
    foreign = {**found, "demo-operator-auth": own_secret(password="one") | {"metadata": {"name": "x"}}}
    assert judge(cluster(**ROOT), foreign).stored == (), "a Secret of another owner"


def test_stored_password_is_used_without_spec_auth_only_if_it_was_read() -> None:
    assert judge(cluster(), {}).access.user == ""
    assert judge(cluster(), {"demo-operator-auth": own_secret(password="one")}).access.password == "one"
