"""Golden objects as a real API server takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from shared.kubernetes.errors import Invalid
from shared.kubernetes.kinds import POD, STATEFUL_SET, Kind, Obj
from shared.kubernetes.managed_fields import difference
from shared.testing import Actor
from tests.api.support.world import World


@dataclass(frozen=True)
class Golden:
    """What an operator makes.

    Attributes:
        directory: one in it a case, with objects.yaml: the StatefulSet is the last.
        operator: its name.
        kinds: those that are taken here; of others the server knows none.
    """

    directory: Path
    operator: str
    kinds: tuple[Kind, ...]

    def objects(self, world: World, case: str) -> list[Obj]:
        """What there is of a case, in the world's namespace."""
        known = {kind.name for kind in self.kinds}
        found = yaml.safe_load_all((self.directory / case / "objects.yaml").read_text())
        taken = [obj for obj in found if obj["kind"] in known]
        for obj in taken:
            obj["metadata"]["namespace"] = world.namespace
        return taken

    def is_applied_once(self, world: World, case: str) -> None:
        """See that a second apply changes nothing, and that the operator would not make it."""
        operator, kinds = world.actor(self.operator), {kind.name: kind for kind in self.kinds}
        for obj in self.objects(world, case):
            kind = kinds[obj["kind"]]
            applied = operator.apply(kind, obj)
            assert difference(obj, applied, self.operator) == []
            again = operator.apply(kind, obj)
            assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]

    def start(self, world: World, case: str) -> None:
        """Make a pod of the template.

        Raises:
            KubeError: none such may run in this namespace.
        """
        template = self.template(world, case)
        if not any(volume["name"] == "data" for volume in template["spec"].get("volumes", ())):
            template["spec"].setdefault("volumes", []).append({"name": "data", "emptyDir": {}})
        template["spec"].pop("priorityClassName", None)  # a class that nobody made here
        metadata = template["metadata"] | {"name": f"{case}-pod", "namespace": world.namespace}
        world.person.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})

    def template(self, world: World, case: str) -> Obj:
        """The template of its pods."""
        *_, stateful_set = self.objects(world, case)
        found: Obj = stateful_set["spec"]["template"]
        return found


def keeps_its_volumes(operator: Actor, wanted: Callable[[str, Obj | None], Obj]) -> None:
    """See that a StatefulSet, which cannot change what volumes it makes, is not asked to.

    Args:
        wanted: the StatefulSet with volumes of a size, beside the one that there is.
    """
    made = operator.apply(STATEFUL_SET, wanted("1Gi", None))
    with pytest.raises(Invalid):
        operator.apply(STATEFUL_SET, wanted("2Gi", None))
    larger = wanted("2Gi", made)
    assert difference(larger, made, operator.name) == []
    operator.apply(STATEFUL_SET, larger)
