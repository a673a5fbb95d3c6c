"""Arguments of etcd: those that extraArgs may set, and those that it must not, as patterns for CEL and Python.

Source: etcdmain/config.go and embed/config.go of 3.4.13, 3.5.35, 3.6.16 and 3.7.3. The container tests start each of
these versions with the accepted arguments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FILES = r"((peer-)?(client-)?(cert|key)-file|(peer-)?trusted-ca-file|(peer-)?client-cert-auth|(peer-)?auto-tls)"
_REFUSED = (
    *(r"wal-dir", r"listen-[a-z-]*", r"(initial-)?advertise-[a-z-]*", r"initial-cluster[a-z-]*", _FILES),
    *(r"auto-compaction-[a-z]*", r"force-new-cluster", r"unsafe-[a-z-]*", r"auth-token", r"self-signed-cert-validity"),
    *(r"(peer|client)-cert-allowed-[a-z]*", r"(peer|client)-crl-file"),
    *(r"(experimental-)?peer-skip-client-san-verification", r"(experimental-)?initial-corrupt-check"),
    *(r"(experimental-)?compact-hash-check-enabled", r"v2-deprecation", r"enable-grpc-gateway", r"enable-v2"),
    *(r"experimental-enable-v2v3", r"discovery[a-z-]*", r"proxy[a-z-]*", r"config-file", r"log-outputs?"),
    *(r"enable-log-rotation", r"log-rotation-config-json", r"host-whitelist", r"version", r"help", r"h"),
)
"""Families of flags that users must not set, whether the operator sets one or not.

