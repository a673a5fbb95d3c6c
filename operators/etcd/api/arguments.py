"""Arguments of etcd: those that extraArgs may set, and those that it must not, as patterns for CEL and Python.

Source: etcdmain/config.go and embed/config.go of 3.4.13, 3.5.35, 3.6.16 and 3.7.3. The container tests start each of
these versions with the accepted arguments.
"""

from __future__ import annotations

from typing import NamedTuple

_FILES = r"((peer-)?(client-)?(cert|key)-file|(peer-)?trusted-ca-file|(peer-)?client-cert-auth|(peer-)?auto-tls)"
_SET = (
    *(r"name", r"data-dir", r"wal-dir", r"listen-[a-z-]*", r"(initial-)?advertise-[a-z-]*", r"initial-cluster[a-z-]*"),
    *(_FILES, r"quota-backend-bytes", r"auto-compaction-[a-z]*", r"snapshot-count", r"heartbeat-interval"),
    *(r"election-timeout", r"strict-reconfig-check", r"force-new-cluster", r"unsafe-[a-z-]*", r"auth-token"),
    *(r"pre-vote", r"(peer|client)-cert-allowed-[a-z]*", r"(peer|client)-crl-file", r"self-signed-cert-validity"),
    *(r"(experimental-)?peer-skip-client-san-verification", r"(experimental-)?initial-corrupt-check"),
    *(r"(experimental-)?compact-hash-check-enabled", r"v2-deprecation", r"enable-grpc-gateway", r"enable-v2"),
    *(r"experimental-enable-v2v3", r"discovery[a-z-]*", r"proxy[a-z-]*", r"config-file", r"logger", r"log-outputs?"),
    *(r"enable-log-rotation", r"log-rotation-config-json", r"host-whitelist", r"version", r"help", r"h"),
)
RESERVED_FLAGS = rf"^--?(({'|'.join(_SET)})(=.*)?|feature-gates=.*(InitialCorruptCheck|CompactHashCheck).*)$"
"""Flags that users must not set.

Other fields and the operator set names, addresses, files and the initial state of a member. Some flags remove
guarantees of etcd (unsafe-no-fsync, strict-reconfig-check=false), delete data (v2-deprecation), block the operator
(enable-grpc-gateway, host-whitelist, client-cert-allowed-hostname), need a file that no pod has (client-crl-file), hide
why a member exited (log-outputs), or only print.
"""

REWRITTEN = r"^.*[$][(].*$"
"""Arguments with $(NAME): Kubernetes replaces it by a variable, with a value that was not checked."""

Series = tuple[int, int]


class Flag(NamedTuple):
    """A flag that extraArgs may set.

    Attributes:
        value: pattern of what follows its name.
        first, last: first and last series with this flag.
    """

    value: str
    first: Series = (3, 4)
    last: Series = (3, 7)


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

FLAGS = {
    "auth-token-ttl": Flag(_POSITIVE),
    "backend-batch-interval": Flag(_DURATION),
    "backend-batch-limit": Flag(_NUMBER),
    "backend-bbolt-freelist-type": Flag("=(array|map)", (3, 5)),
    "bcrypt-cost": Flag("=([4-9]|1[0-4])"),  # 15 and more take seconds per login, also of the operator
    "cipher-suites": Flag(_SUITES),
    "cors": Flag(f"=([*]|{_ORIGIN}(,{_ORIGIN})*)"),
    "enable-pprof": Flag(_SWITCH),
    "feature-gates": Flag(_GATES, (3, 6)),
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
"""Flags that extraArgs may set, by name."""

ACCEPTED = rf"^--({'|'.join(f'{name}{flag.value}' for name, flag in FLAGS.items())})$"
"""One argument including its value that etcd accepts: it exits on others, or stops parsing flags there."""


def absent(series: Series) -> str:
    """Return a pattern of the flags that a series does not have: etcd would not start."""
    names = [name for name, flag in FLAGS.items() if not flag.first <= series <= flag.last]
    return rf"^--({'|'.join(names)})(=.*)?$"
