"""Rules that extensions of pods collide neither with the operator's own parts nor with each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.api.pod_extensions import VolumeMount
from shared.api.spec import Rule


@dataclass(frozen=True, slots=True)
class Reserved:
    """Names, paths and ports of an operator's own pods, which extensions cannot have.

    Attributes:
        containers: names of containers.
        volumes: names of volumes.
        paths: directories of the main container.
        ports: ports of the containers, in CEL over the spec, and in Python.
        port_names: names of the ports.
    """

    containers: tuple[str, ...]
    volumes: tuple[str, ...]
    paths: tuple[str, ...]
    ports: tuple[tuple[str, Callable[[Any], int]], ...]
    port_names: tuple[str, ...]


def extension_rules(own: Reserved) -> tuple[Rule, ...]:
    """Return the rules of a spec that extensions collide neither with the operator's own parts nor with each other."""
    return (
        _reserved("extraContainers", own.containers, lambda spec: spec.extra_containers),
        _reserved("extraInitContainers", own.containers, lambda spec: spec.extra_init_containers),
        _reserved("extraVolumes", own.volumes, lambda spec: spec.extra_volumes),
        Rule(
            "!has(self.extraContainers) || !has(self.extraInitContainers) || !self.extraInitContainers.exists(one, "
            "self.extraContainers.exists(other, other.name == one.name))",
            lambda spec: not _names(spec.extra_containers) & _names(spec.extra_init_containers),
            "a container has the name of one in extraContainers; rename one of the two.",
            at="extraInitContainers",
        ),
        Rule(
            f"!has(self.extraVolumeMounts) || {_mounts_known('self.extraVolumeMounts')}",
            lambda spec: _knows(spec, spec.extra_volume_mounts),
            _UNKNOWN_VOLUME,
            at="extraVolumeMounts",
        ),
        _mounting("extraContainers", lambda spec: spec.extra_containers),
        _mounting("extraInitContainers", lambda spec: spec.extra_init_containers),
        Rule(
            "!has(self.extraVolumeMounts) || !self.extraVolumeMounts.exists(mount, "
            f"{json.dumps(own.paths)}.exists(path, (path + '/').startsWith(mount.mountPath + '/') || "
            "(mount.mountPath + '/').startsWith(path + '/')))",
            lambda spec: not any(_overlap(mount, own.paths) for mount in spec.extra_volume_mounts),
            f"a mountPath hides or changes a directory of the operator ({', '.join(own.paths)}); use another one.",
            at="extraVolumeMounts",
        ),
        *_port_rules(own),
    )


_UNKNOWN_VOLUME = "a volumeMount names no volume of extraVolumes; add the volume there, or correct the name."


def _reserved(field: str, names: tuple[str, ...], read: Callable[[Any], list[Any]]) -> Rule:
    taken = f"item, item.name in {json.dumps(names)}"
    return Rule(
        f"!has(self.{field}) || !self.{field}.exists({taken})",
        lambda spec: not any(item.name in names for item in read(spec)),
        f"{{}} is a name that the operator uses ({', '.join(names)}); rename it.",
        at=field,
        value=(
            f"self.{field}.filter({taken})[0].name",
            lambda spec: next(item.name for item in read(spec) if item.name in names),
        ),
    )


def _names(items: list[Any]) -> set[str]:
    return {item.name for item in items}


def _mounts_known(mounts: str) -> str:
    """Return the CEL expression that each mount of a list names an extra volume."""
    volume = "self.extraVolumes.exists(volume, volume.name == mount.name)"
    return f"{mounts}.all(mount, has(self.extraVolumes) && {volume})"


def _knows(spec: Any, mounts: list[VolumeMount]) -> bool:
    return _names(mounts) <= _names(spec.extra_volumes)


def _mounting(field: str, read: Callable[[Any], list[Any]]) -> Rule:
    each = f"!has(item.volumeMounts) || {_mounts_known('item.volumeMounts')}"
    return Rule(
        f"!has(self.{field}) || self.{field}.all(item, {each})",
        lambda spec: all(_knows(spec, item.volume_mounts) for item in read(spec)),
        _UNKNOWN_VOLUME,
        at=field,
    )


def _overlap(mount: VolumeMount, paths: tuple[str, ...]) -> bool:
    """Return whether a volume is mounted at one of the directories, in one, or around one."""
    given = f"{mount.mount_path}/"
    return any(given.startswith(f"{path}/") or f"{path}/".startswith(given) for path in paths)


def _port_rules(own: Reserved) -> tuple[Rule, ...]:
    numbers = f"[{', '.join(cel for cel, _ in own.ports)}]"
    names = json.dumps(own.port_names)

    def taken(spec: Any) -> bool:
        reserved = {read(spec) for _, read in own.ports}
        return any(
            port.container_port in reserved or port.name in own.port_names
            for item in spec.extra_containers
            for port in item.ports
        )

    def repeated(spec: Any) -> bool:
        ports = [port.container_port for item in spec.extra_containers for port in item.ports]
        return len(ports) != len(set(ports))

    return (
        Rule(
            "!has(self.extraContainers) || !self.extraContainers.exists(item, has(item.ports) && "
            f"item.ports.exists(port, port.containerPort in {numbers} || has(port.name) && port.name in {names}))",
            lambda spec: not taken(spec),
            "a port has a number or a name that the operator's own containers use; use another one.",
            at="extraContainers",
        ),
        Rule(
            "!has(self.extraContainers) || self.extraContainers.all(one, !has(one.ports) || one.ports.all(port, "
            "self.extraContainers.all(other, other.name == one.name || !has(other.ports) || "
            "!other.ports.exists(taken, taken.containerPort == port.containerPort))))",
            lambda spec: not repeated(spec),
            "two containers of a pod cannot listen on the same port; change one of them.",
            at="extraContainers",
        ),
    )
