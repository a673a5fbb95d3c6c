"""The certificates that a cluster needs, and in what steps nodes come to others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from operators.redis.objects import names
from operators.redis.objects.names import COMPONENT
from operators.redis.security.certificates import MountedCertificates, following, leaves
from shared.api.spec import Issuer
from shared.kubernetes.secrets import encoded
from shared.steps.certificates import cert_manager_certificates
from tests.unit.redis.security.rotation import certificate, wished
from tests.unit.redis.world import NOW


def mounted(name: str, by: str, *also: str) -> MountedCertificates:
    content = certificate(name, by)
    content |= {"ca.crt": "".join([content["ca.crt"], *(certificate(name, other)["ca.crt"] for other in also)])}
    found = MountedCertificates.of({"data": encoded(content)})
    assert found is not None
    return found


OLD, NEW = mounted("a", "old"), mounted("b", "new")


def test_what_is_read_is_what_was_written() -> None:
    assert MountedCertificates.of({"data": encoded(OLD.content())}) == OLD
    assert OLD.file in OLD.content()
    assert MountedCertificates.of(None) is None
    assert MountedCertificates.of({"data": encoded(certificate("a", "old") | {"ca.crt": "nonsense"})}) is None


def test_what_differs_in_anything_that_counts_has_another_name() -> None:
    found = {each.file for each in (OLD, NEW, mounted("c", "old"), mounted("a", "old", "new"))}
    assert len(found) == 4


def test_the_first_comes_as_it_is() -> None:
    assert following(None, OLD, reachable=False, now=NOW) == ("first certificate", OLD)
    assert following(OLD, OLD, reachable=True, now=NOW) == ("", None)
    assert following(OLD, None, reachable=True, now=NOW) == ("", None)


def test_another_certificate_of_the_same_authority_comes_at_once() -> None:
    renewed = mounted("c", "old")
    assert following(OLD, renewed, reachable=True, now=NOW) == ("new certificate", renewed)
    assert following(OLD, renewed, reachable=False, now=NOW) == ("", None), "one after the other"


def test_another_authority_is_trusted_before_and_the_former_one_until_after() -> None:
    _, first = following(OLD, NEW, reachable=False, now=NOW)
    assert first == MountedCertificates(OLD.pair, (*NEW.trusted, *OLD.trusted))
    assert following(first, NEW, reachable=False, now=NOW) == ("", None)
    _, second = following(first, NEW, reachable=True, now=NOW)
    assert second == MountedCertificates(NEW.pair, first.trusted)
    assert following(second, NEW, reachable=False, now=NOW) == ("", None)
    assert following(second, NEW, reachable=True, now=NOW) == ("updating the trusted authorities", NEW)


def test_what_has_ended_is_replaced_without_waiting() -> None:
    _, found = following(OLD, NEW, reachable=False, now=NOW + timedelta(days=500))
    assert found is not None
    assert found.pair == NEW.pair


def test_a_certificate_is_for_every_name_by_which_nodes_are_found() -> None:
    server, client = leaves(wished(tls={"mode": "self"}))
    assert {"*.demo.default.svc", "demo-client.default.svc.cluster.local", "localhost"} <= set(server.hosts)
    assert (server.secret, client.secret, client.hosts) == ("demo-server-tls", "demo-client-tls", ())


def test_cert_manager_is_asked_for_the_same_certificates() -> None:
    resource = wished(tls={"mode": "certManager", "issuer": {"name": "ours", "kind": "ClusterIssuer"}})
    made = cert_manager_certificates(
        names.owner(resource, "x"), COMPONENT, leaves(resource), Issuer(name="ours", kind="ClusterIssuer")
    )
    found = {obj["spec"]["secretName"]: obj["spec"] for obj in made}
    assert found.keys() == {leaf.secret for leaf in leaves(resource)}
    for leaf in leaves(resource):
        spec = found[leaf.secret]
        assert {*spec.get("dnsNames", ()), *spec.get("ipAddresses", ())} == set(leaf.hosts)
        assert spec["commonName"] == leaf.name
        assert "client auth" in spec["usages"], "nodes are each other's clients"
        assert spec["issuerRef"] == {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "ours"}


@pytest.mark.parametrize("name", ["a", "a" * 52])
def test_any_name_names_its_certificates(name: str) -> None:
    resource = wished()
    resource.obj["metadata"]["name"] = name
    assert max(len(leaf.name) for leaf in leaves(resource)) <= 64
