"""redis.conf: the operator's directives override the spec, which overrides the user's template and the defaults. Pure.

Directives that running servers accept are sent with CONFIG SET (`live`); a digest of the others is in the pod
template, so that a change restarts the pods (`digest`). Which are which was tested with redis 7.0.15, 8.0.2, 8.2.3,
8.6.3 and 8.10.2 and with valkey 8.1.1 and 9.1.2, and read in src/config.c of redis 6.2.14;
tests/redis/containers/test_config.py repeats the test.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from operators.redis.api.directives import NODE_TIMEOUT_MS, RESERVED, RESTART, Ignored, find, present_name, refusal
from operators.redis.api.engine_versions import Engine, Version, features
from operators.redis.api.resource import RedisCluster, refused_directives
from operators.redis.api.spec import MAX_MEMORY
from operators.redis.client.server import PORT
from operators.redis.objects.conf_syntax import NAME, Malformed, arguments, quoted
from operators.redis.reasons import CONFIG_MAP_INVALID
from shared.api.memo import remembered
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

BUNDLED_MODULES = "/usr/local/lib/redis/modules/"
"""Directory of the modules in official images of Redis 8, which their ENTRYPOINT loads."""

_LIVE_SINCE: Mapping[str, Engine] = {"io-threads": Engine("valkey", Version(9, 0))}
"""Directives of `RESTART` that a later engine accepts at runtime."""

_MEMORY_TRACKING: Mapping[str, Engine] = {
    "cluster-slot-stats-enabled": Engine("redis", Version(8, 6)),
    "key-memory-histograms": Engine("redis", Version(8, 6)),
}
"""Directives that an engine accepts at runtime only without values that begin to track memory.

Source: updateMemoryTrackingEnabled in src/config.c of redis 8.6 and 8.10.
"""

_LIMITS = "client-output-buffer-limit"
_SEVERAL = frozenset(
    {"save", _LIMITS, "oom-score-adj-values", "latency-tracking-info-percentiles", "cluster-slot-stats-enabled"}
    | {"shutdown-on-sigint", "shutdown-on-sigterm"}
)
"""Directives with several arguments; every other one except loadmodule has a single argument."""

_PASSWORDS = frozenset({"requirepass", "masterauth", "masteruser", "primaryauth", "primaryuser", "user", "aclfile"})
_NOT_APPLIED: Mapping[str, str] = {
    "user": "the operator defines the users of the nodes (spec.auth)",
    "aclfile": "the operator defines the users of the nodes (spec.auth)",
    "rename-command": "the operator and the exporter need all commands",
}
"""Directives that restrict what clients may do, and why they are not applied: a user must not rely on them."""

_PLACEHOLDER = re.compile(r"\{[A-Z][A-Z0-9_]*\}|\$\{?[A-Z]")

MAX_BYTES, MAX_LINES = 128 * 1024, 4096
"""Maximum size of a redis.conf and of its lines: the documented one of a release has 110 KiB and 2,400 lines."""

MAX_DIRECTIVES, MAX_DIRECTIVES_BYTES, MAX_LINE = 512, 32 * 1024, 1024
"""Maximum number of lines that are no comments, size of them together, and length of one of them."""

Directives = dict[str, list[list[str]]]
"""Arguments of each line, by directive."""

Kept = Mapping[str, list[list[str]]]
"""Directives whose desired value must not be used, with the lines of the present file; no lines if it has none."""

NOTHING: Kept = {}


def excess(text: str) -> str:
    """Return which limit a redis.conf exceeds, as the end of a sentence; empty if it exceeds none."""
    if len(text) > MAX_BYTES or text.count("\n") > MAX_LINES:
        return f"has more than {MAX_BYTES:,} bytes or {MAX_LINES:,} lines"
    lines = [line for line in map(str.strip, text.split("\n")) if line and not line.startswith("#")]
    if len(lines) > MAX_DIRECTIVES or sum(map(len, lines)) > MAX_DIRECTIVES_BYTES:
        return (
            f"has {len(lines):,} directives in {sum(map(len, lines)):,} bytes, and at most {MAX_DIRECTIVES} in "
            f"{MAX_DIRECTIVES_BYTES:,} are accepted"
        )
    longest = max(map(len, lines), default=0)
    return f"has a line of {longest:,} bytes, and at most {MAX_LINE:,} are accepted" if longest > MAX_LINE else ""


def render(resource: RedisCluster, template: str = "", kept: Kept = NOTHING) -> str:
    """Return redis.conf as nodes read it when they start.

    Args:
        template: the user's redis.conf.
    """
    given = _given(resource, template, kept)
    lines = [
        f"# RedisCluster {resource.namespace}/{resource.name}: changes in this file are reverted. Use spec.config.",
        *(_line(name, *arguments) for name, lines in sorted(given.items()) for arguments in lines),
        "",
        *(_line(name, *arguments) for name, *arguments in _operator_directives(resource)),
    ]
    return "\n".join(lines) + "\n"


def live(resource: RedisCluster, template: str = "", kept: Kept = NOTHING) -> Mapping[str, str]:
    """Return the directives that running servers accept with CONFIG SET."""
    given = _given(resource, template, kept)
    return {name: joined(lines) for name, lines in sorted(given.items()) if is_live(name, resource.engine)}


def digest(resource: RedisCluster, template: str = "", kept: Kept = NOTHING, times: int = 0) -> str:
    """Return a digest of the settings that need a restart, and how often a directive was removed (`withdrawn`)."""
    given = _given(resource, template, kept)
    read_once = {name: lines for name, lines in given.items() if not is_live(name, resource.engine)}
    text = json.dumps([read_once, list(_operator_directives(resource))], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{digest}.{times}" if times else digest


def withdrawn(
    resource: RedisCluster,
    template: str,
    before: Obj | None,
    kept: Kept = NOTHING,
    *,
    unread: Collection[str] = (),
    times: int = 0,
) -> int:
    """Return how often a directive was removed that running servers applied: their defaults are unknown.

    Args:
        before: present ConfigMap.
        unread: directives of that file that no server has applied, such as those of an edit by hand.
        times: how often, according to the present pods; the ConfigMap may have been deleted.
    """
    if before is None:
        return times
    times = max(times, number_in(annotation(before, WITHDRAWN)))
    applied = [name for name in present(before) if name not in unread]
    return times + bool(_named(applied) - _named(_given(resource, template, kept)))


def removed(before: RedisCluster, after: RedisCluster) -> set[str]:
    """Return the directives that only the former spec has: `withdrawn` counts them once servers have applied them."""
    return _named(_given(before, "", NOTHING)) - _named(_given(after, "", NOTHING))


def _named(found: Iterable[str]) -> set[str]:
    return set(map(present_name, found))


def number_in(text: str) -> int:
    """Return the number in an annotation, which any client may write; 0 if it is none, or of more than 9 digits."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else 0


