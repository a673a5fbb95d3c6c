"""The controller on the in-memory API server."""

from __future__ import annotations

from operators.greeter.api.resource import API
from operators.greeter.controller import controller
from operators.greeter.report.metrics import states
from shared.cli.options import parse_options
from shared.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, POD, SERVICE
from shared.status.resource_metrics import DESIRED, PAUSED, READY
from simulator.harness import Harness


async def test_resource_becomes_ready_and_follows_its_spec() -> None:
    harness = Harness(controller(parse_options("greeter-operator", "greeter", [], {})))
    for text in ("hello", "goodbye"):
        harness.apply("a", text=text)
        await harness.settle()
        status = harness.resource("a")["status"]
        assert status["phase"] == "Running"
        assert [each["status"] for each in status["conditions"]] == ["True", "False", "False"]
        ((_, config_map),) = harness.server.objects(CONFIG_MAP)
        assert (config_map["metadata"]["name"], config_map["data"]) == (status["configMap"], {"text": text})
    writes = len(harness.server.log.writes())
    await harness.settle()
    assert len(harness.server.log.writes()) == writes, "without changes there are no writes"
    assert {sample.state: sample.value for sample in states(harness.resource("a"))} == {DESIRED: 1, READY: 1, PAUSED: 0}


def test_applied_objects_have_an_owner_reference() -> None:
    served = controller(parse_options("greeter-operator", "greeter", [], {}))
    assert served.kinds == (API.kind, CONFIG_MAP, SERVICE, DEPLOYMENT, POD)
