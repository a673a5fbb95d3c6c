"""Golden files of the owned objects: golden/<case>/{rediscluster,objects}.yaml.

After an intended change, write them with UPDATE_GOLDEN=1 and read the difference: a changed template restarts all pods
of every user.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from operators.redis.api.resource import RedisCluster
from operators.redis.database import DATABASE
from operators.redis.facts.bus_port import bus_port
from operators.redis.objects import names, stateful_set
from operators.redis.objects import pod as template
from operators.redis.objects.names import USERS_MARK
from operators.redis.security import certificates
from operators.redis.settings import Settings
from operators.redis.state.observed import Observed
from operators.redis.state.volume_record import origin
from operators.redis.steps import configuration
from shared.runtime.plan import Apply
from shared.steps.certificates import cert_manager_certificates
from tests.redis.unit.world import assess

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir())
SETTINGS = Settings("redis-operator", "example/redis")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class PlainDumper(yaml.SafeDumper):
    """YAML without anchors, and with multi-line strings as blocks."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


PlainDumper.add_representer(str, _text)


@pytest.mark.parametrize("case", CASES)
def test_objects_match_the_golden_file(case: str) -> None:
    given = yaml.safe_load((GOLDEN / case / "rediscluster.yaml").read_text())
    given["metadata"] |= {"namespace": "default", "uid": "11111111-1111-1111-1111-111111111111", "generation": 1}
    resource, observed = RedisCluster.parse(given), Observed()
    own = names.owner(resource, SETTINGS.operator)
    steps = [
        DATABASE.ensure_services(assess(resource, observed)),
        configuration.ensure_config_map(assess(resource, observed)),
        DATABASE.ensure_disruption_budget(assess(resource, observed)),
        DATABASE.ensure_network_policy(assess(resource, observed)),
    ]
    objects = [action.obj for step in steps for action in step.actions if isinstance(action, Apply)]
    if (issuer := resource.spec.tls.issuer) is not None:
        objects += cert_manager_certificates(own, names.COMPONENT, certificates.leaves(resource), issuer)
    image, digest = (
        resource.image_reference(SETTINGS.image_repository),
        configuration.config_marks(assess(resource, observed))[0],
    )
    uid = origin(resource, observed)
    pod = template.pod(
        resource, own, image, {USERS_MARK: "d" * 16}, digest, origin=uid, bus_port=bus_port(assess(resource, observed))
    )
    objects.append(stateful_set.stateful_set(resource, own, pod, resource.spec.replicas, origin=uid))
    file = GOLDEN / case / "objects.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(yaml.dump_all(objects, Dumper=PlainDumper, sort_keys=False))
    assert objects == list(yaml.safe_load_all(file.read_text()))


@pytest.mark.parametrize("case", CASES)
def test_every_pod_meets_the_restricted_pod_security_standard(case: str) -> None:
    *_, stateful_set = yaml.safe_load_all((GOLDEN / case / "objects.yaml").read_text())
    pod = stateful_set["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not {"stdin", "tty"} & container.keys()
        assert container.get("lifecycle") in (None, {"preStop": {"sleep": {"seconds": 5}}}), "no program of the image"
    kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"emptyDir", "configMap", "secret", "persistentVolumeClaim"} or case == "on-directories-of-nodes"


def test_manifest_of_the_first_release_has_all_owned_objects() -> None:
    objects = yaml.safe_load_all((GOLDEN / "seed" / "objects.yaml").read_text())
    assert [(obj["kind"], obj["metadata"]["name"]) for obj in objects] == [
        ("Service", "demo"),
        ("Service", "demo-client"),
        ("ConfigMap", "demo-config"),
        ("PodDisruptionBudget", "demo"),
        ("NetworkPolicy", "demo-network"),
        ("StatefulSet", "demo"),
    ]


def test_objects_that_outlive_the_resource_have_no_owner() -> None:
    for case in CASES:
        keeps_objects = case == "self-signed-and-lasting"
        for obj in yaml.safe_load_all((GOLDEN / case / "objects.yaml").read_text()):
            assert ("ownerReferences" in obj["metadata"]) is not keeps_objects