def present(config_map: Obj | None) -> Kept:
    """Return the directives of the present file, other than those that only the operator sets."""
    text = ((config_map or {}).get("data") or {}).get(CONFIG_KEY) or ""
    is_short = len(text) <= 2 * MAX_BYTES and text.count("\n") <= MAX_LINES // 2
    return _present(text) if is_short else {}  # replaced by hand, or with thousands of save points


def _size(found: Kept) -> int:
    """Return the approximate size of directives, in bytes."""
    return sum(200 + 2 * len(joined(lines)) for lines in found.values())


@remembered(_size)  # a plan reads it a dozen times
def _present(text: str) -> Kept:
    found: Directives = {}
    for name, words in _lines(text):
        if name not in RESERVED:
            found.setdefault(name, []).append(words)
    return found


def names(resource: RedisCluster, template: str, config_map: Obj | None) -> tuple[str, ...]:
    """Return the directives whose values running servers should report: desired ones and some others of the file."""
    desired = _given(resource, template, NOTHING)
    served = [name for name in desired if is_live(name, resource.engine)]
    others = [name for name in present(config_map) if name not in desired]
    return (*served, *others[:MAX_DIRECTIVES])  # another client may have changed the file


def kept_values(resource: RedisCluster, config_map: Obj | None) -> Kept:
    """Return what the present file has for the directives of spec.config that the version of the spec refuses.

    A value that nodes run with stays, also one that only a newer rule of the operator refuses.
    """
    given, engine, found = present(config_map), resource.engine, dict[str, list[list[str]]]()
    for name in refused_directives(resource):
        lines, exists = given.get(name, []), find(name, engine) is not None
        same = joined(lines) == resource.spec.config[name]
        found[name] = lines if lines and exists and (same or not refusal(name, joined(lines), engine)) else []
    return found


def problem(resource: RedisCluster, template: str) -> SecretProblem | None:
    """Return why the user's redis.conf is invalid; None if it is valid. Never contains values."""
    at = f"spec.pod[0].configmap: ConfigMap {resource.config_template}"
    modules = "loadmodule" in resource.spec.config or _loads_modules(template)
    for number, line in enumerate(template.split("\n"), 1):
        words = line.split(maxsplit=1)
        if words and words[0].lower() in _PASSWORDS and resource.spec.auth is None:
            return SecretProblem(
                CONFIG_MAP_INVALID,
                f"{at}: line {number} sets {words[0].lower()}, but credentials do not belong in a ConfigMap. Put the "
                "password into a Secret, set spec.auth.secretName, and remove the line.",
            )
        if words and (reason := _NOT_APPLIED.get(words[0].lower())):
            return SecretProblem(
                CONFIG_MAP_INVALID,
                f"{at}: line {number} sets {words[0].lower()}, which is not applied: {reason}. Remove the line.",
            )
        if why := _wrong_line(line, resource.engine, modules=modules):
            return SecretProblem(CONFIG_MAP_INVALID, f"{at}: line {number} {why}. Correct it, or remove the line.")
    return None


