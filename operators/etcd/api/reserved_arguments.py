"""Which of etcd's arguments belong to fields of the spec, as patterns for CEL and Python alike.

Source: etcdmain/config.go and embed/config.go of 3.4.13, 3.5.35, 3.6.16 and 3.7.3.
"""

from __future__ import annotations

FORM = r"^--[a-z0-9][a-z0-9-]*(=.*)?$"
"""One argument, with its value in it: etcd stops reading flags at the first that is none."""

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
"""What other fields and the operator set: names, addresses, files and the state that a member starts from; what takes
etcd's promises away (unsafe-no-fsync, strict-reconfig-check=false); what keeps the operator out (enable-grpc-gateway,
host-whitelist) or hides why a member ended (log-outputs); and what only prints.
"""

REMOVED_FLAGS = r"^--experimental-.*$"
"""What 3.7 no longer takes: it would not start."""

REJECTS_EXPERIMENTAL_FLAGS = r"(^|:)v?3\.7\.[0-9]+[^/]*$"
"""A version, or an image whose tag is one, for which that holds."""
