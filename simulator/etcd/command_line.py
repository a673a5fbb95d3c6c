"""Flags, data volume and version of the etcd that a pod starts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from operators.etcd.api.versions import FORM, Version
from shared.kubernetes.kinds import Obj
from simulator.api_server.store import ByIdentity

UNNAMED = "3.6.16"
"""Version of the program in an image whose tag does not name one."""


@dataclass(frozen=True)
class Command:
    """Command line of etcd in a pod.

    Attributes:
        name: name of the member.
        disk: UID of the claim, or of the pod, that contains the data.
        disk_name: name of that claim or pod.
        state: value of --initial-cluster-state.
        token: value of --initial-cluster-token.
        url: value of --initial-advertise-peer-urls.
        initial: peer URLs by member name, from --initial-cluster.
        quota: backend quota, in bytes.
        files: paths by the name of the flag, such as `peer-cert-file`.
        snapshot_count: number of entries after which the member writes a Raft snapshot to its disk.
        compares: whether it compares its keys with its peers before it serves.
        refusal: log of an etcd that exits because of its flags; empty if it accepts them.
    """

    name: str
    image: str
    disk: str
    disk_name: str
    state: str
    token: str
    url: str
    initial: Mapping[str, tuple[str, ...]]
    tls: bool
    requires_client_certificate: bool
    quota: int
    files: Mapping[str, str]
    snapshot_count: int
    compares: bool
    refusal: str

    @property
    def version(self) -> Version:
        return _version(self.image)


def command(pod: Obj, claims: Mapping[str, Obj]) -> Command | None:
    """Return the command of a pod that runs etcd; None for any other pod."""
    return _commands.of(pod["metadata"], pod["spec"], pod["status"].get("podIP", ""), *claims, *claims.values())


def _command(metadata: Obj, spec: Obj, address: str, *mounted: Any) -> Command | None:
    """Return the command of a pod.

    Args:
        mounted: the names of its volumes, and then what is mounted there.
    """
    pod = {"metadata": metadata, "spec": spec, "status": {"podIP": address}}
    claims = dict(zip(mounted[: len(mounted) // 2], mounted[len(mounted) // 2 :], strict=True))
    for container in pod["spec"]["containers"]:
        given = [*container.get("command", ()), *container.get("args", ())]
        known = _environment(container, pod)
        flags = dict(_flag(_expanded(text, known)) for text in given)
        if "initial-cluster-state" not in flags:
            continue
        disk, disk_name = _disk(pod, container, claims, flags["data-dir"])
        return Command(
            name=flags["name"],
            image=container["image"],
            disk=disk,
            disk_name=disk_name,
            state=flags["initial-cluster-state"],
            token=flags["initial-cluster-token"],
            url=flags["initial-advertise-peer-urls"],
            initial=_initial(flags["initial-cluster"]),
            tls="cert-file" in flags,
            requires_client_certificate=flags.get("client-cert-auth", "false") == "true",
            quota=int(flags.get("quota-backend-bytes", "2147483648")),
            files={flag: path for flag, path in flags.items() if flag.endswith("-file")},
            snapshot_count=int(flags.get("snapshot-count", _snapshot_count(container["image"]))),
            compares=_compares(flags),
            refusal=_refusal(flags),
        )
    return None


_commands = ByIdentity(_command)


def _compares(flags: Mapping[str, str]) -> bool:
    former = flags.get("experimental-initial-corrupt-check", "") == "true"
    return former or "InitialCorruptCheck=true" in flags.get("feature-gates", "")


def _refusal(flags: Mapping[str, str]) -> str:
    """Return the log of etcd if it refuses the TLS versions together (measured with 3.6.16)."""
    least, most = flags.get("tls-min-version", ""), flags.get("tls-max-version", "TLS1.3")
    if least <= most:
        return ""
    error = f"min version ({least}) is greater than max version ({most})"
    return json.dumps({"level": "warn", "msg": "failed to verify flags", "error": error})


def _snapshot_count(image: str) -> int:
    """Return the default of --snapshot-count (DefaultSnapshotCount in server.go, embed/config.go)."""
    return 100_000 if _version(image) < Version(3, 6, 0) else 10_000


@lru_cache(maxsize=64)
def _version(image: str) -> Version:
    """Return the version of the program in an image; `UNNAMED` if the tag is private."""
    tag = image.rpartition(":")[2]
    return Version.parse(tag if re.fullmatch(FORM, tag) else UNNAMED)


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """Substitute the variables of an argument as the kubelet does."""
    return re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], text) if "$(" in text else text


def _flag(text: str) -> tuple[str, str]:
    name, _, value = text.lstrip("-").partition("=")
    return name, value or "true"


def _initial(text: str) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for item in text.split(","):
        name, _, url = item.partition("=")
        found[name] = (*found.get(name, ()), url)
    return found


def _environment(container: Obj, pod: Obj) -> dict[str, str]:
    """Return the environment of a container, including values from fields of the pod."""
    fields = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "status.podIP": pod["status"].get("podIP", ""),
    }
    for kind in ("annotations", "labels"):
        metadata = pod["metadata"].get(kind) or {}
        fields |= {f"metadata.{kind}['{key}']": value for key, value in metadata.items()}
    for name, value in (pod["metadata"].get("annotations") or {}).items():
        fields[f"metadata.annotations['{name}']"] = value
    known = {}
    for variable in container.get("env", ()):
        path = (variable.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath")
        known[variable["name"]] = fields.get(path, "") if path else variable.get("value", "")
    return known


def _disk(pod: Obj, container: Obj, claims: Mapping[str, Obj], path: str) -> tuple[str, str]:
    """Return UID and name of the claim that contains a path, or of the pod if no claim does."""
    mounts = [mount for mount in container.get("volumeMounts", ()) if path.startswith(mount["mountPath"])]
    mounted = max(mounts, key=lambda mount: len(mount["mountPath"]))["name"]
    kept = claims.get(mounted, pod)["metadata"]
    return kept["uid"], kept["name"]