def loads_bundled_modules(resource: RedisCluster, template: str = "") -> bool:
    """Return whether the settings themselves load modules that the ENTRYPOINT of the image loads."""
    lines = _given(resource, template, {}).get("loadmodule", ())
    return any(posixpath.normpath(" ".join(line)).startswith(BUNDLED_MODULES) for line in lines)


PERSISTENCE = ("appendonly", "save")
"""Directives that decide whether a restarted server has data (`persists`)."""

SNAPSHOTS = [["3600", "1"], ["300", "100"], ["60", "10000"]]
"""When a server without an append-only file writes a snapshot by default: seconds, and changes in them."""

DELAY = "repl-diskless-sync-delay"

DELAYED_SYNC: Mapping[str, str] = {
    "repl-diskless-sync": "yes",
    DELAY: str(2**31 - 1),
    "repl-diskless-sync-max-replicas": "0",
}
"""Directives with which a server delays the transfer of its data set: replicas that request it keep their own.

A diskless transfer begins after a delay, or as soon as a number of replicas wait for it. Source:
shouldStartChildReplication in replication.c of Redis 7.0 and Valkey 9.0.
"""


def delayed_sync(resource: RedisCluster, template: str = "") -> Mapping[str, str]:
    """Return the directives of `DELAYED_SYNC` that a server needs: those of the file, which it would use otherwise."""
    given = _given(resource, template, {})
    return {name: value for name, value in DELAYED_SYNC.items() if name in given}


AWAITED = "min-replicas-to-write"

AWAITED_REPLICA: Mapping[str, str] = {AWAITED: "1", "min-replicas-max-lag": "10"}
"""Directives with which a primary refuses writes until a replica is in sync; 0 of any one accepts writes."""


def awaited_replica(resource: RedisCluster, template: str = "") -> Mapping[str, str]:
    """Return the directives of `AWAITED_REPLICA` that a server needs: those that the file sets to 0."""
    given = {present_name(name): joined(lines) for name, lines in _given(resource, template, {}).items()}
    return {name: value for name, value in AWAITED_REPLICA.items() if name in given and not given[name].strip("0")}


def persists(resource: RedisCluster, template: str = "") -> bool:
    """Return whether a restarted server has data: it writes an append-only file or snapshots."""
    return writes_files(_given(resource, template, {}))


def appends(resource: RedisCluster, template: str = "") -> bool:
    """Return whether a restarted server has all data: it writes an append-only file."""
    return writes_log(_given(resource, template, {}))


def writes_files(given: Kept) -> bool:
    """Return whether a server with these directives has data when it restarts; an unknown one may have."""
    return writes_log(given) or any(line != [""] for line in given.get("save", SNAPSHOTS))


def writes_log(given: Kept) -> bool:
    """Return whether a server with these directives writes an append-only file; an unknown one may write it."""
    return joined(given.get("appendonly", ())).lower() != "no"


def _loads_modules(text: str) -> bool:
    return any(name == "loadmodule" for name, _ in _lines(text))


def _wrong_line(line: str, engine: Engine, *, modules: bool) -> str:
    """Return what is wrong with a line, as the end of a sentence without values; empty if nothing is."""
    try:
        words = arguments(line)
    except Malformed as error:
        return str(error)
    if not words:
        return ""
    name, values = words[0].lower(), words[1:]
    if re.fullmatch(NAME, name) is None:
        return "does not begin with the name of a directive"
    if _is_ignored(name, values):
        return ""
    if not values or (len(values) > 1 and name not in _SEVERAL and find(name, engine) and name != "loadmodule"):
        return f"sets {name}, which needs {'a value' if not values else 'one value; put it in quotes'}"
    why = refusal(name, " ".join(values), engine, modules=modules)
    return f"sets {name}, which {why}" if why else ""


def _is_ignored(name: str, values: Sequence[str]) -> bool:
    """Return whether a line of the user's redis.conf is omitted: the operator sets it, or it has a placeholder."""
    return name in RESERVED or any(_PLACEHOLDER.search(value) for value in values)


def is_live(name: str, engine: Engine) -> bool:
    """Return whether a running server accepts a directive with CONFIG SET."""
    directive = find(name, engine)
    if directive is not None and isinstance(directive.kind, Ignored):
        return False
    if name in RESTART:
        return _is_at_least(engine, _LIVE_SINCE.get(name))
    return not _is_at_least(engine, _MEMORY_TRACKING.get(name))


