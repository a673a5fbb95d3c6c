"""Members of `FakeEtcd` without Kubernetes, for stories."""

from __future__ import annotations

from operators.etcd.client.server import Access, Endpoint, Server
from shared.kubernetes.kinds import Obj
from tests.support.etcd.lab import ending
from tests.unit.etcd.simulation.database import FakeEtcd

IMAGE = "etcd:v3.6.16"


class FakeLab:
    """`recorded_conformance.Lab` in memory; every start is in another pod, on the disk of that name."""

    def __init__(self, etcd: FakeEtcd | None = None) -> None:
        self.told: list[str] = []
        self.etcd = etcd or FakeEtcd()
        self._pods: dict[str, Obj] = {}
        self._disks: dict[str, str] = {}
        self._made = 0

    def url(self, name: str) -> str:
        return f"http://{name}:2380"

    async def start(self, name: str, state: str, initial: dict[str, str], image: str = IMAGE) -> str:
        self._made += 1
        uid = f"pod-{self._made}"
        args = [
            f"--name={name}",
            "--data-dir=/data/etcd",
            f"--initial-advertise-peer-urls={self.url(name)}",
            f"--initial-cluster-state={state}",
            f"--initial-cluster={','.join(f'{key}={url}' for key, url in initial.items())}",
            "--initial-cluster-token=story",
        ]
        mount = {"name": "data", "mountPath": "/data"}
        container = {"name": "etcd", "image": image, "args": args, "volumeMounts": [mount]}
        self._pods[name] = {
            "metadata": {"name": name, "namespace": "default", "uid": uid},
            "spec": {"containers": [container]},
            "status": {"podIP": uid},
        }
        return self.look(name)

    def look(self, name: str) -> str:
        """What a member ended with, as the kubelet hears it; empty if it runs."""
        disk = self._disks.setdefault(name, f"disk-{name}-{self._made}")
        claim = {"metadata": {"name": f"data-{name}", "uid": disk}}
        fate = self.etcd.run(self._pods[name], {"data": claim})
        return ending(fate.said) if fate.said else ""

    async def stop(self, name: str) -> None:
        self.etcd.end(self._pods.pop(name)["metadata"]["uid"])

    async def wipe(self, name: str) -> None:
        await self.stop(name)
        self.etcd.end(self._disks.pop(name))

    async def ended(self, name: str) -> str:
        return self.look(name)

    async def calm(self) -> None:
        pass

    def server(self, name: str) -> Server:
        pod = self._pods.get(name)
        address = pod["status"]["podIP"] if pod else ""
        return self.etcd.connect(Endpoint(name, address, name), Access())
