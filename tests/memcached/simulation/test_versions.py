"""The version that servers run, which the tag of their image does not show: the weaknesses in the status."""

from __future__ import annotations

import pytest

from operators.memcached.api.catalogue import MEMCACHED
from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, Obj
from shared.status.conditions import VULNERABLE
from tests.harness.scenario import ScenarioStep, apply, edit, lose
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.memcached.scenarios import MEMCACHED as SUBJECT
from tests.support.memcached.scenarios import Servers

NEWEST = MEMCACHED.default_version
DIGEST = f"registry.example.com/memcached@sha256:{'0' * 64}"


class Everywhere(set[str]):
    """The addresses of all servers."""

    def __contains__(self, _: object) -> bool:
        return True


class Lab:
    def __init__(self) -> None:
        self.run = ScenarioRun(World(SUBJECT))
        servers = self.run.world.database
        assert isinstance(servers, Servers)
        self.servers = servers

    async def steps(self, *steps: ScenarioStep) -> None:
        await self.run.run_steps(steps)

    @property
    def status(self) -> Obj:
        (resource,) = self.run.stage.find()
        found: Obj = resource["status"]
        return found

    @property
    def is_vulnerable(self) -> bool:
        (resource,) = self.run.stage.find()
        return accessors.condition(resource, VULNERABLE).get("status") == "True"


IMAGES = {
    "floating tag": ({"version": "1.6"}, "memcached:1.6"),
    "variant": ({"version": "bookworm"}, "memcached:bookworm"),
    "digest": ({"image": DIGEST}, DIGEST),
    "private tag": ({"image": "registry.example.com/cache:1.0.3"}, "registry.example.com/cache:1.0.3"),
    "patched tag": ({"image": "registry.example.com/memcached:1.6.18"}, "registry.example.com/memcached:1.6.18"),
}


@pytest.mark.parametrize(("spec", "image"), IMAGES.values(), ids=IMAGES)
@pytest.mark.parametrize("metrics", [{}, None], ids=["sidecar", "no sidecar"])
@pytest.mark.parametrize("version", ["1.6.18", NEWEST])
async def test_weaknesses_are_those_of_the_version_that_servers_report(
    spec: Obj, image: str, version: str, metrics: Obj | None
) -> None:
    lab = Lab()
    lab.servers.programs[image] = version
    given: Obj = spec if metrics is None else spec | {"metrics": metrics}
    await lab.steps(apply(size=2, **given))
    assert lab.is_vulnerable == (version != NEWEST)
    assert (lab.status["serverVersion"], lab.status["serverImages"]) == (version, {f"sha256:{version}": version})
    assert lab.status["version"] == (DIGEST.partition("@")[2] if "@" in image else image.rpartition(":")[2])


async def test_lowest_version_counts_while_nodes_run_different_images_of_one_tag() -> None:
    lab = Lab()
    lab.servers.programs["memcached:1.6"] = "1.6.18"
    await lab.steps(apply(size=2, version="1.6"))
    lab.servers.programs["memcached:1.6"] = NEWEST  # the tag moves
    await lab.steps(lose(POD))
    assert lab.status["serverImages"] == {"sha256:1.6.18": "1.6.18", f"sha256:{NEWEST}": NEWEST}
    assert (lab.status["serverVersion"], lab.is_vulnerable) == ("1.6.18", True)
    await lab.steps(apply(size=2, version="1.6", memoryMB=128))
    assert lab.status["serverImages"] == {f"sha256:{NEWEST}": NEWEST}
    assert not lab.is_vulnerable


async def test_version_of_an_image_is_queried_once() -> None:
    lab = Lab()
    await lab.steps(apply(size=3))
    queries = lab.servers.queries
    await lab.steps(edit(None, {"metadata": {"labels": {"a": "b"}}}), apply(size=3, network={"enabled": False}))
    assert queries <= 2, "the passes of one reconcile, until it writes the status"
    assert lab.servers.queries == queries


@pytest.mark.parametrize(("version", "vulnerable"), [("1.6", False), ("1.6.18", True)])
async def test_only_an_exact_tag_counts_while_no_server_responds(version: str, vulnerable: bool) -> None:
    lab = Lab()
    lab.servers.unreachable = Everywhere()
    await lab.steps(apply(size=2, version=version))
    assert "serverVersion" not in lab.status
    assert lab.is_vulnerable == vulnerable
    lab.servers.unreachable = set()
    await lab.steps(edit(None, {"metadata": {"labels": {"a": "b"}}}))
    assert lab.status["serverVersion"] == version
