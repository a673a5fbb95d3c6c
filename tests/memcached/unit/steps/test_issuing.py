"""When certificates are issued or requested, and what is reported if they cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.memcached.api.resource import ADMISSION
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects import names
from operators.memcached.security.certificate_requests import leaves
from operators.memcached.security.certificates import ServedCertificate
from operators.memcached.security.secrets import Secrets, parse_secrets
from operators.memcached.steps.issuing import create_certificates, renew_certificates
from shared.kubernetes.kinds import Obj
from shared.pki import certs
from shared.runtime.plan import PASS, Apply, WriteSecret
from shared.status.verdict import Progress
from simulator.memcached.fake_servers import certificate, tls_secret
from tests.memcached.unit.world import EMPTY, NOW, SETTINGS, assess, observed_pods, plan, pod, resource

SELF: Obj = {"tls": {"mode": "self"}}
ISSUED: Obj = {"tls": {"mode": "certManager", "issuer": {"name": "team-ca", "kind": "ClusterIssuer"}}}
CREATED: Obj = {"certificate": "f" * 64}
NONE: dict[str, Obj | None] = dict.fromkeys(("cache-ca", "cache-server-tls", "cache-client-tls"))


def facts(spec: Obj, found: dict[str, Obj | None] | None = None, status: Obj | None = None) -> Assessment:
    parsed = resource(status=status, **spec)
    return assess(parsed, replace(EMPTY, secrets=parse_secrets(parsed, NONE if found is None else found)))


def test_authority_is_the_first_write() -> None:
    seen = facts(SELF)
    step = create_certificates(seen)
    assert [write.obj["metadata"]["name"] for write in step.actions if isinstance(write, WriteSecret)] == ["cache-ca"]
    assert step.reason == "IssuingCertificates"


@pytest.mark.parametrize("status", [None, CREATED], ids=["new", "created"])
def test_only_the_step_of_new_or_of_created_servers_acts(status: Obj | None) -> None:
    seen = facts(SELF, status=status)
    steps = (create_certificates, renew_certificates)
    acts = [step(seen) != PASS for step in steps]
    assert acts == [status is None, status is not None]


@pytest.mark.parametrize("spec", [{}, {"tls": {"mode": "none"}}, {"tls": {"secretName": "cache-server-tls"}}], ids=str)
@pytest.mark.parametrize("status", [None, CREATED], ids=["new", "created"])
def test_nothing_is_issued_in_other_modes(spec: Obj, status: Obj | None) -> None:
    seen = facts(spec, status=status)
    assert create_certificates(seen) == PASS
    assert renew_certificates(seen) == PASS


def test_operator_that_may_not_write_secrets_refuses_to_issue() -> None:
    seen = facts(SELF)
    step = create_certificates(replace(seen, settings=replace(SETTINGS, write_secrets=False)))
    assert (step.progress, step.reason, step.actions) == (Progress.BLOCKED, "CertificatesNotIssued", ())
    assert step.message == (
        "spec.tls.mode: the operator may not issue certificates: its chart value rbac.writeSecrets is false. Use mode "
        "secret or certManager, or set that value to true. Nothing was changed."
    )


def test_present_certificates_are_used_without_the_right_to_write_secrets() -> None:
    present: dict[str, Obj | None] = {"cache-ca": None}
    present |= {name: tls_secret(certificate(), name) for name in ("cache-server-tls", "cache-client-tls")}
    seen = facts(SELF, present)
    assert create_certificates(replace(seen, settings=replace(SETTINGS, write_secrets=False))) == PASS


def test_cert_manager_is_requested_to_issue_for_servers_and_clients() -> None:
    seen = facts(ISSUED)
    step = create_certificates(seen)
    server, client = [action.obj for action in step.actions if isinstance(action, Apply)]
    assert server["spec"]["secretName"] == "cache-server-tls"
    assert server["spec"]["issuerRef"] == {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "team-ca"}
    assert server["spec"]["usages"] == ["digital signature", "client auth", "server auth"], "servers are clients too"
    assert (client["spec"]["secretName"], client["spec"]["usages"]) == (
        "cache-client-tls",
        ["digital signature", "client auth"],
    )
    assert step.progress is Progress.DONE


def test_common_name_of_the_longest_name_is_one_that_cert_manager_accepts() -> None:
    parsed = resource(**ISSUED)
    longest = replace(parsed, obj={**parsed.obj, "metadata": {**parsed.obj["metadata"], "name": "a" * 63}})
    seen = replace(facts(ISSUED), resource=longest)
    made = [action.obj for action in create_certificates(assess(longest, seen)).actions if isinstance(action, Apply)]
    assert [len(each["spec"]["commonName"]) for each in made] == [64, 64]


def test_servers_wait_for_cert_manager() -> None:
    made = plan(resource(**ISSUED), replace(EMPTY, secrets=parse_secrets(resource(**ISSUED), NONE)))
    assert made.verdict.reason == "SecretMissing"
    assert "cert-manager has not issued Secret cache-server-tls yet." in made.verdict.message
    assert {action.obj["kind"] for action in made.actions if isinstance(action, Apply)} == {"Certificate"}


def test_names_of_the_servers_are_unique() -> None:
    server, _ = leaves(resource(**SELF))
    assert len(server.hosts) == len(set(server.hosts))


def test_new_authority_of_cert_manager_replaces_servers_that_verify_clients() -> None:
    """One of mode self does not: its former authority is trusted until it expires."""
    mutual = {"clientAuth": "required"}
    found: dict[str, Obj | None] = NONE | {
        name: tls_secret(certificate(), name) for name in ("cache-server-tls", "cache-client-tls")
    }
    issued = parse_secrets(resource(tls=ISSUED["tls"] | mutual), found)
    own = parse_secrets(resource(tls=SELF["tls"] | mutual), found)
    assert issued.startup_digest("u-1", with_users=False) != ""
    assert own.startup_digest("u-1", with_users=False) == ""
    assert own.issuers == issued.issuers != ""


def test_only_secrets_of_others_are_reported_as_observed() -> None:
    given = resource(auth={"secretName": "users"}, **SELF)
    assert set(parse_secrets(given, NONE | {"users": None}).versions) == {"users"}
    assert set(parse_secrets(resource(**ISSUED), NONE).versions) == {"cache-server-tls"}


def test_successor_is_trusted_only_if_all_servers_were_inspected() -> None:
    (successor,) = certs.read(certificate().certificate)
    parsed = resource(size=2, phase="Running", observed=1, tls={"mode": "self", "clientAuth": "required"})
    seen = observed_pods(pod(0), pod(1))
    secrets = Secrets(successor=successor, trusted_from=NOW)
    loaded = {"cache-0": ServedCertificate("f", age=0.0)}
    partly = assess(parsed, replace(seen, secrets=secrets, served_certificates=loaded))
    assert [each.name for each in partly.servers_without_successor] == ["cache-1"]
    assert partly.informed == ""
    both = loaded | {"cache-1": ServedCertificate("f", age=0.0)}
    known = replace(seen, secrets=secrets, served_certificates=both)
    assert assess(parsed, known).informed != ""
    missing = replace(known, workload=observed_pods(pod(0), pod(1, ready=False)).workload)
    assert assess(parsed, missing).informed == "", "a server that is not ready was not inspected"
    unknown = replace(known, secrets=replace(secrets, trusted_from=None))
    assert assess(parsed, unknown).informed == "", "the time of the change is unknown"


@pytest.mark.parametrize("mode", [SELF, ISSUED], ids=["self", "certManager"])
def test_address_that_no_certificate_has_gives_a_warning(mode: Obj) -> None:
    def warnings(**spec: object) -> tuple[str, ...]:
        given = {"metadata": {"name": "cache", "namespace": "shop"}, "spec": {"size": 1, **mode, **spec}}
        return ADMISSION.review(given, None).warnings

    [warning] = warnings(workload="Deployment")
    assert "verify the name cache.shop.svc" in warning
    assert warnings() == warnings(workload="StatefulSet") == ()


def test_names_of_secrets() -> None:
    assert names.server_secret(resource(**SELF)) == "cache-server-tls"
    assert names.client_secret(resource(**SELF)) == "cache-client-tls"
    given = resource(tls={"secretName": "a"})
    assert (names.server_secret(given), names.client_secret(given)) == ("a", "a")
    assert names.server_secret(resource()) == names.server_secret(resource(tls={"mode": "none"})) == ""
