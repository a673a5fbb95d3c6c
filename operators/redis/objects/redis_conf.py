"""redis.conf: what the operator sets, over what the spec gives, over the user's template, over defaults. Pure.

A directive that a running server takes is told to it by CONFIG SET (`live`); of the others a digest is in the pods'
template, so that another value rolls them (`digest`). Which are which was tried on redis 7.0.15 and 8.0.2 and on valkey
8.1.1 and 9.1.0, and read in src/config.c of redis 6.2.14; tests/containers/redis/test_config.py tries it again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping

from operators.redis.api.engine_versions import Engine, Version, features
from operators.redis.api.reserved_directives import RESERVED
from operators.redis.api.resource import RedisCluster
from operators.redis.api.spec import MAX_MEMORY
from operators.redis.client.server import PORT
from operators.redis.reasons import CONFIG_MAP_INVALID
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY
from shared.pki.secret_checks import SecretProblem

CONFIG_KEY = "redis.conf"
"""Key of the ConfigMap of ours, and of one of the user's."""

HOME = "/data"
CONFIG, USERS, TLS = "/etc/redis/config", "/etc/redis/users", "/etc/redis/tls"
"""Where a node has its data, and where it finds what it reads at its start."""

USERS_KEY = "users.conf"

NODES = "nodes.conf"
"""Who a node is and whom it knows; it writes that itself."""

WITHDRAWN = "redis.middleware.hc.cn/withdrawn"
"""Annotation of the ConfigMap: how often a directive was taken away. What it is without, only a restart brings back."""

RESTART = frozenset(
    {
        *("always-show-logo", "aof-rewrite-cpulist", "aof_rewrite_cpulist", "bgsave-cpulist", "bgsave_cpulist"),
        *("bio-cpulist", "bio_cpulist", "server-cpulist", "server_cpulist", "cluster-databases", "databases"),
        *("disable-thp", "enable-debug-command", "enable-module-command", "enable-protected-configs", "hash-seed"),
        *("io-threads", "io-threads-do-reads", "loadmodule", "mptcp", "rdbchecksum"),
        *("rdma-completion-vector", "rdma-rx-size", "repl-mptcp", "set-proc-title", "socket-mark-id"),
        *("syslog-enabled", "syslog-facility", "syslog-ident", "tcp-backlog"),
    }
)
"""What a server reads at its start alone (IMMUTABLE_CONFIG, PROTECTED_CONFIG)."""

_LIVE_SINCE: Mapping[str, Engine] = {"io-threads": Engine("valkey", Version(9, 0))}
"""What of these a later engine takes while it runs."""

_LIMITS = "client-output-buffer-limit"
_SEVERAL = frozenset({"save", _LIMITS, "oom-score-adj-values", "latency-tracking-info-percentiles"})
"""Directives of several arguments; the value of every other one is a single argument."""

_PASSWORDS = frozenset({"requirepass", "masterauth", "masteruser", "primaryauth", "primaryuser", "user", "aclfile"})
_PLACEHOLDER = re.compile(r"\{[A-Z][A-Z0-9_]*\}|\$\{?[A-Z]")
_ARGUMENT = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"']\S*))(?=\s|$)""")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "a": "\a"}

Directives = dict[str, list[list[str]]]
"""By name: the arguments of each line."""


def render(resource: RedisCluster, template: str = "") -> str:
    """redis.conf as nodes read it at their start.

    Args:
        template: the user's redis.conf.
    """
    given = _given(resource, template)
    lines = [
        f"# Of RedisCluster {resource.namespace}/{resource.name}: what is changed here is put back. Give spec.config.",
        *(_line(name, *arguments) for name, lines in sorted(given.items()) for arguments in lines),
        "",
        *(_line(name, *arguments) for name, *arguments in _ours(resource)),
    ]
    return "\n".join(lines) + "\n"


def live(resource: RedisCluster, template: str = "") -> Mapping[str, str]:
    """What running servers are told by CONFIG SET, which they do not read at their start alone."""
    given = _given(resource, template)
    return {name: _joined(lines) for name, lines in sorted(given.items()) if is_live(name, resource.engine)}


def digest(resource: RedisCluster, template: str = "", before: Obj | None = None) -> str:
    """Tells apart what servers would have to be restarted for.

    Args:
        before: the ConfigMap as it is, which may have directives that are given no longer.
    """
    given = _given(resource, template)
    read_once = {name: lines for name, lines in given.items() if not is_live(name, resource.engine)}
    text = json.dumps([read_once, list(_ours(resource))], sort_keys=True)
    told = hashlib.sha256(text.encode()).hexdigest()[:16]
    times = withdrawn(resource, template, before)
    return f"{told}.{times}" if times else told


def withdrawn(resource: RedisCluster, template: str, before: Obj | None) -> int:
    """How often a directive was taken away that running servers would have been told: their defaults we do not know.

    Args:
        before: the ConfigMap as it is.
    """
    if before is None:
        return 0
    times = int(annotation(before, WITHDRAWN) or 0)
    had = {name for name, _ in _lines((before.get("data") or {}).get(CONFIG_KEY) or "")} - set(RESERVED)
    return times + bool(had - _given(resource, template).keys())


def problem(resource: RedisCluster, template: str) -> SecretProblem | None:
    """What is wrong with the user's redis.conf; None if it serves. Never what stands in it."""
    at = f"spec.pod[0].configmap: ConfigMap {resource.config_template}"
    for number, line in enumerate(template.split("\n"), 1):
        words = line.split(maxsplit=1)
        if not words or words[0].startswith("#"):
            continue
        if words[0].lower() in _PASSWORDS and resource.spec.auth is None:
            return SecretProblem(
                CONFIG_MAP_INVALID,
                f"{at}: line {number} is {words[0].lower()}: who may enter is no matter of a ConfigMap, which many may "
                "read. Put the password into a Secret, give spec.auth.secretName, and remove the line.",
            )
        if _arguments(line) is None:
            return SecretProblem(CONFIG_MAP_INVALID, f"{at}: line {number} has quotes that do not match. Mend it.")
    return None


