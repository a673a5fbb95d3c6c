"""The certificates that a cluster needs, and how Secrets hold them."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.objects import names
from operators.etcd.objects.names import COMPONENT
from operators.etcd.security.certificates import leaves
from shared.api.spec import Issuer
from shared.kubernetes.secrets import content_of
from shared.pki.rotation import Authorities
from shared.pki.stores import authorities_content, authorities_of, issued_in, trust_content
from shared.steps.certificates import cert_manager_certificates
from tests.unit.etcd.security.secret_fixtures import AUTHORITY, PEER, Vault
from tests.unit.etcd.world import cluster


def test_what_is_read_is_what_was_written() -> None:
    vault = Vault()
    vault.settle()
    held = authorities_of(vault.found[AUTHORITY])
    assert held.signer is not None
    assert authorities_content(held) == content_of(vault.found[AUTHORITY])
    assert trust_content(held.trusted).items() <= content_of(vault.found[PEER]).items()


@given(st.dictionaries(st.sampled_from(["ca.crt", "ca.key", "next.crt", "former.crt", "tls.crt"]), st.binary()))
def test_a_secret_with_anything_in_it_can_be_read(content: dict[str, bytes]) -> None:
    secret = {"data": {key: base64.b64encode(value).decode() for key, value in content.items()}}
    assert authorities_of(secret) == Authorities()
    assert issued_in(secret) is None


def test_cert_manager_is_asked_for_the_same_certificates() -> None:
    resource = cluster(tls={"mode": "certManager", "issuer": {"name": "ours", "kind": "ClusterIssuer"}})
    made = cert_manager_certificates(
        names.owner(resource, "x"), COMPONENT, leaves(resource), Issuer(name="ours", kind="ClusterIssuer")
    )
    found = {obj["spec"]["secretName"]: obj["spec"] for obj in made}
    assert found.keys() == {leaf.secret for leaf in leaves(resource)}
    for leaf in leaves(resource):
        spec = found[leaf.secret]
        assert {*spec.get("dnsNames", ()), *spec.get("ipAddresses", ())} == set(leaf.hosts)
        assert ("server auth" in spec["usages"]) is bool(leaf.hosts)
        assert "client auth" in spec["usages"]
        assert len(spec.get("commonName", "")) <= 64
        assert bool(spec.get("commonName")) is bool(leaf.hosts), "etcd's gateway takes no named client, with users"
        assert bool(spec.get("uris")) is not bool(leaf.hosts), "cert-manager wants some name"


def test_the_longest_name_still_names_its_certificates() -> None:
    resource = cluster()
    resource.obj["metadata"]["name"] = "a" * 52
    assert max(len(leaf.name) for leaf in leaves(resource)) <= 64
