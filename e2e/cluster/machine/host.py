"""What the machine must have, and the kernel settings it lends.

Each requirement is one function that says what is missing, why it is needed and what mends it; `prepare` asks them all.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import cgroups, debian, network
from e2e.cluster.machine.commands import succeeds
from e2e.cluster.paths import CACHE, REPOSITORY
from e2e.cluster.record import Record

PACKAGES = {
    "ip": "iproute2",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "modprobe": "kmod",
}
"""Debian's package for each program the cluster needs."""

NEEDED_DISK_GB = 4
NEEDED_DISK_COLD_GB = 12
NEEDED_MEMORY_GB = 2

CHANGED_BY_KUBELET = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
                      "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")  # fmt: skip
WATCHES = {"fs/inotify/max_user_instances": 1024, "fs/inotify/max_user_watches": 262144}
"""Least values for some kubelets and containerds together; Debian's default is for one of them."""


def prepare() -> None:
    """Check the machine, and install the packages it lacks.

    Raises:
        ClusterError: the first requirement that does not hold.
    """
    for require in (
        _root,
        _packages,
        _namespaces,
        _control_groups,
        _kernel,
        _disk,
        _file_systems,
        _memory,
        _addresses,
        _port,
    ):
        require()


def lend(record: Record) -> None:
    """Write down the kernel settings that a cluster changes, then raise those that are too low for it."""
    for name in (*CHANGED_BY_KUBELET, *WATCHES):
        path = Path("/proc/sys") / name
        if path.exists():
            record.settings[name] = path.read_text().strip()
    record.save()
    for name, least in WATCHES.items():
        if int(record.settings.get(name, least)) < least:
            (Path("/proc/sys") / name).write_text(str(least))


def take_back(record: Record) -> None:
    """Put the kernel settings back to what they were."""
    for name, value in record.settings.items():
        path = Path("/proc/sys") / name
        if path.read_text().strip() != value:
            path.write_text(value)


def missing_packages(present: Callable[[str], object] = shutil.which) -> list[str]:
    """Debian packages whose program is not there."""
    return sorted(package for program, package in PACKAGES.items() if not present(program))


def _root() -> None:
    if os.geteuid() != 0:
        raise ClusterError(
            "a local cluster needs root: its nodes are namespaces, cgroups and mounts of this machine",
            "run it as root (sudo make up), or use a cluster you have: make up CLUSTER=current, or CLUSTER=kind",
        )


def _packages() -> None:
    missing = missing_packages()
    if not missing:
        return
    debian.install(missing)
    for name, package in PACKAGES.items():
        if not shutil.which(name):
            raise ClusterError(f"{package} is installed, but {name} is still not there", f"look at: dpkg -L {package}")


def _namespaces() -> None:
    if not succeeds("unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--mount-proc", "true"):
        raise ClusterError(
            "this machine may not make namespaces (unshare failed), of which nodes are made",
            "in a container, run it with --privileged; else look for a seccomp or LSM policy that forbids unshare(2)",
        )


def _control_groups() -> None:
    missing = cgroups.missing_controllers()
    if missing:
        raise ClusterError(
            f"no cgroup hierarchy has {', '.join(missing)}, by which kubelet limits pods",
            "mount the cgroup file systems; on some kernels add cgroup_enable=memory to the boot command line",
        )


def _kernel() -> None:
    for module, why, present in (
        ("overlay", "containers' file systems are layers", _has_overlay),
        ("br_netfilter", "Services need firewall rules to see bridged packets", Path("/proc/sys/net/bridge").exists),
        ("veth", "nodes and pods are connected by it", lambda: _can_add("veth")),
        ("bridge", "nodes and pods meet on one", lambda: _can_add("bridge")),
    ):
        if not present() and not (succeeds("modprobe", module) and present()):
            raise ClusterError(
                f"the kernel ({os.uname().release}) lacks {module}: {why}",
                f"modprobe {module} on the host; if it is not found, boot the distribution's own kernel",
            )
    rule = "iptables -t nat -A PREROUTING -m comment --comment c -m conntrack --ctstate NEW -m statistic --mode random"
    if not succeeds("unshare", "--net", *rule.split(), "--probability", "0.5", "-j", "RETURN"):
        raise ClusterError(
            "the kernel lacks what kube-proxy's rules are made of (iptables nat, comment, conntrack, statistic)",
            f"see what it says: unshare --net {rule} --probability 0.5 -j RETURN",
        )


def _disk() -> None:
    warm = any((CACHE / "bin").glob("kubernetes-*"))
    needed = NEEDED_DISK_GB if warm else NEEDED_DISK_COLD_GB
    for place in (REPOSITORY, CACHE):
        existing = next(path for path in (place, *place.parents) if path.exists())
        free = shutil.disk_usage(existing).free / 1e9
        if free < needed:
            raise ClusterError(
                f"{free:.1f} GB free at {place}, {needed} GB are needed (images, nodes and, at first, builds)",
                "free some: `go clean -cache` and the cache directory are the first to look at;"
                " XDG_CACHE_HOME moves the cache",
            )


def _file_systems() -> None:
    for place in (REPOSITORY, CACHE):
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".overlay-", dir=place) as scratch:
            lower, upper, work, merged = (Path(scratch) / name for name in ("lower", "upper", "work", "merged"))
            for directory in (lower, upper, work, merged):
                directory.mkdir()
            layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
            if not succeeds("unshare", "--mount", "mount", "-t", "overlay", "-o", layers, "overlay", merged):
                raise ClusterError(
                    f"the file system of {place} cannot hold the layers of containers (it may be a container's own)",
                    "put the clone on a disk or a volume; for the cache, set XDG_CACHE_HOME to one",
                )


def _memory() -> None:
    available = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    gigabytes = int(available.split()[1]) / 1e6
    if gigabytes < NEEDED_MEMORY_GB:
        raise ClusterError(
            f"{gigabytes:.1f} GB of memory available, a cluster needs {NEEDED_MEMORY_GB}", "end something, or add swap"
        )


def _addresses() -> None:
    routes = network.routes_in_the_way()
    if routes:
        raise ClusterError(
            f"the cluster's ranges (10.240 to 10.242) are in use here: {'; '.join(routes)}",
            "take that network down while the cluster runs, or change the ranges in e2e/cluster/machine/network.py",
        )


def _port() -> None:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.2", network.API_PORT))  # taken only by who listens on every address, ours included
        except OSError as error:
            raise ClusterError(
                f"port {network.API_PORT}, which the API server needs, is in use on all addresses",
                f"end the program that `ss -ltnp 'sport = :{network.API_PORT}'` names",
            ) from error


def _has_overlay() -> bool:
    return "\toverlay\n" in Path("/proc/filesystems").read_text()


def _can_add(kind: str) -> bool:
    """Whether the kernel makes such an interface, tried in a network namespace that ends at once."""
    return succeeds("unshare", "--net", "ip", "link", "add", "probe", "type", kind)