def is_live(name: str, engine: Engine) -> bool:
    """Whether a running server takes a directive by CONFIG SET."""
    since = _LIVE_SINCE.get(name)
    return name not in RESTART or (since is not None and engine.name == since.name and engine.version >= since.version)


def _given(resource: RedisCluster, template: str) -> Directives:
    """What is set, and is not the operator's alone to set."""
    spec = resource.spec
    found: Directives = {
        "cluster-node-timeout": [["5000"]],
        "cluster-require-full-coverage": [["yes"]],
        # A master that restarted with nothing in memory would have its replicas drop what they have.
        "appendonly": [["yes"]],
        "repl-diskless-sync": [["yes"]],
        # How long a replica waits for others that may want the same transfer: Redis' own 5 s are felt at each new one.
        "repl-diskless-sync-delay": [["1" if spec.replicas_per_master > 1 else "0"]],
    }
    if spec.tls.mode != "none" and features(resource.engine).hostnames:
        found["cluster-preferred-endpoint-type"] = [["hostname"]]  # certificates bear names
    bound = [] if spec.max_memory is None else [[str(spec.max_memory)]]
    if bound:
        found["maxmemory"] = bound
    for name, lines in _of_template(template).items():
        found[name] = lines
    for name, value in spec.config.items():
        found[name] = _split(name, value.split() if name in _SEVERAL else [value])
    if bound and any(variable.name == MAX_MEMORY for variable in spec.pods.env):
        found["maxmemory"] = bound
    if found["appendonly"] == [["yes"]]:
        found.setdefault("save", [[""]])  # the log has it all: no snapshots beside it
    return found


def _of_template(text: str) -> Directives:
    found: Directives = {}
    for name, arguments in _lines(text):
        if name in RESERVED or any(_PLACEHOLDER.search(argument) for argument in arguments):
            continue
        if name in _SEVERAL:
            lines = [line for line in found.get(name, []) if name != _LIMITS or line[:1] != arguments[:1]]
            found[name] = [*lines, *_split(name, arguments)]
        elif name == "loadmodule":
            found[name] = [*found.get(name, []), arguments]
        else:
            found[name] = [arguments]
    return found


def _lines(text: str) -> Iterator[tuple[str, list[str]]]:
    """Name and arguments of each directive; what cannot be read is left out (`problem` tells of it)."""
    for line in text.split("\n"):
        words = _arguments(line) or []
        if words and not words[0].startswith("#"):
            yield words[0].lower(), words[1:]


def _arguments(line: str) -> list[str] | None:
    """A line's words as the server takes them apart (sdssplitargs in src/sds.c); None if quotes do not match."""
    line, found, at = line.strip(), [], 0
    if line.startswith("#"):
        return []
    while at < len(line):
        word = _ARGUMENT.match(line, at)
        if word is None:
            return None
        double, single, plain = word.groups()
        if double is not None:
            found.append(_ESCAPE.sub(_unescaped, double))
        else:
            found.append(plain if single is None else single.replace("\\'", "'"))
        at = word.end()
    return found


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    return chr(int(text[1:], 16)) if len(text) > 1 else _ESCAPED.get(text, text)


def _split(name: str, arguments: list[str]) -> list[list[str]]:
    """The lines of a directive; those of 6.2 take one class of clients, and one condition to save on, each."""
    size = {"save": 2, _LIMITS: 4}.get(name, 0)
    if not size or len(arguments) < size:
        return [arguments or [""]]
    return [arguments[at : at + size] for at in range(0, len(arguments), size)]


def _joined(lines: Iterable[list[str]]) -> str:
    return " ".join(argument for line in lines for argument in line)


def _line(name: str, *arguments: str) -> str:
    return " ".join([name, *map(quoted, arguments)])


def quoted(argument: str) -> str:
    """An argument as redis.conf takes it."""
    if re.fullmatch(r"[!-~]+", argument) and not set("\"'\\#") & set(argument):
        return argument
    text = "".join(
        f"\\{character}"
        if character in '"\\'
        else character
        if " " <= character != "\x7f"
        else f"\\x{ord(character):02x}"
        for character in argument
    )
    return f'"{text}"'


def _ours(resource: RedisCluster) -> Iterator[tuple[str, ...]]:
    """What is the operator's alone to set; addresses stand among the arguments, for they differ from pod to pod."""
    yield "protected-mode", "no"  # who may enter, users and certificates say
    yield "dir", HOME
    yield "cluster-enabled", "yes"
    yield "cluster-config-file", NODES
    if features(resource.engine).forbids_replica_migration:
        yield "cluster-allow-replica-migration", "no"  # an empty master would make itself a replica
    else:
        yield "cluster-migration-barrier", "999"
    yield "masteruser", "default"  # AUTH with a user is taken where nobody is asked for a password, too
    tls = resource.spec.tls
    if tls.mode == "none":
        yield "port", str(PORT)
    else:
        yield "port", "0"
        yield "tls-port", str(PORT)
        yield "tls-cluster", "yes"
        yield "tls-replication", "yes"
        yield "tls-cert-file", f"{TLS}/{CERTIFICATE_KEY}"
        yield "tls-key-file", f"{TLS}/{PRIVATE_KEY}"
        yield "tls-ca-cert-file", f"{TLS}/{AUTHORITY_KEY}"
        yield "tls-auth-clients", "yes" if tls.client_auth == "required" else "no"
    yield "include", f"{USERS}/{USERS_KEY}"
