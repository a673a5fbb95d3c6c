"""A node: containerd, kubelet and kube-proxy in separate namespaces, under one process; all of them end with it.

A node has its own mount, network, PID, UTS and IPC namespaces. It shares the host's root file system, but mounts its
own /run, /var/lib and /var/log over it (node.sh). Outside these namespaces it has only its cgroups and its veth pair.
"""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.local import binaries, registry, stores
from tools.local.controlplane import ControlPlane
from tools.local.machine import cgroups, processes
from tools.local.machine.commands import run
from tools.local.machine.network import POD_RANGE, SERVICE_RANGE, NodeAddress, connect, first_address
from tools.local.machine.processes import Process

PAUSE_IMAGE = "platform/pause:1"
CLUSTER_DNS = str(first_address(SERVICE_RANGE).rpartition(".")[0] + ".10")

_LOADED = "images.txt"
"""File of a node with the names of the archives whose images it has."""


@dataclass(frozen=True)
class Node:
    """A running node.

    Attributes:
        at: names and addresses of the node.
        directory: files of the node on the host.
        process: first process of the node's namespaces; killing it ends the node.
    """

    at: NodeAddress
    directory: Path
    process: Process

    def inside(self, *command: str | Path, archive: Path | None = None) -> str:
        """Run a command in the node, optionally with a file of the host as standard input."""
        entered = ["nsenter", "--target", str(self._first_pid), "--mount", "--net", "--uts", "--ipc", "--", *command]
        if archive is None:
            return run(*entered)
        with archive.open("rb") as stdin:
            return run(*entered, stdin=stdin)

    def path(self, path: str | Path) -> Path:
        """Return an absolute path of the node, which has mounts of its own, as the host reaches it."""
        return Path(f"/proc/{self._first_pid}/root{path}")

    def load_image(self, archive: Path) -> None:
        """Import a docker-archive into the node's containerd, once per content (part of the archive's name)."""
        if archive.name not in self.loaded():
            self.inside("ctr", "--namespace", "k8s.io", "images", "import", "-", archive=archive)
            _record_loaded(self.directory, [archive])

    def loaded(self) -> set[str]:
        """Return the names of the archives whose images the node has."""
        record = self.directory / _LOADED
        return set(record.read_text().splitlines()) if record.exists() else set()

    @property
    def _first_pid(self) -> int:
        """PID of the node's first process: the only child of `unshare`, which stays outside the PID namespace."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])


def provide_images(directory: Path, archives: Sequence[Path]) -> None:
    """Give the images of archives to a node that is not started yet.

    Args:
        directory: files of the node.
        archives: archives of images.
    """
    stores.copy(stores.make(archives), directory / "var/lib/containerd")
    _record_loaded(directory, archives)


def start(
    directory: Path,
    at: NodeAddress,
    others: list[NodeAddress],
    plane: ControlPlane,
    on_start: Callable[[Process], None],
) -> Node:
    """Start a node and connect it to the bridge; it joins the cluster a few seconds later.

    Args:
        directory: files of the node, including containerd's images.
        at: names and addresses of the node.
        others: other nodes of the cluster, for the routes to their pods.
        plane: control plane that the node joins.
        on_start: called with the node's process as soon as it runs.
    """
    for needed in ("var/lib", "var/log", "logs", "cni"):
        (directory / needed).mkdir(parents=True, exist_ok=True)
    programs = binaries.build(plane.kubernetes)
    _configure(directory, at, others, plane)
    cgroups.make(at.name)
    namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    environment = [f"NODE={directory}", f"PROGRAMS={programs}", "PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"]
    process = processes.start(
        at.name,
        ["env", "-i", *environment, "unshare", *namespaces, "sh", Path(__file__).parent / "node.sh"],
        log=directory / "logs" / "node.log",
    )
    on_start(process)
    node = Node(at, directory, process)
    processes.wait_until(lambda: _has_own_network(node), f"{at.name}'s namespaces", needs=[process], timeout=10)
    connect(at, node._first_pid)
    return node


def _record_loaded(directory: Path, archives: Sequence[Path]) -> None:
    """Remember that a node has the images of these archives."""
    with (directory / _LOADED).open("a") as record:
        record.writelines(f"{archive.name}\n" for archive in archives)


def _has_own_network(node: Node) -> bool:
    """Return whether `unshare` has started node.sh, which then is in the node's namespaces."""
    try:
        return Path(f"/proc/{node._first_pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    except (OSError, IndexError):
        return False


def _configure(directory: Path, at: NodeAddress, others: list[NodeAddress], plane: ControlPlane) -> None:
    """Write the configuration of the node's programs; its paths are those inside the node."""
    authority = plane.authority
    pair = authority.issue(at.name, f"system:node:{at.name}", groups=["system:nodes"], hosts=[at.name, at.address])
    authority.kubeconfig(directory / "kubelet.kubeconfig", plane.url, pair)
    proxy = authority.issue(f"{at.name}-proxy", "system:kube-proxy")
    authority.kubeconfig(directory / "kube-proxy.kubeconfig", plane.url, proxy)
    named = {"ca.crt": authority.pair.certificate, "node.crt": pair.certificate, "node.key": pair.key}
    for name, source in named.items():
        (directory / name).write_bytes(source.read_bytes())
        (directory / name).chmod(0o600)
    (directory / "env").write_text(
        "".join(
            f"{name}={shlex.quote(value)}\n"
            for name, value in {
                "NAME": at.name,
                "ADDRESS": f"{at.address}/24",
                "ROUTES": "\n".join(f"{other.pods} {other.address}" for other in others),
                "POD_RANGE": POD_RANGE,
                "SERVICE_RANGE": SERVICE_RANGE,
            }.items()
        )
    )
    (directory / "resolv.conf").write_text("# no name server: the cluster resolves only its own names\n")
    (directory / "containerd.toml").write_text(_containerd())
    local = directory / "registries" / registry.NODES_ADDRESS
    local.mkdir(parents=True, exist_ok=True)
    (local / "hosts.toml").write_text(registry.hosts_toml(registry.NODES_ADDRESS))
    (directory / "cni" / "10-platform.conflist").write_text(json.dumps(_pod_network(at), indent=2))
    (directory / "kubelet.json").write_text(
        json.dumps(_kubelet(at, binaries.minor_version(plane.kubernetes)), indent=2)
    )


def _kubelet(at: NodeAddress, minor: int) -> dict[str, object]:
    """Return the configuration of the kubelet of Kubernetes 1.`minor`."""
    cgroups_v1 = {"failCgroupV1": False} if minor >= 31 else {}  # earlier versions accept them, and have no such field
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": at.address,
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": "/run/node/ca.crt"}},
        "tlsCertFile": "/run/node/node.crt",
        "tlsPrivateKeyFile": "/run/node/node.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDomain": "cluster.local",
        "clusterDNS": [CLUSTER_DNS],
        "resolvConf": "/run/node/resolv.conf",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{at.name}",
        **cgroups_v1,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,  # a garbage-collected image could not be pulled again
        "featureGates": {"KubeletInUserNamespace": True},  # tolerates missing permissions to set limits and sysctls
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",  # a changed Secret reaches its pods within 10 s; the default is a minute
        "shutdownGracePeriod": "0s",
    }


def _pod_network(at: NodeAddress) -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": at.pods}]], "dataDir": "/run/cni"},
    }
    return {"cniVersion": "0.4.0", "name": "platform", "plugins": [bridge]}


def _containerd() -> str:
    return f"""\
version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
disable_apparmor = true

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/run/node/registries"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/run/node/cni"
"""
