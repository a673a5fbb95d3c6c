"""Certificates of a cluster, and the steps of their rotation."""

from __future__ import annotations

from datetime import timedelta

import pytest

from operators.redis.objects import names
from operators.redis.objects.names import COMPONENT
from operators.redis.security.certificates import MountedCertificates, leaves
from shared.api.spec import Issuer
from shared.kubernetes.secrets import encoded
from shared.pki.copies import following
from shared.steps.certificates import cert_manager_certificates
from tests.redis.unit.security.rotation import certificate, wished
from tests.redis.unit.world import NOW


def mounted(name: str, by: str, *also: str) -> MountedCertificates:
    content = certificate(name, by)
    content |= {"ca.crt": "".join([content["ca.crt"], *(certificate(name, other)["ca.crt"] for other in also)])}
    found = MountedCertificates.of({"data": encoded(content)})
    assert found is not None
    return found


OLD, NEW = mounted("a", "old"), mounted("b", "new")


def test_mounted_certificates_survive_a_round_trip() -> None:
    assert MountedCertificates.of({"data": encoded(OLD.content())}) == OLD
    assert OLD.file in OLD.content()
    assert MountedCertificates.of(None) is None
    assert MountedCertificates.of({"data": encoded(certificate("a", "old") | {"ca.crt": "nonsense"})}) is None


def test_different_certificates_have_different_file_names() -> None:
    found = {each.file for each in (OLD, NEW, mounted("c", "old"), mounted("a", "old", "new"))}
    assert len(found) == 4


def test_first_certificate_is_used_at_once() -> None:
    assert following(None, OLD, informed=False, now=NOW) == ("first certificate", OLD)
    assert following(OLD, OLD, informed=True, now=NOW) == ("", None)
    assert following(OLD, None, informed=True, now=NOW) == ("", None)


def test_renewed_certificate_of_the_same_authority_is_used_at_once() -> None:
    renewed = mounted("c", "old")
    assert following(OLD, renewed, informed=True, now=NOW) == ("new certificate", renewed)
    assert following(OLD, renewed, informed=False, now=NOW) == ("new certificate", renewed), "every node trusts it"


def test_new_authority_is_trusted_before_its_certificate_is_used() -> None:
    _, first = following(OLD, NEW, informed=False, now=NOW)
    assert first == MountedCertificates(OLD.pair, (*NEW.trusted, *OLD.trusted))
    assert following(first, NEW, informed=False, now=NOW) == ("", None)
    _, second = following(first, NEW, informed=True, now=NOW)
    assert second == MountedCertificates(NEW.pair, first.trusted)
    assert following(second, NEW, informed=False, now=NOW) == ("", None)
    assert following(second, NEW, informed=True, now=NOW) == ("updating the trusted authorities", NEW)


def test_expired_certificate_is_replaced_without_waiting() -> None:
    _, found = following(OLD, NEW, informed=False, now=NOW + timedelta(days=500))
    assert found is not None
    assert found.pair == NEW.pair


def test_server_certificate_covers_every_host_name() -> None:
    server, client = leaves(wished(tls={"mode": "self"}))
    assert {"*.demo.default.svc", "demo-client.default.svc.cluster.local", "localhost"} <= set(server.hosts)
    assert (server.secret, client.secret, client.hosts) == ("demo-server-tls", "demo-client-tls", ())


def test_cert_manager_certificates_match_the_own_ones() -> None:
    resource = wished(tls={"mode": "certManager", "issuer": {"name": "issuer", "kind": "ClusterIssuer"}})
    made = cert_manager_certificates(
        names.owner(resource, "x"), COMPONENT, leaves(resource), Issuer(name="issuer", kind="ClusterIssuer")
    )
    found = {obj["spec"]["secretName"]: obj["spec"] for obj in made}
    assert found.keys() == {leaf.secret for leaf in leaves(resource)}
    for leaf in leaves(resource):
        spec = found[leaf.secret]
        assert {*spec.get("dnsNames", ()), *spec.get("ipAddresses", ())} == set(leaf.hosts)
        assert spec["commonName"] == leaf.name
        assert "client auth" in spec["usages"], "nodes are clients of each other"
        assert spec["issuerRef"] == {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "issuer"}


@pytest.mark.parametrize("name", ["a", "a" * 52])
def test_certificate_names_fit_the_length_limit(name: str) -> None:
    resource = wished()
    resource.obj["metadata"]["name"] = name
    assert max(len(leaf.name) for leaf in leaves(resource)) <= 64
