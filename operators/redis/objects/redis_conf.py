"""redis.conf: the operator's directives override the spec, which overrides the user's template and the defaults. Pure.

Directives that running servers accept are sent with CONFIG SET (`live`); a digest of the others is in the pod
template, so that a change restarts the pods (`digest`). Which are which was tested with redis 7.0.15 and 8.0.2 and with
valkey 8.1.1 and 9.1.0, and read in src/config.c of redis 6.2.14; tests/containers/redis/test_config.py repeats the
test.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
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
"""Key of redis.conf in the operator's ConfigMap and in the user's."""

HOME = "/data"
CONFIG, USERS, TLS = "/etc/redis/config", "/etc/redis/users", "/etc/redis/tls"
"""Directories of a node's data, and of the files that it reads when it starts."""

USERS_KEY = "users.conf"

NODES = "nodes.conf"
"""File with the node's identity and known nodes; the node writes it."""

WITHDRAWN = "redis.middleware.hc.cn/withdrawn"
"""Annotation of the ConfigMap: how often a directive was removed. Only a restart restores its default."""

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
"""Directives that a server reads only when it starts (IMMUTABLE_CONFIG, PROTECTED_CONFIG)."""

BUNDLED_MODULES = "/usr/local/lib/redis/modules/"
"""Directory of the modules in official images of Redis 8, which their ENTRYPOINT loads."""

_LIVE_SINCE: Mapping[str, Engine] = {"io-threads": Engine("valkey", Version(9, 0))}
"""Directives of `RESTART` that a later engine accepts at runtime."""

_LIMITS = "client-output-buffer-limit"
_SEVERAL = frozenset({"save", _LIMITS, "oom-score-adj-values", "latency-tracking-info-percentiles"})
"""Directives with several arguments; every other one has a single argument."""

_PASSWORDS = frozenset({"requirepass", "masterauth", "masteruser", "primaryauth", "primaryuser", "user", "aclfile"})
_PLACEHOLDER = re.compile(r"\{[A-Z][A-Z0-9_]*\}|\$\{?[A-Z]")
_ARGUMENT = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"']\S*))(?=\s|$)""")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "a": "\a"}

Directives = dict[str, list[list[str]]]
"""Arguments of each line, by directive."""


def render(resource: RedisCluster, template: str = "") -> str:
    """Return redis.conf as nodes read it when they start.

    Args:
        template: the user's redis.conf.
    """
    given = _given(resource, template)
    lines = [
        f"# RedisCluster {resource.namespace}/{resource.name}: changes in this file are reverted. Use spec.config.",
        *(_line(name, *arguments) for name, lines in sorted(given.items()) for arguments in lines),
        "",
        *(_line(name, *arguments) for name, *arguments in _operator_directives(resource)),
    ]
    return "\n".join(lines) + "\n"


def live(resource: RedisCluster, template: str = "") -> Mapping[str, str]:
    """Return the directives that running servers accept with CONFIG SET."""
    given = _given(resource, template)
    return {name: _joined(lines) for name, lines in sorted(given.items()) if is_live(name, resource.engine)}


