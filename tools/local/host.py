"""Requirements of the cluster on its machine, and the kernel settings that the cluster changes.

Each requirement is one function. Its error names what is missing, why the cluster needs it and how to fix it. `prepare`
checks them all.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tools.local import debian
from tools.local.errors import ClusterError
from tools.local.machine import cgroups, network
from tools.local.machine.commands import succeeds
from tools.local.paths import CACHE, REPOSITORY
from tools.local.record import Record

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
"""Debian package of each program that the cluster needs."""

NEEDED_DISK_GB = 4
NEEDED_DISK_COLD_GB = 12
NEEDED_MEMORY_GB = 2

CHANGED_BY_KUBELET = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
                      "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")  # fmt: skip
MINIMUM_SETTINGS = {"fs/inotify/max_user_instances": 1024, "fs/inotify/max_user_watches": 262144}
"""Minimum values for several kubelets and containerds; Debian's defaults suffice for only one."""


def prepare() -> None:
    """Check the requirements and install missing packages.

    Raises:
        ClusterError: the machine does not meet a requirement; the first one is reported.
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


def raise_kernel_settings(record: Record) -> None:
    """Record the kernel settings that a cluster changes, then raise those that are too low."""
    for name in (*CHANGED_BY_KUBELET, *MINIMUM_SETTINGS):
        path = Path("/proc/sys") / name
        if path.exists():
            record.settings[name] = path.read_text().strip()
    record.save()
    for name, least in MINIMUM_SETTINGS.items():
        if int(record.settings.get(name, least)) < least:
            (Path("/proc/sys") / name).write_text(str(least))


def restore_kernel_settings(record: Record) -> None:
    """Restore the recorded kernel settings."""
    for name, value in record.settings.items():
        path = Path("/proc/sys") / name
        if path.read_text().strip() != value:
            path.write_text(value)


def missing_packages(programs: Iterable[str], present: Callable[[str], object]) -> list[str]:
    """Return the Debian packages of the programs that are missing."""
    return sorted(PACKAGES[program] for program in programs if not present(program))


def provide(programs: Iterable[str]) -> None:
    """Install the packages of programs that are missing.

    Args:
        programs: some of `PACKAGES`.

    Raises:
        ClusterError: the machine has no apt-get, apt-get failed, or a package lacks its program.
    """
    missing = missing_packages(programs, shutil.which)
    if not missing:
        return
    debian.install(missing)
    for name in programs:
        if not shutil.which(name):
            package = PACKAGES[name]
            raise ClusterError(
                f"{package} is installed, but its program {name} is missing", f"list its files: dpkg -L {package}"
            )


def _root() -> None:
    if os.geteuid() != 0:
        raise ClusterError(
            "a local cluster needs root: its nodes are namespaces, cgroups and mounts of this machine",
            "run sudo make up, or use an existing cluster: make up CLUSTER=current or CLUSTER=kind",
        )


def _packages() -> None:
    provide(PACKAGES)


def _namespaces() -> None:
    if not succeeds("unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--mount-proc", "true"):
        raise ClusterError(
            "this machine cannot create the namespaces of a node (unshare failed)",
            "in a container, run it with --privileged; otherwise find the seccomp or LSM policy that denies unshare(2)",
        )


def _control_groups() -> None:
    missing = cgroups.missing_controllers()
    if missing:
        raise ClusterError(
            f"no cgroup hierarchy has the controllers {', '.join(missing)}, with which the kubelet limits pods",
            "mount the cgroup file systems; some kernels need cgroup_enable=memory on the boot command line",
        )


def _kernel() -> None:
    for module, why, present in (
        ("overlay", "required for container file systems", _has_overlay),
        ("br_netfilter", "required for Services, to filter bridged packets", Path("/proc/sys/net/bridge").exists),
        ("veth", "required to connect nodes and pods", lambda: _can_add("veth")),
        ("bridge", "required for the network of nodes and pods", lambda: _can_add("bridge")),
    ):
        if not present() and not (succeeds("modprobe", module) and present()):
            raise ClusterError(
                f"the kernel ({os.uname().release}) lacks {module}: {why}",
                f"modprobe {module} on the host; if the module does not exist, boot the kernel of the distribution",
            )
    rule = "iptables -t nat -A PREROUTING -m comment --comment c -m conntrack --ctstate NEW -m statistic --mode random"
    if not succeeds("unshare", "--net", *rule.split(), "--probability", "0.5", "-j", "RETURN"):
        raise ClusterError(
            "the kernel lacks iptables features that kube-proxy needs (nat, comment, conntrack, statistic)",
            f"find out which: unshare --net {rule} --probability 0.5 -j RETURN",
        )


def _disk() -> None:
    warm = any((CACHE / "bin").glob("kubernetes-*"))
    needed = NEEDED_DISK_GB if warm else NEEDED_DISK_COLD_GB
    for directory in (REPOSITORY, CACHE):
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        free = shutil.disk_usage(existing).free / 1e9
        if free < needed:
            raise ClusterError(
                f"only {free:.1f} GB free at {directory}; the cluster needs {needed} GB (images, nodes, builds)",
                f"free disk space, for example with `go clean -cache` or by deleting {CACHE};"
                " XDG_CACHE_HOME moves the cache",
            )


def _file_systems() -> None:
    for base in (REPOSITORY, CACHE):
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".overlay-", dir=base) as scratch:
            lower, upper, work, merged = (Path(scratch) / name for name in ("lower", "upper", "work", "merged"))
            for directory in (lower, upper, work, merged):
                directory.mkdir()
            layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
            if not succeeds("unshare", "--mount", "mount", "-t", "overlay", "-o", layers, "overlay", merged):
                raise ClusterError(
                    f"the file system of {base} does not support overlay mounts (it may be a container's root)",
                    "move the clone to a disk or a volume; for the cache, set XDG_CACHE_HOME to a directory on one",
                )


def _memory() -> None:
    available = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    gigabytes = int(available.split()[1]) / 1e6
    if gigabytes < NEEDED_MEMORY_GB:
        raise ClusterError(
            f"only {gigabytes:.1f} GB of memory available; the cluster needs {NEEDED_MEMORY_GB} GB",
            "stop other programs or add swap",
        )


def _addresses() -> None:
    routes = network.overlapping_routes()
    if routes:
        raise ClusterError(
            f"routes of this machine overlap the cluster's ranges (10.240 to 10.242): {'; '.join(routes)}",
            "disconnect that network while the cluster runs, or change the ranges in tools/local/machine/network.py",
        )


def _port() -> None:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.2", network.API_PORT))  # fails only if a program listens on all addresses
        except OSError as error:
            raise ClusterError(
                f"port {network.API_PORT}, which the API server needs, is in use on all addresses",
                f"stop the program that `ss -ltnp 'sport = :{network.API_PORT}'` shows",
            ) from error


def _has_overlay() -> bool:
    return "\toverlay\n" in Path("/proc/filesystems").read_text()


def _can_add(kind: str) -> bool:
    """Return whether the kernel supports a type of interface; tried in a temporary network namespace."""
    return succeeds("unshare", "--net", "ip", "link", "add", "probe", "type", kind)
