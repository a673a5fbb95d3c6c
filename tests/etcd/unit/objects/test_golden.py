"""The objects of each golden resource, as files to read: golden/<case>/{etcdcluster,objects}.yaml.

start.yaml defines what a pod with an empty data directory may do; without the file, the seed may bootstrap. After an
intended change, update the files with UPDATE_GOLDEN=1 and review the diff: a changed template restarts all members of
every cluster.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Member
from operators.etcd.database import DATABASE
from operators.etcd.objects import names, stateful_set
from operators.etcd.objects import pod as template
from operators.etcd.objects.bootstrap import Closed, Joining, New, Start
from operators.etcd.security import certificates
from operators.etcd.state.observed import Observed
from shared.runtime.plan import Apply
from shared.runtime.settings import Settings
from shared.steps.certificates import cert_manager_certificates
from tests.etcd.unit.world import assess

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir())
SETTINGS = Settings("etcd-operator", "example/etcd")


class Plain(yaml.SafeDumper):
    """A dumper that repeats shared parts instead of writing anchors."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def start_of(case: str) -> Start:
    file = GOLDEN / case / "start.yaml"
    given: dict[str, Any] = yaml.safe_load(file.read_text()) if file.exists() else {}
    if "joining" in given:
        members = tuple(Member(found["id"], found["name"], tuple(found["peerURLs"])) for found in given["members"])
        return Joining(given["joining"], members)
    return Closed() if given.get("closed") else New()


@pytest.mark.parametrize("case", CASES)
def test_objects_equal_the_golden_file(case: str) -> None:
    given = yaml.safe_load((GOLDEN / case / "etcdcluster.yaml").read_text())
    given["metadata"] |= {"namespace": "default", "uid": "11111111-1111-1111-1111-111111111111", "generation": 1}
    resource = EtcdCluster.parse(given)
    own, start = names.owner(resource, SETTINGS.operator), start_of(case)
    mode, secrets, key = resource.spec.tls.mode, template.MountedSecrets(), f"ca-{'d' * 16}.crt"
    if mode != "none":
        own_ca = mode == "self"
        peer = names.peer_secret(resource) if own_ca else names.peer_copy(resource)
        server = names.server_secret(resource) if own_ca else names.server_copy(resource)
        secrets = template.MountedSecrets("d" * 16, template.Mount(peer, key), template.Mount(server, key))
    steps = [
        DATABASE.ensure_services(assess(resource, Observed(), datetime(2026, 1, 1, tzinfo=UTC))),
        DATABASE.ensure_disruption_budget(assess(resource, Observed(), datetime(2026, 1, 1, tzinfo=UTC))),
        DATABASE.ensure_network_policy(assess(resource, Observed(), datetime(2026, 1, 1, tzinfo=UTC))),
    ]
    made = [action.obj for step in steps for action in step.actions if isinstance(action, Apply)]
    if (issuer := resource.spec.tls.issuer) is not None:
        made += cert_manager_certificates(own, names.COMPONENT, certificates.leaves(resource), issuer)
    pod = template.pod(resource, own, resource.image_reference(SETTINGS.image_repository), start, secrets)
    made.append(stateful_set.stateful_set(resource, own, pod, resource.spec.size if start != New() else 1))
    file = GOLDEN / case / "objects.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(yaml.dump_all(made, Dumper=Plain, sort_keys=False))
    assert made == list(yaml.safe_load_all(file.read_text()))


def test_cluster_of_the_first_release_owns_these_objects() -> None:
    objects = yaml.safe_load_all((GOLDEN / "seed" / "objects.yaml").read_text())
    assert [(obj["kind"], obj["metadata"]["name"]) for obj in objects] == [
        ("Service", "demo"),
        ("Service", "demo-client"),
        ("PodDisruptionBudget", "demo"),
        ("NetworkPolicy", "demo-network"),
        ("StatefulSet", "demo"),
    ]
