"""What Secrets must hold, what lets the operator in, and what of them restarts members."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from operators.etcd.client.server import Access
from operators.etcd.security.secrets import Secrets, judge, names, read
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import SECRET, Obj
from shared.pki import ca
from shared.pki.certs import Pair
from shared.pki.secret_checks import SecretProblem
from shared.status.reasons import Reason
from shared.testing.api_server.kinds import NAMESPACE
from shared.testing.api_server.server import ApiServer
from tests.unit.etcd.security.secret_fixtures import BEGINS, Vault, encoded
from tests.unit.etcd.world import cluster

ROOT: Obj = {"auth": {"rootSecretName": "root"}}
GIVEN: Obj = {"tls": {"mode": "secret", "peer": {"secretName": "peers"}, "client": {"secretName": "clients"}}}
OPEN: Obj = {"tls": GIVEN["tls"] | {"client": {"secretName": "clients", "auth": "none"}}}
ISSUED: Obj = {"tls": {"mode": "certManager", "issuer": {"name": "ours"}}}
MEMBER, SERVICE = "*.demo.default.svc", "demo-client.default.svc"


@cache
def signer(name: str) -> Pair:
    return ca.authority(name, begins=BEGINS, ends=BEGINS + timedelta(days=1000))


@cache
def pair(*hosts: str, by: str = "ours", client: bool = True, name: str = "x") -> Pair:
    ends = BEGINS + timedelta(days=90)
    return ca.issue(signer(by), name, begins=BEGINS, ends=ends, hosts=hosts, client=client)


def secret(name: str, uid: str = "1", **content: str) -> Obj:
    """A Secret; `tls_crt` stands for tls.crt."""
    data = {key.replace("_", "."): encoded(text) for key, text in content.items()}
    return {"kind": "Secret", "metadata": {"name": name, "namespace": "default", "uid": uid}, "data": data}


def tls(name: str, held: Pair, by: str = "ours", uid: str = "1") -> Obj:
    certificate = signer(by).certificate
    return secret(name, uid, tls_crt=held.certificate, tls_key=held.key, ca_crt=certificate)


PEERS, CLIENTS = tls("peers", pair(MEMBER)), tls("clients", pair(MEMBER, SERVICE))


def judged(*found: Obj, **spec: Any) -> Secrets:
    resource = cluster(**spec)
    return judge(resource, dict.fromkeys(names(resource)) | {each["metadata"]["name"]: each for each in found})


def complaint(*found: Obj, **spec: Any) -> tuple[str, str]:
    problem = judged(*found, **spec).problem
    return (problem.reason, problem.message) if problem else ("", "")


def test_a_cluster_that_asks_for_none_reads_none() -> None:
    assert judged() == Secrets()
    assert names(cluster()) == set()


def test_secrets_are_read_by_name() -> None:
    assert names(cluster(**ROOT, **GIVEN)) == {"root", "peers", "clients"}
    assert names(cluster(tls={"mode": "self"})) == {"demo-ca", "demo-peer-tls", "demo-server-tls", "demo-client-tls"}
    assert names(cluster(**ISSUED)) == {"demo-peer-tls", "demo-server-tls", "demo-client-tls"}


async def test_they_are_read_live() -> None:
    server = ApiServer()
    chart = server.actor("kubectl")
    chart.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    resource, kube = cluster(**ROOT), Kube(server, manager="etcd-operator")
    assert (await read(resource, kube)).problem is not None
    chart.create(SECRET, {"apiVersion": "v1", **secret("root", password="s3cret")})
    assert (await read(resource, kube)).access == Access(user="root", password="s3cret")


# Passwords.


def test_a_password_that_is_missing_is_asked_for() -> None:
    reason, message = complaint(**ROOT)
    assert reason == "SecretMissing"
    assert message.startswith("spec.auth: Secret root does not exist. Create it with password")
    assert complaint(secret("root", other="x"), **ROOT) == (
        "SecretMissing",
        "spec.auth: Secret root has no password. Give it.",
    )


def test_a_line_break_that_an_editor_left_is_no_part_of_a_password() -> None:
    reason, message = complaint(secret("root", password="s3cret\n"), **ROOT)
    assert reason == "SecretInvalid"
    assert "s3cret" not in message


def test_nobody_needs_a_password_once_nobody_is_asked_but_the_operator_may_have_to_end_it() -> None:
    ended: Obj = {"auth": {"rootSecretName": "root", "enabled": False}}
    assert complaint(**ended) == ("", "")
    assert judged(secret("root", password="s3cret"), **ended).access == Access(user="root", password="s3cret")


def test_the_former_password_is_known_while_it_is_changed() -> None:
    assert judged(secret("root", password="new", previousPassword="old"), **ROOT).previous_password == "old"


def test_a_password_never_crosses_the_network_because_certificates_are_missing() -> None:
    vault = Vault(cluster(tls={"mode": "self"}, **ROOT))
    vault.found["root"] = secret("root", password="s3cret")
    assert vault.judged().access == Access()
    vault.settle()
    assert (vault.judged().access.user, vault.judged().access.password) == ("root", "s3cret")


def test_nothing_shows_what_the_secrets_hold() -> None:
    vault = Vault(cluster(tls={"mode": "self"}, **ROOT))
    vault.settle()
    vault.found["root"] = secret("root", password="s3cret", previousPassword="0ther")
    shown = repr(vault.judged())
    assert not [hidden for hidden in ("s3cret", "0ther", "PRIVATE", encoded("s3cret")) if hidden in shown]


# Certificates that a person gives.


def test_certificates_that_fit_are_taken() -> None:
    found = judged(PEERS, CLIENTS, **GIVEN)
    assert found.problem is None
    assert found.access == Access(signer("ours").certificate, pair(MEMBER, SERVICE))
    assert found.authority_key == "ca.crt"
    assert set(found.expires.values()) == {BEGINS + timedelta(days=90)}


def test_where_nobody_asks_clients_the_operator_shows_none() -> None:
    server_only = tls("clients", pair(MEMBER, SERVICE, client=False))
    found = judged(PEERS, server_only, **OPEN)
    assert (found.problem, found.access) == (None, Access(signer("ours").certificate))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ((), "spec.tls.peer: Secret peers does not exist"),
        ((PEERS,), "spec.tls.client: Secret clients does not exist"),
        ((PEERS, secret("clients", tls_crt="x", tls_key="y")), "spec.tls.client: Secret clients has no ca.crt"),
        ((tls("peers", pair("elsewhere")), CLIENTS), "reject tls.crt for demo-0.demo.default.svc"),
        ((PEERS, tls("clients", pair(MEMBER))), "reject tls.crt for demo-client.default.svc"),
        ((PEERS, tls("clients", pair(MEMBER, SERVICE, client=False))), "as a client's certificate (un"),
        ((tls("peers", pair(MEMBER, client=False)), CLIENTS), "as a client's certificate (un"),
        ((PEERS, tls("clients", pair(MEMBER, SERVICE, by="theirs"))), "does not verify tls.crt"),
        ((tls("peers", Pair(pair(MEMBER).certificate, pair(SERVICE).key)), CLIENTS), "the key is not the certificate"),
        ((secret("peers", tls_crt="no", tls_key="no", ca_crt="no"), CLIENTS), "no certificate in PEM format found"),
    ],
)
def test_certificates_that_members_or_clients_would_refuse_are_refused_here(found: tuple[Obj, ...], says: str) -> None:
    reason, message = complaint(*found, **GIVEN)
    assert reason in ("SecretMissing", "SecretInvalid")
    assert says in message


def test_with_users_the_operators_certificate_bears_no_common_name() -> None:
    root, nameless = secret("root", password="s3cret"), tls("clients", pair(MEMBER, SERVICE, name=""))
    reason, message = complaint(root, PEERS, CLIENTS, **GIVEN, **ROOT)
    assert reason == "SecretInvalid"
    assert "Secret clients: tls.crt has a common name" in message
    assert complaint(root, PEERS, nameless, **GIVEN, **ROOT) == ("", "")
    assert complaint(root, PEERS, CLIENTS, **OPEN, **ROOT) == ("", ""), "it shows none"


def test_time_is_for_the_plan_to_judge() -> None:
    assert complaint(PEERS, CLIENTS, **GIVEN) == ("", ""), f"though the clock is not at {BEGINS}"


def test_a_renewed_certificate_restarts_nobody_and_another_authority_everybody() -> None:
    first = judged(PEERS, CLIENTS, **GIVEN).digest
    assert first
    renewed = tls("peers", ca.issue(signer("ours"), "y", begins=BEGINS, ends=BEGINS, hosts=[MEMBER], client=True))
    assert judged(renewed, CLIENTS, **GIVEN).digest == first
    assert judged(tls("peers", pair(MEMBER), uid="2"), CLIENTS, **GIVEN).digest == first, "made again, and the same"
    assert judged(tls("peers", pair(MEMBER, by="theirs"), by="theirs"), CLIENTS, **GIVEN).digest != first
    theirs = tls("clients", pair(MEMBER, SERVICE, by="theirs"), by="theirs")
    assert judged(PEERS, theirs, **GIVEN).digest != first
    assert judged(PEERS, theirs, **OPEN).digest == judged(PEERS, CLIENTS, **OPEN).digest, "etcd does not read it"


# Those that cert-manager makes.


def test_what_cert_manager_has_yet_to_issue_is_waited_for() -> None:
    assert judged(**ISSUED).problem == SecretProblem(
        Reason("SecretMissing"),
        "spec.tls: cert-manager has not issued Secret demo-peer-tls yet; kubectl describe certificate demo-peer-tls "
        "says why.",
    )
    three = [
        tls("demo-peer-tls", pair(MEMBER)),
        tls("demo-server-tls", pair(MEMBER, SERVICE)),
        tls("demo-client-tls", pair()),
    ]
    assert judged(*three, **ISSUED).access == Access(signer("ours").certificate, pair())
    assert "Secret demo-client-tls" in complaint(*three[:2], **ISSUED)[1]
