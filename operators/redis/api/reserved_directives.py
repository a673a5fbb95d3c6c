"""Directives of redis.conf that only the operator sets. Pure.

Source: src/config.c and redis.conf of redis 6.2, 7.0, 7.2, 7.4, 8.6 and 8.10, and of valkey 8.1.
"""

from __future__ import annotations

FORM = r"^[a-z][a-z0-9-]*$"
"""Pattern of a directive's name. Redis also accepts capital letters; names are compared, so only small ones are
accepted.
"""

RESERVED = (
    # addresses
    *("port", "bind", "bind-source-addr", "protected-mode", "unixsocket", "unixsocketperm", "unixsocketgroup"),
    *("cluster-port", "cluster-announce-ip", "cluster-announce-hostname", "cluster-announce-human-nodename"),
    *("cluster-announce-port", "cluster-announce-tls-port", "cluster-announce-bus-port"),
    *("cluster-announce-client-ipv4", "cluster-announce-client-ipv6", "cluster-announce-client-port"),
    *("cluster-announce-client-tls-port", "replica-announce-ip", "slave-announce-ip", "replica-announce-port"),
    *("slave-announce-port", "replica-announced", "cluster-bus-port-protected-mode"),
    # encryption
    *("tls-port", "tls-cluster", "tls-replication", "tls-auth-clients", "tls-auth-clients-user", "tls-cert-file"),
    *("tls-key-file", "tls-key-file-pass", "tls-client-cert-file", "tls-client-key-file", "tls-client-key-file-pass"),
    *("tls-ca-cert-file", "tls-ca-cert-dir", "tls-dh-params-file", "tls-expected-peer-name"),
    # users
    *("user", "aclfile", "requirepass", "masterauth", "masteruser", "primaryauth", "primaryuser", "rename-command"),
    # replication and failover
    *("replicaof", "slaveof", "replica-read-only", "slave-read-only", "cluster-enabled", "cluster-replica-no-failover"),
    *("cluster-slave-no-failover", "cluster-allow-replica-migration", "cluster-migration-barrier"),
    # files and process
    *("dir", "cluster-config-file", "dbfilename", "appendfilename", "appenddirname", "pidfile", "logfile", "include"),
    *("daemonize", "supervised", "backupdirname", "preload-file"),
)
"""Directives that other fields of the spec or the operator set: replication, authentication, and the node's files.

In a template (pod[0].configmap) they are ignored.
"""
