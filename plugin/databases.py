"""Table of the kinds of the platform: their names, operators, pods and containers. Data."""

from __future__ import annotations

from dataclasses import dataclass

from plugin.problem import Problem
from shared.kubernetes.kinds import Kind
from shared.kubernetes.ownership import COMPONENT, NAME

ZONE = "topology.kubernetes.io/zone"
"""Label of a Kubernetes node, and of pods since Kubernetes 1.35."""

STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)


@dataclass(frozen=True, slots=True)
class Database:
    """A kind of resource.

    Attributes:
        kind: the kind.
        short_name: short name of the kind, as in its CRD.
        operator: name of its operator.
        component: component label of the pods with the servers; empty for a kind without servers.
        container: container of these pods with the server.
    """

    kind: Kind
    short_name: str
    operator: str
    component: str = ""
    container: str = ""

    @property
    def selector(self) -> str:
        """Beginning of the label selector of pods with servers; the label of the instance follows."""
        return f"{NAME}={self.operator},{COMPONENT}={self.component}"

    @property
    def runbook(self) -> str:
        """Page of the runbook with the reasons of this kind."""
        return f"docs/runbook/{self.operator}.md"

    @property
    def names(self) -> frozenset[str]:
        """Names of the kind on a command line, in lower case, as kubectl accepts them."""
        kind = self.kind
        return frozenset({kind.name.lower(), kind.plural, f"{kind.plural}.{kind.group}", self.short_name})


MEMCACHED = Database(
    Kind("cache.example.com", "v1alpha1", "Memcached", "memcacheds"), "mc", "memcached", "server", "memcached"
)
ETCD = Database(Kind("etcd.ydzs.io", "v1alpha1", "EtcdCluster", "etcdclusters"), "etcd", "etcd", "member", "etcd")
BACKUP = Database(Kind("etcd.ydzs.io", "v1alpha1", "EtcdBackup", "etcdbackups"), "etcdbk", "etcd")
REDIS = Database(
    Kind("redis.middleware.hc.cn", "v1alpha1", "RedisCluster", "redisclusters"), "rec", "redis", "node", "redis"
)

ALL = (MEMCACHED, ETCD, REDIS, BACKUP)
SERVERS = (MEMCACHED, ETCD, REDIS)
"""Kinds with servers."""


def named(word: str) -> Database:
    """Return the kind that a word of the command line names.

    Raises:
        Problem: no kind has this name.
    """
    for database in ALL:
        if word.lower() in database.names:
            return database
    known = ", ".join(database.kind.name.lower() for database in ALL)
    raise Problem(f"'{word}' is no kind of the platform", f"use one of {known}")


def parsed(words: tuple[str, ...]) -> list[tuple[Database, str]]:
    """Return the resources that words of the command line name: `KIND/NAME …`, or `KIND NAME …`, as for kubectl.

    Raises:
        Problem: a kind is not known, or a name is missing.
    """
    if not words:
        return []
    if all("/" in word for word in words):
        pairs = [word.split("/", 1) for word in words]
        return [(named(kind), _name(name, kind)) for kind, name in pairs]
    if any("/" in word for word in words):
        raise Problem(f"'{' '.join(words)}' mixes KIND/NAME and KIND NAME", "write each as KIND/NAME")
    database = named(words[0])
    if len(words) == 1:
        raise Problem(f"no name follows '{words[0]}'", f"write {words[0]}/NAME")
    return [(database, name) for name in words[1:]]


def _name(name: str, kind: str) -> str:
    if not name or "/" in name:
        raise Problem(f"'{kind}/{name}' names no resource", f"write {kind}/NAME")
    return name
