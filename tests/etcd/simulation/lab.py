"""Members of `FakeEtcd` without Kubernetes, for recorded sessions."""

from __future__ import annotations

from operators.etcd.client.server import Access, Endpoint, Server
from shared.kubernetes.kinds import Obj
from tests.etcd.simulation.database import FakeEtcd
from tests.support.etcd.lab import known_exit

IMAGE = "etcd:v3.6.16"


class FakeLab:
    """`recorded_conformance.Lab` in memory; every start uses a new pod on the same disk."""

    def __init__(self, etcd: FakeEtcd | None = None) -> None:
        self.transcript: list[str] = []
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
            "--initial-cluster-token=session",
        ]
        mount = {"name": "data", "mountPath": "/data"}
        container = {"name": "etcd", "image": image, "args": args, "volumeMounts": [mount]}
        self._pods[name] = {
            "metadata": {"name": name, "namespace": "default", "uid": uid},
            "spec": {"containers": [container]},
            "status": {"podIP": uid},
        }
        return self.run_pod(name)

    def run_pod(self, name: str) -> str:
        """Run a member's pod as the kubelet does; return the message of its exit, empty if it runs."""
        disk = self._disks.setdefault(name, f"disk-{name}-{self._made}")
        claim = {"metadata": {"name": f"data-{name}", "uid": disk}}
        fate = self.etcd.run(self._pods[name], {"data": claim})
        return known_exit(fate.termination_message) if fate.termination_message else ""

    async def stop(self, name: str) -> None:
        self.etcd.end(self._pods.pop(name)["metadata"]["uid"])

    async def wipe(self, name: str) -> None:
        await self.stop(name)
        self.etcd.end(self._disks.pop(name))

    async def exited(self, name: str) -> str:
        return self.run_pod(name)

    async def calm(self) -> None:
        pass

    def server(self, name: str) -> Server:
        pod = self._pods.get(name)
        address = pod["status"]["podIP"] if pod else ""
        return self.etcd.connect(Endpoint(name, address, name), Access())