def _is_at_least(engine: Engine, least: Engine | None) -> bool:
    return least is not None and engine.name == least.name and engine.version >= least.version


def _given(resource: RedisCluster, template: str, kept: Kept) -> Directives:
    """Return the directives other than those that only the operator sets."""
    found = _defaults(resource)
    bound = [] if resource.spec.max_memory is None else [[str(resource.spec.max_memory)]]
    if bound:
        found["maxmemory"] = bound
    config = {
        name: _split(name, value.split() if name in _SEVERAL else [value])
        for name, value in resource.spec.config.items()
    }
    present_names = {present_name(name): name for name in found}
    given = (*(_of_template(template, resource.engine) if template else NOTHING).items(), *config.items())
    changes = [each for each in given if each[0] not in kept] + [each for each in kept.items() if each[1]]
    for name, lines in changes:
        found.pop(present_names.get(present_name(name), name), None)
        found[name] = lines
        present_names[present_name(name)] = name
    if bound and any(variable.name == MAX_MEMORY for variable in resource.spec.pods.env):
        found["maxmemory"] = bound
    if writes_log(found):
        found.setdefault("save", [[""]])  # the AOF has all data: no snapshots in addition
    else:
        found.setdefault("save", SNAPSHOTS)
        # Of a node without persistence. Otherwise it keeps the snapshot of its last full sync on its volume.
        found.setdefault("rdb-del-sync-files", [["yes"]])
    return found


def _defaults(resource: RedisCluster) -> Directives:
    """Return the operator's defaults, which the user's redis.conf and spec.config override."""
    found: Directives = {
        "cluster-node-timeout": [[str(NODE_TIMEOUT_MS)]],
        "cluster-require-full-coverage": [["yes"]],
        # Replicas of a primary that restarts without its data would drop their data.
        "appendonly": [["yes"]],
        "repl-diskless-sync": [["yes"]],
        # Delay to share one transfer among several replicas: Redis' default of 5 s delays each new replica.
        "repl-diskless-sync-delay": [["1" if resource.spec.replicas_per_master > 1 else "0"]],
        # The engine's defaults: a migration raises them for large keys, and may be interrupted before it restores them.
        "proto-max-bulk-len": [[str(512 << 20)]],
        "client-query-buffer-limit": [[str(1 << 30)]],
        # The engine's default. Processes of some pods start with another value (steps/old_snapshot.py).
        AWAITED: [["0"]],
    }
    if features(resource.engine).hands_over:
        found["shutdown-on-sigterm"] = [["failover"]]  # while the operator is away (steps/handover.py)
    if resource.spec.tls.mode != "none" and features(resource.engine).hostnames:
        found["cluster-preferred-endpoint-type"] = [["hostname"]]  # certificates contain names
    return found


@remembered(_size)  # as often
def _of_template(text: str, engine: Engine) -> Kept:
    """Return the directives of the user's redis.conf, without those that the engine lacks: it would not start."""
    found: Directives = {}
    modules = _loads_modules(text)
    for name, values in _lines(text):
        if _is_ignored(name, values) or re.fullmatch(NAME, name) is None:
            continue
        if find(name, engine) is None and refusal(name, "", engine, modules=modules):
            continue
        if name in _SEVERAL:
            values = [word for value in values for word in value.split() or [""]]
            resets = name == "save" and values == [""]
            before = [] if resets else [line for line in found.get(name, []) if line != [""]]
            lines = [line for line in before if name != _LIMITS or line[:1] != values[:1]]
            found[name] = [*lines, *_split(name, values)]
        elif name == "loadmodule":
            found[name] = [*found.get(name, []), values]
        else:
            found[name] = [values]
    return found


def _lines(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield name and arguments of each directive; invalid lines are omitted (`problem` reports them)."""
    for name, *words in _parsed(text):
        yield name.lower(), words


@remembered(lambda lines: sum(200 + 2 * sum(map(len, words)) for words in lines))  # a plan reads it a dozen times
def _parsed(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of each directive."""
    found = []
    for line in text.split("\n"):
        try:
            words = arguments(line)
        except Malformed:
            continue
        if words:
            found.append(words)
    return tuple(found)


def _split(name: str, arguments: list[str]) -> list[list[str]]:
    """Return the lines of a directive; Redis 6.2 accepts one client class, and one save condition, in each."""
    size = {"save": 2, _LIMITS: 4}.get(name, 0)
    if not size or len(arguments) < size:
        return [arguments or [""]]
    return [arguments[at : at + size] for at in range(0, len(arguments), size)]


def joined(lines: Iterable[list[str]]) -> str:
    """Return the lines of a directive as one value, as CONFIG SET accepts it."""
    return " ".join(argument for line in lines for argument in line)


def _line(name: str, *arguments: str) -> str:
    return " ".join([name, *map(quoted, arguments)])


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
