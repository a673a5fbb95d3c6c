"""Command line of a pod's server: image, disk and files."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from shared.kubernetes.kinds import Obj
from simulator.api_server.store import ByIdentity

DATA = "/data"
_ANNOTATION = re.compile(r"metadata\.annotations\['([^']+)'\]")
ENGINES = {"redis-server": "redis", "valkey-server": "valkey"}


@dataclass(frozen=True)
class Command:
    """Server that a pod starts.

    Attributes:
        disk: UID of the claim or pod that stores the data.
        name: name of that claim or pod.
        settings: settings from redis.conf and from flags.
        passwords: SHA-256 of the passwords of the user `default`.
        users: SHA-256 of the passwords of each other user.
        rules: state and rules of each other user.
        files: content of its ConfigMaps and Secrets, by path.
    """

    disk: str
    name: str
    engine: str = "redis"
    tag: str = "7.0.15"
    settings: Mapping[str, str] = field(default_factory=dict)
    passwords: frozenset[str] = frozenset()
    users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        return self.tag.partition("-")[0]

    @property
    def tls(self) -> bool:
        return self.settings.get("tls-port", "0") != "0"


def command(pod: Obj, volumes: Mapping[str, Obj]) -> Command | None:
    """Return the command of a pod that runs a server; None for any other pod."""
    return _commands.of(pod["metadata"], pod["spec"], *volumes, *volumes.values())


def _command(metadata: Obj, spec: Obj, *mounted: Any) -> Command | None:
    """Return the command of a pod.

    Args:
        mounted: the names of its volumes, and then what is mounted there.
    """
    pod = {"metadata": metadata, "spec": spec}
    volumes = dict(zip(mounted[: len(mounted) // 2], mounted[len(mounted) // 2 :], strict=True))
    for container in pod["spec"]["containers"]:
        variables = _variables(container, pod)
        given = [_expanded(word, variables) for word in (*container.get("command", ()), *container.get("args", ()))]
        engine = next((ENGINES[name] for word in given if (name := word.rpartition("/")[2]) in ENGINES), None)
        if engine is None:
            continue
        mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", ())}
        shared = any(mount["mountPath"] == DATA and "subPathExpr" in mount for mount in container["volumeMounts"])
        kept = volumes.get(mounts.get(DATA, ""), pod)["metadata"]
        if shared:  # all nodes share one disk, or those on one host do, each with its own directory
            at = f" on {pod['spec'].get('nodeName')}" if _is_on_host(pod, mounts[DATA]) else ""
            kept = {"uid": f"{DATA} of {pod['metadata']['name']}{at}", "name": pod["metadata"]["name"]}
        files = {
            f"{path}/{name}": text
            for path, volume in mounts.items()
            if "spec" not in volumes.get(volume, pod)
            for name, text in _texts(volumes[volume]).items()
        }
        settings, users = _read_once(tuple(word for word in given if word in files), tuple(files.items()))
        settings = settings | _flags(given)
        passwords = _passwords(users)
        opens = passwords.pop("default", frozenset())
        tag = container["image"].rpartition(":")[2]
        return Command(kept["uid"], kept["name"], engine, tag, settings, opens, passwords, _rules(users), files)
    return None


_commands = ByIdentity(_command)


def _is_on_host(pod: Obj, name: str) -> bool:
    """Whether a volume of a pod is a directory of its Kubernetes node."""
    return any(volume["name"] == name and "hostPath" in volume for volume in pod["spec"]["volumes"])


def _variables(container: Obj, pod: Obj) -> dict[str, str]:
    """Return the variables with fields of the pod, as they are when the container starts."""
    found = {}
    for variable in container.get("env") or ():
        path = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath", "")
        if annotated := _ANNOTATION.fullmatch(path):
            found[variable["name"]] = (pod["metadata"].get("annotations") or {}).get(annotated[1], "")
        elif path == "metadata.uid":
            found[variable["name"]] = pod["metadata"]["uid"]
    return found


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        word = word.replace(f"$({name})", value)
    return word


def _texts(obj: Obj) -> dict[str, str]:
    """Return the files of a ConfigMap or a Secret."""
    data = obj.get("data") or {}
    if obj["kind"] == "Secret":
        return {name: _decoded(text) for name, text in data.items()}
    return dict(data)


@lru_cache(maxsize=1024)  # the kubelet reads its Secrets in each step
def _decoded(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


@lru_cache(maxsize=1024)
def _read_once(paths: tuple[str, ...], files: tuple[tuple[str, str], ...]) -> tuple[dict[str, str], list[str]]:
    """Return what `_read` returns, which must not be changed."""
    return _read(list(paths), dict(files))


def _read(paths: list[str], files: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings of redis.conf and its includes, and the lines that describe users."""
    settings: dict[str, str] = {}
    users: list[str] = []
    for path in paths:
        for line in files.get(path, "").splitlines():
            name, *words = _words(line) or ("",)
            if name == "include":
                more, listed = _read(words, files)
                settings, users = settings | more, users + listed
            elif name == "aclfile":
                users += files.get(words[0], "").splitlines()
            elif name == "user":
                users.append(line)
            elif name:
                settings[name.lower()] = " ".join(words)
    return settings, users


@cache
def _words(line: str) -> tuple[str, ...]:
    return tuple(shlex.split(line, comments=True))


def _flags(given: list[str]) -> dict[str, str]:
    """Return the settings given as flags: --name value."""
    return {
        name.removeprefix("--"): value
        for name, value in pairwise(given)
        if name.startswith("--") and not value.startswith("--")
    }


def _rules(users: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the state and the rules of each user."""
    lines = [line.split() for line in users]
    return {words[1]: tuple(word for word in words[2:] if word != "reset" and word[0] != "#") for words in lines}


def _passwords(users: list[str]) -> dict[str, frozenset[str]]:
    """Return the digests of the passwords of each user."""
    lines = [line.split() for line in users]
    return {words[1]: frozenset(word[1:] for word in words if word.startswith("#")) for words in lines}
