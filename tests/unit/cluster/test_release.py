"""What `make up` waits for."""

from pathlib import Path

from e2e.cluster import release

SAMPLE = """\
apiVersion: v1
kind: Secret
metadata: {name: password}
---
apiVersion: etcd.ydzs.io/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
---
apiVersion: cache.example.com/v1alpha1
kind: Memcached
metadata: {name: cache, namespace: other}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: open}
"""


def test_what_operators_serve_is_waited_for_and_nothing_else(tmp_path: Path) -> None:
    sample = tmp_path / "sample.yaml"
    sample.write_text(SAMPLE)
    assert list(release._resources(sample)) == [
        ("EtcdCluster.etcd.ydzs.io/demo", "default"),
        ("Memcached.cache.example.com/cache", "other"),
    ]
