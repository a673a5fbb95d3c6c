"""Certificates of a cluster and their storage in Secrets."""

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
from tests.etcd.unit.security.secret_fixtures import AUTHORITY, PEER, ClusterSecrets
from tests.etcd.unit.world import cluster


def test_written_authorities_are_parsed_without_loss() -> None:
    secrets = ClusterSecrets()
    secrets.settle()
    authorities = authorities_of(secrets.found[AUTHORITY])
    assert authorities.signer is not None
    assert authorities_content(authorities) == content_of(secrets.found[AUTHORITY])
    assert trust_content(authorities.trusted).items() <= content_of(secrets.found[PEER]).items()


@given(st.dictionaries(st.sampled_from(["ca.crt", "ca.key", "next.crt", "former.crt", "tls.crt"]), st.binary()))
def test_secret_with_arbitrary_content_is_parsed(content: dict[str, bytes]) -> None:
    secret = {"data": {key: base64.b64encode(value).decode() for key, value in content.items()}}
    assert authorities_of(secret) == Authorities()
    assert issued_in(secret) is None


def test_cert_manager_certificates_match_the_operators_own() -> None:
    resource = cluster(tls={"mode": "certManager", "issuer": {"name": "team-ca", "kind": "ClusterIssuer"}})
    made = cert_manager_certificates(
        names.owner(resource, "x"), COMPONENT, leaves(resource), Issuer(name="team-ca", kind="ClusterIssuer")
    )
    found = {obj["spec"]["secretName"]: obj["spec"] for obj in made}
    assert found.keys() == {leaf.secret for leaf in leaves(resource)}
    for leaf in leaves(resource):
        spec = found[leaf.secret]
        assert {*spec.get("dnsNames", ()), *spec.get("ipAddresses", ())} == set(leaf.hosts)
        assert ("server auth" in spec["usages"]) is bool(leaf.hosts)
        assert "client auth" in spec["usages"]
        assert len(spec.get("commonName", "")) <= 64
        assert bool(spec.get("commonName")) is bool(leaf.hosts), "with users, etcd's gateway refuses a common name"
        assert bool(spec.get("uris")) is not bool(leaf.hosts), "cert-manager requires a name"


def test_common_names_of_the_longest_cluster_name_fit_64_characters() -> None:
    resource = cluster()
    resource.obj["metadata"]["name"] = "a" * 52
    assert max(len(leaf.name) for leaf in leaves(resource)) <= 64