def digest(resource: RedisCluster, template: str = "", before: Obj | None = None) -> str:
    """Return a digest of the settings that need a restart.

    Args:
        before: present ConfigMap, which may contain directives that were removed.
    """
    given = _given(resource, template)
    read_once = {name: lines for name, lines in given.items() if not is_live(name, resource.engine)}
    text = json.dumps([read_once, list(_operator_directives(resource))], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    times = withdrawn(resource, template, before)
    return f"{digest}.{times}" if times else digest


def withdrawn(resource: RedisCluster, template: str, before: Obj | None) -> int:
    """Return how often a directive was removed that running servers applied: their defaults are unknown.

    Args:
        before: present ConfigMap.
    """
    if before is None:
        return 0
    times = int(annotation(before, WITHDRAWN) or 0)
    had = {name for name, _ in _lines((before.get("data") or {}).get(CONFIG_KEY) or "")} - set(RESERVED)
    return times + bool(had - _given(resource, template).keys())


def problem(resource: RedisCluster, template: str) -> SecretProblem | None:
    """Return why the user's redis.conf is invalid; None if it is valid. Never contains values."""
    at = f"spec.pod[0].configmap: ConfigMap {resource.config_template}"
    for number, line in enumerate(template.split("\n"), 1):
        words = line.split(maxsplit=1)
        if not words or words[0].startswith("#"):
            continue
        if words[0].lower() in _PASSWORDS and resource.spec.auth is None:
            return SecretProblem(
                CONFIG_MAP_INVALID,
                f"{at}: line {number} sets {words[0].lower()}, but credentials do not belong in a ConfigMap. Put the "
                "password into a Secret, set spec.auth.secretName, and remove the line.",
            )
        if _arguments(line) is None:
            return SecretProblem(CONFIG_MAP_INVALID, f"{at}: line {number} has unbalanced quotes. Correct it.")
    return None


def loads_bundled_modules(resource: RedisCluster, template: str = "") -> bool:
    """Return whether the settings themselves load modules that the ENTRYPOINT of the image loads."""
    lines = _given(resource, template).get("loadmodule", ())
    return any(posixpath.normpath(" ".join(line)).startswith(BUNDLED_MODULES) for line in lines)


def persists(resource: RedisCluster, template: str = "") -> bool:
    """Return whether a restarted server has data: it writes an append-only file or snapshots."""
    given = _given(resource, template)
    if given["appendonly"][0][0].lower() != "no":
        return True
    saves = given.get("save")  # without the directive, the server's default applies, which writes snapshots
    return saves is None or any(line != [""] for line in saves)


def is_live(name: str, engine: Engine) -> bool:
    """Return whether a running server accepts a directive with CONFIG SET."""
    since = _LIVE_SINCE.get(name)
    return name not in RESTART or (since is not None and engine.name == since.name and engine.version >= since.version)


def _given(resource: RedisCluster, template: str) -> Directives:
    """Return the directives other than those that only the operator sets."""
    spec = resource.spec
    found: Directives = {
        "cluster-node-timeout": [["5000"]],
        "cluster-require-full-coverage": [["yes"]],
        # Replicas of a primary that restarts without its data would drop their data.
        "appendonly": [["yes"]],
        "repl-diskless-sync": [["yes"]],
        # Delay to share one transfer among several replicas: Redis' default of 5 s delays each new replica.
        "repl-diskless-sync-delay": [["1" if spec.replicas_per_master > 1 else "0"]],
    }
    if spec.tls.mode != "none" and features(resource.engine).hostnames:
        found["cluster-preferred-endpoint-type"] = [["hostname"]]  # certificates contain names
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
        found.setdefault("save", [[""]])  # the AOF has all data: no snapshots in addition
    else:
        # Of a node without persistence. Otherwise it keeps the snapshot of its last full sync on its volume.
        found.setdefault("rdb-del-sync-files", [["yes"]])
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
    """Yield name and arguments of each directive; invalid lines are omitted (`problem` reports them)."""
    for line in text.split("\n"):
        words = _arguments(line) or []
        if words and not words[0].startswith("#"):
            yield words[0].lower(), words[1:]


def _arguments(line: str) -> list[str] | None:
    """Split a line as the server does (sdssplitargs in src/sds.c); None if quotes do not match."""
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
    """Return the lines of a directive; Redis 6.2 accepts one client class, and one save condition, in each."""
    size = {"save": 2, _LIMITS: 4}.get(name, 0)
    if not size or len(arguments) < size:
        return [arguments or [""]]
    return [arguments[at : at + size] for at in range(0, len(arguments), size)]


def _joined(lines: Iterable[list[str]]) -> str:
    return " ".join(argument for line in lines for argument in line)


def _line(name: str, *arguments: str) -> str:
    return " ".join([name, *map(quoted, arguments)])


def quoted(argument: str) -> str:
    """Return an argument in the syntax of redis.conf."""
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


def _operator_directives(resource: RedisCluster) -> Iterator[tuple[str, ...]]:
    """Yield the directives that only the operator sets; addresses are command line arguments, because they differ by
    pod.
    """
    yield "protected-mode", "no"  # users and certificates protect the server
    yield "dir", HOME
    yield "cluster-enabled", "yes"
    yield "cluster-config-file", NODES
    if features(resource.engine).forbids_replica_migration:
        yield "cluster-allow-replica-migration", "no"  # an empty primary would become a replica
    else:
        yield "cluster-migration-barrier", "999"
    yield "masteruser", "default"  # AUTH with a user also works without passwords
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
