"""Arguments of etcd that fields of the spec or the operator set, as patterns for CEL and Python.

Source: etcdmain/config.go and embed/config.go of 3.4.13, 3.5.35, 3.6.16 and 3.7.3.
"""

from __future__ import annotations

FORM = r"^--[a-z0-9][a-z0-9-]*(=.*)?$"
"""One argument including its value: etcd stops parsing flags at the first argument that is not a flag."""

_FILES = r"((peer-)?(client-)?(cert|key)-file|(peer-)?trusted-ca-file|(peer-)?client-cert-auth|(peer-)?auto-tls)"
_SET = (
    *(r"name", r"data-dir", r"wal-dir", r"listen-[a-z-]*", r"(initial-)?advertise-[a-z-]*", r"initial-cluster[a-z-]*"),
    *(_FILES, r"quota-backend-bytes", r"auto-compaction-[a-z]*", r"snapshot-count", r"heartbeat-interval"),
    *(r"election-timeout", r"strict-reconfig-check", r"force-new-cluster", r"unsafe-[a-z-]*", r"auth-token"),
    *(r"pre-vote", r"peer-cert-allowed-[a-z]*", r"(experimental-)?peer-skip-client-san-verification"),
    *(r"(experimental-)?initial-corrupt-check", r"(experimental-)?compact-hash-check-enabled"),
    *(r"enable-grpc-gateway", r"enable-v2", r"experimental-enable-v2v3", r"discovery[a-z-]*", r"proxy[a-z-]*"),
    *(r"config-file", r"logger", r"log-outputs?", r"enable-log-rotation", r"host-whitelist", r"version", r"help", r"h"),
)
RESERVED_FLAGS = rf"^--?(({'|'.join(_SET)})(=.*)?|feature-gates=.*(InitialCorruptCheck|CompactHashCheck).*)$"
"""Flags that users must not set.

Other fields and the operator set names, addresses, files and the initial state of a member. Some flags remove
guarantees of etcd (unsafe-no-fsync, strict-reconfig-check=false), block the operator (enable-grpc-gateway,
host-whitelist), hide why a member exited (log-outputs), or only print.
"""

REWRITTEN = r"^.*[$][(].*$"
"""Arguments with $(NAME): Kubernetes replaces it by a variable, with a value that was not checked."""

REMOVED_FLAGS = r"^--experimental-.*$"
"""Flags that 3.7 no longer accepts: etcd would not start."""

REJECTS_EXPERIMENTAL_FLAGS = r"(^|:)v?3\.7\.[0-9]+[^/]*$"
"""Version or image tag of a series that rejects them."""