They set names, addresses, files or the initial state of a member, remove guarantees of etcd (unsafe-no-fsync), or
delete data (v2-deprecation). Others block the operator (enable-grpc-gateway, host-whitelist,
client-cert-allowed-hostname), need a file that no pod has (client-crl-file), hide why a member exited (log-outputs), or
only print.
"""

REWRITTEN = r"^.*[$][(].*$"
"""Arguments with $(NAME): Kubernetes replaces it by a variable, with a value that was not checked."""

Series = tuple[int, int]


class Flag(NamedTuple):
    """A flag of etcd.

    Attributes:
        value: pattern of the text after the name in extraArgs; empty for a flag that the operator sets, so that
            extraArgs must not.
        first, last: first and last series with this flag.
        is_shared: whether the operator sets it too, to values that `RESERVED_FLAGS` keeps from extraArgs.
    """

    value: str
    first: Series = (3, 4)
    last: Series = (3, 7)
    is_shared: bool = False


_SWITCH = "(=(true|false))?"
_NUMBER, _POSITIVE = "=(0|[1-9][0-9]{0,8})", "=[1-9][0-9]{0,8}"  # Go reads a number that begins with 0 as octal
_AT_LEAST_100, _AT_LEAST_1000 = "=[1-9][0-9]{2,8}", "=[1-9][0-9]{3,8}"
_DURATION = "=([0-9]{1,5}([.][0-9]{1,3})?(ms|s|m|h)){1,3}"
_ABOVE_ZERO = "=[1-9][0-9]{0,4}([.][0-9]{1,3})?(ms|s|m|h)"
_TEXT = "=[!-~]{1,200}"

_SUITE = "TLS_ECDHE_(RSA|ECDSA)_WITH_(AES_(128|256)_CBC_SHA|AES_128_GCM_SHA256|AES_256_GCM_SHA384)"
_SUITES = f"=({_SUITE},)*TLS_ECDHE_(RSA|ECDSA)_WITH_AES_128_GCM_SHA256(,{_SUITE})*"  # HTTP/2 requires that suite
_ORIGIN = r"https?://[0-9A-Za-z.-]{1,100}:[1-9][0-9]{0,4}"
_TLS_VERSION = "=TLS1[.][23]"

_GATE = (
    "(AllAlpha|AllBeta|FastLeaseKeepAlive|LeaseCheckpoint|PriorityRequest|SetMemberLocalAddr|StopGRPCServiceOnDefrag"
    "|TxnModeWriteWithSharedBuffer)=(true|false)"
)
_GATES = f"=({_GATE},)*({_GATE}|LeaseCheckpoint=true,LeaseCheckpointPersist=true)"

_FORMERLY_EXPERIMENTAL = {
    "bootstrap-defrag-threshold-megabytes": Flag(_NUMBER, (3, 5)),
    "compact-hash-check-time": Flag(_ABOVE_ZERO, (3, 5)),
    "compaction-batch-limit": Flag(_POSITIVE),
    "compaction-sleep-interval": Flag(_DURATION, (3, 5)),
    "corrupt-check-time": Flag(_DURATION),
    "distributed-tracing-address": Flag(_TEXT, (3, 5)),
    "distributed-tracing-instance-id": Flag(_TEXT, (3, 5)),
    "distributed-tracing-sampling-rate": Flag("=(0|[1-9][0-9]{0,5})", (3, 5)),
    "distributed-tracing-service-name": Flag(_TEXT, (3, 5)),
    "downgrade-check-time": Flag(_ABOVE_ZERO, (3, 5)),
    "enable-distributed-tracing": Flag(_SWITCH, (3, 5)),
    "memory-mlock": Flag(_SWITCH, (3, 5)),
    "snapshot-catchup-entries": Flag(_POSITIVE, (3, 5)),
    "warning-apply-duration": Flag(_DURATION, (3, 5)),
    "warning-unary-request-duration": Flag(_DURATION, (3, 6)),
    "watch-progress-notify-interval": Flag(_DURATION),
}
"""Flags that have the prefix `experimental-` up to 3.6, and none since 3.6; `first` is that of the prefixed form."""

_OPERATORS = Flag("")

FLAGS = {
    "name": _OPERATORS,
    "data-dir": _OPERATORS,
    "listen-peer-urls": _OPERATORS,
    "listen-client-urls": _OPERATORS,
    "listen-metrics-urls": _OPERATORS,
    "initial-advertise-peer-urls": _OPERATORS,
    "advertise-client-urls": _OPERATORS,
    "initial-cluster-state": _OPERATORS,
    "initial-cluster": _OPERATORS,
    "initial-cluster-token": _OPERATORS,
    "strict-reconfig-check": _OPERATORS,
    "pre-vote": _OPERATORS,
    "heartbeat-interval": _OPERATORS,
    "election-timeout": _OPERATORS,
    "quota-backend-bytes": _OPERATORS,
    "snapshot-count": _OPERATORS,
    "auto-compaction-mode": _OPERATORS,
    "auto-compaction-retention": _OPERATORS,
    "experimental-initial-corrupt-check": _OPERATORS,
    "experimental-compact-hash-check-enabled": _OPERATORS,
    "cert-file": _OPERATORS,
    "key-file": _OPERATORS,
    "trusted-ca-file": _OPERATORS,
    "client-cert-auth": _OPERATORS,
    "peer-cert-file": _OPERATORS,
    "peer-key-file": _OPERATORS,
    "peer-trusted-ca-file": _OPERATORS,
    "peer-client-cert-auth": _OPERATORS,
    "peer-cert-allowed-hostname": _OPERATORS,
    "peer-skip-client-san-verification": _OPERATORS,
    "experimental-peer-skip-client-san-verification": _OPERATORS,
    "logger": _OPERATORS,
    "log-outputs": _OPERATORS,
    "auth-token-ttl": Flag(_POSITIVE),
    "backend-batch-interval": Flag(_DURATION),
    "backend-batch-limit": Flag(_NUMBER),
    "backend-bbolt-freelist-type": Flag("=(array|map)", (3, 5)),
    "bcrypt-cost": Flag("=([4-9]|1[0-4])"),  # 15 and more take seconds per login, also of the operator
    "cipher-suites": Flag(_SUITES),
    "cors": Flag(f"=([*]|{_ORIGIN}(,{_ORIGIN})*)"),
    "enable-pprof": Flag(_SWITCH),
    "feature-gates": Flag(_GATES, (3, 6), is_shared=True),
    "grpc-keepalive-interval": Flag(_DURATION),
    "grpc-keepalive-min-time": Flag(_DURATION),
    "grpc-keepalive-timeout": Flag(_DURATION),
    "initial-election-tick-advance": Flag(_SWITCH),
    "log-format": Flag("=(json|console)", (3, 6)),
    "log-level": Flag("=(debug|info|warn|error)"),  # others hide why a member exits
    "max-concurrent-streams": Flag(_AT_LEAST_100, (3, 5)),  # with few, watches of clients block the operator's calls
    "max-learners": Flag("=[1-9][0-9]?", (3, 6)),
    "max-request-bytes": Flag(_AT_LEAST_1000),  # with less, etcd refuses its own proposals
    "max-snapshots": Flag("=[1-9][0-9]?"),  # 0 keeps all files: the volume would be full
    "max-txn-ops": Flag(_POSITIVE),
    "max-wals": Flag("=[1-9]"),  # each has 64 MiB
    "metrics": Flag("=(basic|extensive)"),
    "raft-read-timeout": Flag(_DURATION, (3, 5)),
    "raft-write-timeout": Flag(_DURATION, (3, 5)),
    "socket-reuse-address": Flag(_SWITCH, (3, 5)),
    "socket-reuse-port": Flag(_SWITCH, (3, 5)),
    "tls-max-version": Flag(_TLS_VERSION, (3, 5)),
    "tls-min-version": Flag(_TLS_VERSION, (3, 5)),
    "experimental-enable-lease-checkpoint": Flag(_SWITCH, (3, 4), (3, 6)),
    "experimental-enable-lease-checkpoint-persist": Flag(_SWITCH, (3, 5), (3, 6)),
    "experimental-stop-grpc-service-on-defrag": Flag(_SWITCH, (3, 5), (3, 6)),
    "experimental-txn-mode-write-with-shared-buffer": Flag(_SWITCH, (3, 5), (3, 6)),
    **{name: flag._replace(first=(3, 6)) for name, flag in _FORMERLY_EXPERIMENTAL.items()},
    **{f"experimental-{name}": flag._replace(last=(3, 6)) for name, flag in _FORMERLY_EXPERIMENTAL.items()},
}
"""The flags of etcd, by name: the builder, the reserved and the accepted ones derive from it.

