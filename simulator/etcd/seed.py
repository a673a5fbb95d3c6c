"""Simulated etcd as the members of a real EtcdCluster are now."""

from __future__ import annotations

from typing import Any

from operators.etcd.api import backup
from operators.etcd.api.versions import Version
from operators.etcd.operator import OPERATOR, clusters
from operators.etcd.security.secrets import CLIENT, CLIENT_ROLE
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import PASSWORD_KEY
from shared.runtime.controller import Controller
from shared.runtime.options import Options
from shared.steps.passwords import secret_name
from simulator.clock import Clock
from simulator.durations import Durations
from simulator.etcd import tls
from simulator.etcd.command_line import command
from simulator.etcd.database import SERIES_WITH_NEW_ENTRIES, Process, SimulatedEtcd
from simulator.etcd.raft import ROOT, SMALL, Cluster, Disk, MemberRecord, User, quorum
from simulator.mirror import Mirror
from simulator.plan import Live, Subject, Unmodelled
from simulator.recorder import View
from simulator.seeding import secret, servers, spec, status, unknown_adoption, volumes

PATIENCE_SECONDS = 30.0
INDEX = 1000
"""Entries of the log after the last one that the status knows: their number is not reported."""


def seed(live: Live, clock: Clock) -> SimulatedEtcd:
    """Return the members of the pods with the ids, roles and versions of the status.

    Raises:
        Unmodelled: a member does not serve, or the status does not describe all members.
    """
    etcd = SimulatedEtcd(clock=clock, idle=True)
    reported = status(live)
    members: dict[str, Obj] = {each["name"]: each for each in reported.get("members") or ()}
    pods = {pod["metadata"]["name"]: pod for pod in servers(live, "etcd")}
    if not pods:
        if reported.get("clusterID"):
            raise Unmodelled("The members do not run: what is on their volumes is not known.")
        return etcd
    _require_known(reported, members, pods)
    runs_as = reported["runsAs"]
    series = _series(runs_as["series"])
    index = int(runs_as["sinceIndex"]) + INDEX
    cluster = Cluster(int(reported["clusterID"], 16), "", [], index=index, acknowledged=index, revision=INDEX, term=2)
    cluster.version = series
    former = runs_as.get("after")
    if series < SERIES_WITH_NEW_ENTRIES:
        cluster.old_entry = index
    elif former == "unknown" or (former and _series(former) < SERIES_WITH_NEW_ENTRIES):
        cluster.old_entry = int(runs_as["sinceIndex"])
    records = []
    for name, pod in pods.items():
        mounted = volumes(live, pod)
        flags = command(pod, mounted)
        if flags is None:
            raise Unmodelled(f"The command line of pod {name} is not that of a member.")
        entry, version = members[name], Version.parse(members[name]["version"])
        member = int(entry["id"], 16)
        is_current = entry.get("snapshottedAs") == runs_as["series"]
        etcd.disks[flags.disk] = Disk(
            flags.disk_name,
            cluster.id,
            member,
            index=index,
            snapshot=index if is_current else 0,
            version=version,
            storage=min(series, version.series),
            size=int(entry.get("dbSize") or SMALL),
        )
        cluster.in_use = max(cluster.in_use, int(entry.get("dbInUse") or SMALL))
        files = tls.files_of(pod, mounted)
        process = Process(pod["metadata"]["uid"], name, pod["status"]["podIP"], flags, serves=True)
        if flags.tls:
            if files is None:
                raise Unmodelled(f"The certificates of pod {name} are incomplete.")
            process.tls = tls.Tls.started(flags, files)
        etcd.processes[process.uid] = process
        records.append(MemberRecord(member, flags.url))
        cluster.names[member], cluster.disk_by_member[member] = name, flags.disk
        if entry["role"] == "leader":
            cluster.leader = member
    cluster.records = [(1, tuple(records))]
    _add_users(live, cluster)
    etcd.clusters[cluster.id] = cluster
    etcd.settle("the plan begins")
    return etcd


def _require_known(reported: Obj, members: dict[str, Obj], pods: dict[str, Obj]) -> None:
    if not (reported.get("clusterID") and reported.get("runsAs")):
        raise Unmodelled("The status has no id of the cluster yet: repeat the command when it is Ready.")
    if members.keys() != pods.keys():
        raise Unmodelled(f"The status describes members {_listed(members)}, and pods {_listed(pods)} run.")
    for name, entry in members.items():
        if entry.get("role") not in ("leader", "voter") or not entry.get("healthy") or not entry.get("id"):
            raise Unmodelled(f"Member {name} is no healthy voter: the simulation does not know how far it is.")
        if alarms := entry.get("alarms"):
            raise Unmodelled(f"Member {name} has raised {', '.join(alarms)}.")
    if reported.get("outsideVoters"):
        raise Unmodelled("The cluster has voters that are of no pod.")


def _add_users(live: Live, cluster: Cluster) -> None:
    """Let etcd have the users that the spec requires, which are in effect if the resource is Ready."""
    auth: Obj | None = spec(live).get("auth")
    if auth is None or auth.get("enabled") is False:
        return
    name = live.resource["metadata"]["name"] if live.resource else ""
    root = secret(live, auth.get("rootSecretName") or secret_name(name)).get(PASSWORD_KEY, "")
    if not root:
        raise Unmodelled("The password of the user root is not in its Secret.")
    cluster.auth, cluster.users = True, {ROOT: User(root, (ROOT,))}
    if password := secret(live, f"{name}-client-password").get(PASSWORD_KEY, ""):
        cluster.roles.add(CLIENT_ROLE)
        cluster.users[CLIENT] = User(password, (CLIENT_ROLE,))


def _series(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def _listed(names: dict[str, Obj]) -> str:
    return ", ".join(sorted(names)) or "none"


def build(options: Options, database: SimulatedEtcd) -> Controller[Any, Any]:
    return clusters(options, database.connect)


def view(database: SimulatedEtcd, server: Mirror, name: str) -> View:
    """Return the members, and how many of them may fail while the others are a quorum."""
    members: dict[str, str] = {}
    spare, text = 0, "no members"
    for cluster in database.clusters.values():
        if cluster.former or cluster.foreign:
            continue
        for record in cluster.now:
            role = "learner" if record.learner else "voter"
            members[record.url.partition("//")[2].partition(".")[0]] = role
        up, needed = len(database.voting(cluster)), quorum(cluster.now)
        voters = sum(not record.learner for record in cluster.now)
        spare, text = max(0, up - needed), f"{up} of {voters} voters up, quorum {needed}"
    return View(members, {}, spare, text)


def patience(resource: Obj) -> float:
    """Return the longest time for which the operator may wait without any change."""
    return PATIENCE_SECONDS


def unknown_start(resource: Obj) -> str:
    """Return why it is not known with which data a resource starts; empty if it is."""
    reported = resource.get("status") or {}
    is_restored = reported.get("clusterID") or (reported.get("restore") or {}).get("phase") == "Complete"
    if (resource.get("spec") or {}).get("restore") and not is_restored:
        return (
            "spec.restore is not simulated: what the snapshot has, and whether it can be read, is not known. After the "
            "change, the status reports the restore."
        )
    return unknown_adoption(resource)


SUBJECT = Subject(
    OPERATOR,
    build,
    seed,
    view,
    patience,
    serves=(backup.API.kind,),
    unknown_start=unknown_start,
    durations=Durations(stop=5.5),
)
