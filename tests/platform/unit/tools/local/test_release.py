"""Resources for which `make up` waits."""

from pathlib import Path

from tools.local import release

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


def test_only_custom_resources_of_a_sample_are_waited_for(tmp_path: Path) -> None:
    sample = tmp_path / "sample.yaml"
    sample.write_text(SAMPLE)
    assert list(release._resources(sample)) == [
        ("EtcdCluster.etcd.ydzs.io/demo", "default"),
        ("Memcached.cache.example.com/cache", "other"),
    ]
