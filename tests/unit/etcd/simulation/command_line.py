"""How a pod starts etcd: its flags, its disk, its version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from operators.etcd.api.versions import Version
from shared.kubernetes.kinds import Obj


@dataclass(frozen=True)
class Command:
    """What a pod asks etcd for.

    Attributes:
        name: the member's.
        disk: UID of the claim, or of the pod, that holds its data.
        place: the claim's or the pod's name.
        initial: URLs by name, as --initial-cluster says.
        url: --initial-advertise-peer-urls.
    """

    name: str
    image: str
    disk: str
    place: str
    state: str
    token: str
    url: str
    initial: Mapping[str, tuple[str, ...]]
    tls: bool
    asks_certificate: bool
    quota: int

    @property
    def version(self) -> Version:
        return Version.parse(self.image.rpartition(":")[2])


def command(pod: Obj, claims: Mapping[str, Obj]) -> Command | None:
    """The command of a pod that runs etcd; None for any other."""
    for container in pod["spec"]["containers"]:
        given = [*container.get("command", ()), *container.get("args", ())]
        known = _environment(container, pod)
        flags = dict(_flag(_expanded(text, known)) for text in given)
        if "initial-cluster-state" not in flags:
            continue
        disk, place = _disk(pod, container, claims, flags["data-dir"])
        return Command(
            name=flags["name"],
            image=container["image"],
            disk=disk,
            place=place,
            state=flags["initial-cluster-state"],
            token=flags["initial-cluster-token"],
            url=flags["initial-advertise-peer-urls"],
            initial=_initial(flags["initial-cluster"]),
            tls="cert-file" in flags,
            asks_certificate=flags.get("client-cert-auth", "false") == "true",
            quota=int(flags.get("quota-backend-bytes", "2147483648")),
        )
    return None


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """An argument with the values of the variables that it names, as the kubelet writes it."""
    return re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], text)


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
    """Variables of a container, those that name fields of the pod too."""
    fields = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "status.podIP": pod["status"].get("podIP", ""),
    }
    for kind in ("annotations", "labels"):
        held = pod["metadata"].get(kind) or {}
        fields |= {f"metadata.{kind}['{key}']": value for key, value in held.items()}
    for name, value in (pod["metadata"].get("annotations") or {}).items():
        fields[f"metadata.annotations['{name}']"] = value
    known = {}
    for variable in container.get("env", ()):
        path = (variable.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath")
        known[variable["name"]] = fields.get(path, "") if path else variable.get("value", "")
    return known


def _disk(pod: Obj, container: Obj, claims: Mapping[str, Obj], path: str) -> tuple[str, str]:
    """UID and name of what holds a path: a claim, or the pod itself."""
    mounts = [mount for mount in container.get("volumeMounts", ()) if path.startswith(mount["mountPath"])]
    mounted = max(mounts, key=lambda mount: len(mount["mountPath"]))["name"]
    kept = claims.get(mounted, pod)["metadata"]
    return kept["uid"], kept["name"]