A flag that is not here is neither set by the operator (`argument`) nor accepted in extraArgs.
"""

USER_FLAGS = {name: flag for name, flag in FLAGS.items() if flag.value}
"""Flags that extraArgs may set, by name."""

_SET = [name for name, flag in FLAGS.items() if not flag.value and not re.fullmatch("|".join(_REFUSED), name)]

RESERVED_FLAGS = (
    rf"^--?(({'|'.join((*_SET, *_REFUSED))})(=.*)?|feature-gates=.*(InitialCorruptCheck|CompactHashCheck).*)$"
)
"""Flags that users must not set: those of the operator, of other fields, and of `_REFUSED`."""

ACCEPTED = rf"^--({'|'.join(f'{name}{flag.value}' for name, flag in USER_FLAGS.items())})$"
"""One argument including its value that etcd accepts: it exits on others, or stops parsing flags there."""


def argument(name: str, value: object) -> str:
    """Return an argument of the operator. etcd takes the last one of a name, and extraArgs follow.

    Raises:
        ValueError: extraArgs may set the flag, or it is not in the table, so that extraArgs could override the value.
    """
    flag = FLAGS.get(name)
    if flag is None or (flag.value and not flag.is_shared):
        raise ValueError(f"--{name} is no flag of the operator in FLAGS, so that extraArgs could override it")
    return f"--{name}={value}"


def absent(series: Series) -> str:
    """Return a pattern of the flags that a series does not have: etcd would not start."""
    names = [name for name, flag in USER_FLAGS.items() if not flag.first <= series <= flag.last]
    return rf"^--({'|'.join(names)})(=.*)?$"
