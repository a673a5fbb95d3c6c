"""Golden objects applied to a real API server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from shared.api.applied_spec import APPLIED_SPEC
from shared.kubernetes.errors import Invalid
from shared.kubernetes.kinds import POD, STATEFUL_SET, Kind, Obj
from shared.kubernetes.managed_fields import difference
from tests.harness import Actor
from tests.platform.api.support.world import World


@dataclass(frozen=True)
class Golden:
    """The golden objects of an operator.

    Attributes:
        directory: directory with a subdirectory per case, each with an objects.yaml that ends with the StatefulSet.
        operator: name of the operator.
        kinds: kinds to apply; the test API server serves no others.
    """

    directory: Path
    operator: str
    kinds: tuple[Kind, ...]

    def objects(self, world: World, case: str) -> list[Obj]:
        """Load the objects of a case for the world's namespace."""
        known = {kind.name for kind in self.kinds}
        found = yaml.safe_load_all((self.directory / case / "objects.yaml").read_text())
        supported = [obj for obj in found if obj["kind"] in known]
        for obj in supported:
            obj["metadata"]["namespace"] = world.namespace
        return supported

    def assert_second_apply_is_a_no_op(self, world: World, case: str) -> None:
        """Assert that a second apply changes nothing, and that the operator would not send it."""
        operator, kinds = world.actor(self.operator), {kind.name: kind for kind in self.kinds}
        for obj in self.objects(world, case):
            kind = kinds[obj["kind"]]
            applied = operator.apply(kind, obj)
            assert difference(obj, applied, self.operator) == []
            again = operator.apply(kind, obj)
            assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]

    def start(self, world: World, case: str) -> None:
        """Create a pod from the template of the StatefulSet.

        Raises:
            KubeError: the namespace does not admit the pod.
        """
        template = self.template(world, case)
        if not any(volume["name"] == "data" for volume in template["spec"].get("volumes", ())):
            template["spec"].setdefault("volumes", []).append({"name": "data", "emptyDir": {}})
        template["spec"].pop("priorityClassName", None)  # this cluster has no such class
        metadata = template["metadata"] | {"name": f"{case}-pod", "namespace": world.namespace}
        world.user_client.create(
            POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        )

    def template(self, world: World, case: str) -> Obj:
        """Return the pod template of the StatefulSet."""
        *_, stateful_set = self.objects(world, case)
        found: Obj = stateful_set["spec"]["template"]
        return found


def assert_claim_templates_are_kept(operator: Actor, desired: Callable[[str, Obj | None], Obj]) -> None:
    """Assert that the operator never changes the immutable claim templates of a StatefulSet.

    Args:
        desired: builds the StatefulSet for a volume size, given the existing one.
    """
    created = operator.apply(STATEFUL_SET, desired("1Gi", None))
    with pytest.raises(Invalid):
        operator.apply(STATEFUL_SET, desired("2Gi", None))
    larger = desired("2Gi", created)
    changes = difference(larger, created, operator.name)
    assert [each for each in changes if APPLIED_SPEC not in each] == []
    operator.apply(STATEFUL_SET, larger)
