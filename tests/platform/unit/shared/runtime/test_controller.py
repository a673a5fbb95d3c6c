"""Metrics of resources that a controller adds."""

from typing import Any

from shared.api.catalogue import Weaknesses
from shared.kubernetes.kinds import DEPLOYMENT
from shared.runtime.controller import Controller
from shared.status.resource_metrics import ADVISORY, DESIRED


async def _unused(*_: object) -> None:
    """No test calls it."""


def test_each_advisory_that_applies_has_a_sample() -> None:
    controller: Controller[Any, Any] = Controller(
        "operator",
        DEPLOYMENT,
        (),
        dict,
        _unused,
        lambda *_: None,  # type: ignore[arg-type]
        states=lambda obj: [DESIRED(obj["size"])],
        weaknesses=lambda obj: Weaknesses(("CVE-1", "CVE-2") if obj["size"] > 1 else ()),
    )
    assert list(controller.samples({"size": 2})) == [DESIRED(2), ADVISORY(1, "CVE-1"), ADVISORY(1, "CVE-2")]
    assert list(controller.samples({"size": 1})) == [DESIRED(1)]
