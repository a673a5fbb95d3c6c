"""Simulated memcached servers as a real Memcached has them now."""

from __future__ import annotations

import dataclasses
from typing import Any

from operators.memcached.observe import observer
from operators.memcached.operator import OPERATOR, controller
from shared.kubernetes.kinds import DEPLOYMENT, STATEFUL_SET, Obj
from shared.runtime.controller import Controller
from shared.runtime.options import Options
from simulator.clock import Clock
from simulator.memcached.database import SimulatedMemcached
from simulator.mirror import Mirror
from simulator.plan import Live, Subject
from simulator.recorder import View, pods_of_workload
from simulator.seeding import servers, status

PATIENCE_SECONDS = 60.0


def seed(live: Live, clock: Clock) -> SimulatedMemcached:
    """Return the servers of the pods. The simulated kubelet starts them: what they hold does not matter to a plan.

    Raises:
        Unmodelled: a server does not serve.
    """
    found = SimulatedMemcached(clock=clock)
    known: Obj = status(live).get("serverImages") or {}
    for pod in servers(live, "memcached"):
        image = next(each["image"] for each in pod["spec"]["containers"] if each["name"] == "memcached")
        reported = ((pod.get("status") or {}).get("containerStatuses") or ()) and pod["status"]["containerStatuses"]
        for each in reported:
            if each["name"] == "memcached" and (version := known.get(each.get("imageID", ""))):
                found.programs[image] = version
    return found


def build(options: Options, database: SimulatedMemcached) -> Controller[Any, Any]:
    made = controller(options, database.connect, database.attest)
    observe = observer(database.connect, database.attest, lambda: database.clock().timestamp())
    return dataclasses.replace(made, observe=observe)


def view(database: SimulatedMemcached, server: Mirror, name: str) -> View:
    """Return how many servers are ready; each holds its part of the items."""
    desired = ready = 0
    for kind in (STATEFUL_SET, DEPLOYMENT):
        for _, workload in server.objects(kind):
            if workload["metadata"]["name"] == name:
                desired = max(desired, workload["spec"]["replicas"])
                ready += sum(_is_ready(pod) for pod in pods_of_workload(server, workload))
    return View({}, {}, max(0, ready - 1), f"{ready} of {desired} servers ready")


def _is_ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def patience(resource: Obj) -> float:
    """Return the longest time for which the operator may wait: the pause after each restarted server."""
    strategy = (resource.get("spec") or {}).get("updateStrategy") or {}
    return PATIENCE_SECONDS + float(strategy.get("pauseSeconds") or 0)


SUBJECT = Subject(OPERATOR, build, seed, view, patience)
