"""Text snapshot of everything on a machine that a cluster can change, to compare the states before and after."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tools.local.errors import ClusterError
from tools.local.machine import cgroups
from tools.local.machine.commands import run
from tools.local.paths import CACHE, STATE

SETTINGS = (
    "fs/inotify/*",
    "kernel/panic*",
    "kernel/keys/root_max*",
    "net/bridge/*",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/*",
    "net/ipv4/conf/default/*",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_timeout_*",
    "net/nf_conntrack_max",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
FILES = (
    "/etc/cni",
    "/etc/containerd",
    "/etc/kubernetes",
    "/opt/cni",
    "/run/containerd",
    "/run/kubernetes",
    "/run/netns",
    "/run/platform-cluster",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)


def take() -> dict[str, list[str]]:
    """Return the current state of the machine, by category.

    Processes are those of the cluster's programs and those in other PID namespaces.
    """
    return {
        "processes": sorted(_processes()),
        "mounts": sorted(line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()),
        "network namespaces": sorted(_network_namespaces()),
        "interfaces": _lines("ip", "-brief", "address"),
        "routes": _lines("ip", "route", "show", "table", "all") + _lines("ip", "-6", "route", "show", "table", "all"),
        "routing rules": _lines("ip", "rule") + _lines("ip", "-6", "rule"),
        "firewall": _lines("iptables-save") + _lines("ip6tables-save") + _lines("nft", "list", "ruleset"),
        "cgroups": sorted(_cgroups()),
        "files": sorted(str(path) for root in FILES for path in _tree(Path(root))),
        "settings": sorted(_settings()),
    }


def differences(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """Return one line for each item that is new or missing; empty if the snapshots are equal."""
    found = []
    for kind, lines in before.items():
        found += [f"{kind}: new: {line}" for line in after[kind] if line not in lines]
        found += [f"{kind}: missing: {line}" for line in lines if line not in after[kind]]
    return found


def _processes() -> Iterable[str]:
    here = Path("/proc/self/ns/pid").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program = (process / "exe").readlink()
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            foreign = (process / "ns/pid").readlink() != here
        except OSError:  # the process has ended, or is a kernel thread
            continue
        # A test's own control plane is not part of the cluster.
        if foreign or (program.is_relative_to(CACHE) and f"/{STATE.name}/" in command):
            yield f"{process.name} {command.strip()}"


def _network_namespaces() -> Iterable[str]:
    found = set()
    for namespace in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):  # the process has ended
            found.add(str(namespace.readlink()))
    return found


def _cgroups() -> Iterable[str]:
    """Yield the top-level groups and those of kubelets; other groups change with every login session."""
    for mount in cgroups.hierarchies():
        for path in mount.rglob("*/"):
            if path.is_dir() and (path.parent == mount or "kubepods" in path.name):
                yield str(path)


def _settings() -> Iterable[str]:
    for pattern in SETTINGS:
        for path in Path("/proc/sys").glob(pattern):
            with suppress(OSError):  # some can only be written
                yield f"{path} = {path.read_text().strip()}"


def _tree(root: Path) -> Iterable[Path]:
    if root.exists() or root.is_symlink():
        yield root
    if root.is_dir() and not root.is_symlink():
        yield from root.rglob("*")


def _lines(*command: str) -> list[str]:
    try:
        output = run(*command)
    except ClusterError:  # without the tool there is nothing that it could show
        return []
    return [line.split(" expires ")[0].strip() for line in output.splitlines() if not line.startswith("#")]
