"""An in-memory Kubernetes API server that a controller cannot distinguish from a real one.

`ApiServer` is a `Transport`. The operator under test sends its requests through it (`Kube(server, manager=...)`). They
are logged in `server.log` and subject to `server.faults`. Every other client (a user with kubectl, Kubernetes'
controllers) uses `server.actor(name)`, which is not logged and not subject to faults.

Garbage collection runs only in `collect_garbage()`, so that a test can observe the state before it, which is also
visible in a cluster.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.kubernetes.client import (
    APPLY_PATCH,
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_PATCH,
    TABLE,
    Request,
    Response,
)
from shared.kubernetes.kinds import DEPLOYMENT, POD, Kind, Obj
from simulator import faults
from simulator.api_server import evictions, garbage_collector, pages
from simulator.api_server import server_side_apply as ssa
from simulator.api_server.actor import Actor
from simulator.api_server.clone import clone
from simulator.api_server.field_sets import DuplicateKey, MissingKey
from simulator.api_server.kinds import NAMESPACE, Served, built_in_kinds
from simulator.api_server.request_log import RequestLog
from simulator.api_server.requests import Failure, TargetedRequest, merge_patch, strategic_patch, value_at
from simulator.api_server.store import FIRST_VERSION, Store
from simulator.api_server.watches import Watches
from simulator.api_server.write_rules import (
    new_object,
    permitted_changes,
    require_fixed,
    require_growth,
    require_living_namespace,
    require_match,
    require_modifiable,
    require_one_controller,
)


class ApiServer:
    """Stores and serves objects of the built-in kinds and of additional ones.

    Args:
        kinds: additional kinds, which replace built-in kinds of the same name. A bare Kind is served as a custom
            resource with a status subresource.
        clock: clock for creation and deletion timestamps and for managedFields.
        version: resourceVersion before the first write. UIDs derive from it.

    Attributes:
        faults: faults that strike requests of the operator under test.
        log: requests of the operator under test.
        seconds: returns how long a request of the operator under test takes; such as that of a slow admission webhook.
        check_write: called after each successful write of the operator under test, with the object as it was before.
    """

    def __init__(
        self,
        kinds: Iterable[Kind | Served] = (),
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        version: int = FIRST_VERSION,
    ) -> None:
        given = [Served(kind) if isinstance(kind, Kind) else kind for kind in kinds]
        self._served = {served.kind: served for served in (*built_in_kinds(), *given)}
        self._by_path = {(kind.group, kind.version, kind.plural): served for kind, served in self._served.items()}
        self._store = Store(self._served, clock, version)
        self.faults = faults.Faults()
        self.log = RequestLog()
        self.seconds: Callable[[Request], float] = lambda _: 0.0
        self.check_write: Callable[[TargetedRequest, Obj | None], None] = lambda *_: None

    def set_resizes(self, kind: Kind, value: bool) -> None:
        """Determine whether a kind has the subresource resize, as it depends on the version of Kubernetes."""
        served = dataclasses.replace(self._served[kind], resizes=value)
        self._served[kind] = self._by_path[kind.group, kind.version, kind.plural] = served

    def fork(self, clock: Callable[[], datetime]) -> ApiServer:
        """Return an independent copy with the same objects and write log, without faults and without subscribers."""
        copy = ApiServer()
        copy._served, copy._by_path, copy._store = self._served, self._by_path, self._store.fork(clock)
        copy.log.all_writes.extend(self.log.all_writes)
        return copy

    def load(self, objects: Iterable[tuple[Kind, Obj]]) -> None:
        """Store objects as another API server has them: with their UIDs, versions and managed fields."""
        self._store.load(objects)

    def restore(self, snapshot: ApiServer) -> None:
        """Return to an earlier state, as a control plane does whose etcd is restored from a backup.

        resourceVersions continue from those of the snapshot. No watch reports anything about it.
        """
        self._store.restore(snapshot._store)

    def compact(self) -> None:
        """Forget former versions: a list of which some pages were read cannot be continued as it was."""
        self._store.compact()

    @property
    def watches(self) -> Watches:
        """Subscriptions to changes, and the control over their delivery."""
        return self._store.watches

    @property
    def version(self) -> int:
        """Version (resourceVersion) of the last write."""
        return self._store.version

    async def request(self, request: Request) -> Response:
        """Handle a request of the operator under test: log it and apply faults.

        Raises:
            Unavailable: a fault dropped the request or its response.
            Crash: a fault ended the process.
        """
        await asyncio.sleep(self.seconds(request))  # other tasks run here, as they do during a real request
        try:
            target = TargetedRequest.at(self._by_path, request)
        except Failure as failure:
            return failure.response()
        fault, before = self.faults.next(request), self._store.version
        live = self._store.get(target.kind, target.namespace, target.name)
        answer = self._answer(target) if fault is None or fault.landed else None
        is_write = request.method in faults.WRITES and not request.query.get("dryRun")
        if answer is not None and answer.status < 400 and is_write:
            self.check_write(target, live)
        self.log.record(target, answer, changed=self._store.version != before)
        if fault is None and answer is not None:
            return answer
        assert fault is not None
        return faults.strike(fault, request)

    def handle(self, request: Request) -> Response:
        """Answer a request synchronously, without logging and faults."""
        try:
            return self._answer(TargetedRequest.at(self._by_path, request))
        except Failure as failure:
            return failure.response()

    def actor(self, name: str) -> Actor:
        """Return another client of this server, with a field manager of that name."""
        return Actor(self, name)

    def subscribe(self, callback: Callable[[Obj], None], kind: Kind | None = None) -> None:
        """Watch: call back with `{"type": ADDED | MODIFIED | DELETED, "object": ...}` for each change, in order.

        Callbacks run within the request that makes the change, unless `watches.hold()` delays them.
        """
        self.watches.subscribe(callback, kind)

    def collect_garbage(self) -> int:
        """Run Kubernetes' garbage collector until nothing is left to do.

        Returns:
            Number of objects that it deleted or released.
        """
        return garbage_collector.collect(self)

    def objects(self, kind: Kind | None = None) -> list[tuple[Kind, Obj]]:
        """Return every object, or those of one kind, in order of kind, namespace and name.

        The objects are not copies and must not be modified. A write replaces the stored object, so these do not change.
        """
        kinds = (kind,) if kind else self._store.kinds
        return [(of, obj) for of in kinds for obj in self._store.list(of)]

    def stored(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """Return one of these objects, which is no copy either; None if it does not exist."""
        return self._store.get(kind, namespace, name)

    def now(self) -> str:
        """Return the server's time in the format of the API."""
        return self._store.now()

    # Requests.

    def _answer(self, target: TargetedRequest) -> Response:
        try:
            answer = self._dispatch(target)
            return answer._replace(body=clone(answer.body))
        except Failure as failure:
            return failure.response()
        except MissingKey as error:
            return target.invalid(str(error)).response()
        except DuplicateKey as error:  # a real server answers with the same status and message
            return Failure(500, "InternalError", f"failed to create typed patch object: {error}").response()

    def _dispatch(self, target: TargetedRequest) -> Response:
        if target.request.method == "GET":
            return self._read(target)
        if target.request.method == "DELETE" and target.name and not target.subresource:
            return self._delete(target, target.request.body or {})
        if target.request.method == "POST" and not target.name:
            return self._create(target)
        if target.request.method == "POST" and target.subresource == "eviction":
            return self._evict(target)
        if target.subresource == "scale" and target.request.method in ("PATCH", "PUT"):
            return self._rescale(target)
        if target.request.method == "PATCH" and target.name and target.request.content_type == APPLY_PATCH:
            return self._apply(target)
        patches = {MERGE_PATCH: merge_patch, STRATEGIC_PATCH: strategic_patch}
        if target.request.method == "PATCH" and target.name and target.request.content_type in patches:
            live = self._live(target)
            return Response(
                200, self._update(target, live, patches[target.request.content_type](live, target.request.body))
            )
        if target.request.method == "PATCH" and target.name:
            raise Failure(415, "UnsupportedMediaType", f"this server does not support {target.request.content_type}")
        if target.request.method == "PUT" and target.name:
            live = self._live(target)
            if not target.served.built_in and not target.request.body["metadata"].get("resourceVersion"):
                raise target.invalid("metadata.resourceVersion: Invalid value: 0: must be specified for an update")
            return Response(200, self._update(target, live, target.request.body))
        raise Failure(405, "MethodNotAllowed", f"the server does not allow this method on {target.request.path}")

    def _read(self, target: TargetedRequest) -> Response:
        if target.request.query.get("watch"):
            raise Failure(400, "BadRequest", "watch requests are served by streams.WatchServer")
        if target.name:
            live = self._live(target)
            if target.request.accept == METADATA_ONLY:
                partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
                return Response(200, {**partial, "metadata": live["metadata"]})
            if target.request.accept == TABLE and target.request.query.get("includeObject") == "None":
                table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}
                version = {"resourceVersion": live["metadata"]["resourceVersion"]}
                rows = [{"cells": [live["metadata"]["name"]], "object": None}]
                return Response(200, {**table, "metadata": version, "rows": rows})
            return Response(200, _scale_of(target, live) if target.subresource == "scale" else live)
        items, metadata = pages.read(self._store, target)
        if target.served.built_in:  # items of typed lists omit apiVersion and kind
            items = [{key: part for key, part in obj.items() if key not in ("apiVersion", "kind")} for obj in items]
        kind, api_version = f"{target.kind.name}List", target.kind.api_version
        return Response(200, {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items})

    def _create(self, target: TargetedRequest) -> Response:
        obj: Obj = target.request.body
        require_match(target, obj)
        metadata = obj["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self._store.unique(metadata['generateName'])[:5]}"
        if not metadata.get("name"):
            raise target.invalid("metadata.name: Required value: name or generateName is required")
        if metadata.get("resourceVersion"):
            raise Failure(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        if self._store.get(target.kind, target.namespace, metadata["name"]) is not None:
            raise Failure(409, "AlreadyExists", f'{target.resource} "{metadata["name"]}" already exists')
        manager = ssa.Manager(target.manager, "Update", target.kind.api_version)
        new = self._admitted(target, self._new_object(target, obj), {})
        return Response(201, self._commit(target, None, new, self._tracked(target, {}, new, manager)))

    def _update(self, target: TargetedRequest, live: Obj, edited: Obj) -> Obj:
        """Replace the live object by the result of a merge patch or an update; return the stored object."""
        require_match(target, edited)
        new = self._admitted(target, permitted_changes(target, live, edited), live)
        manager = ssa.Manager(target.manager, "Update", target.kind.api_version, target.subresource)
        return self._commit(target, live, new, self._tracked(target, live, new, manager))

    def _apply(self, target: TargetedRequest) -> Response:
        config: Obj = target.request.body
        if not target.request.query.get("fieldManager"):
            message = "PatchOptions is invalid: fieldManager: Required value: is required for apply patch"
            raise Failure(422, "Invalid", message)
        if config.get("metadata", {}).get("managedFields"):
            raise Failure(400, "BadRequest", "metadata.managedFields must be nil")
        if not config.get("kind") or not config.get("apiVersion"):
            raise Failure(400, "BadRequest", "invalid object type: apply needs apiVersion and kind")
        require_match(target, config)
        live = self._store.get(target.kind, target.namespace, target.name)
        pinned = config["metadata"].get("uid")
        if live is None and target.subresource:
            raise target.not_found()
        if live is None and pinned:
            why = f"uid mismatch: the provided object specified uid {pinned}, and no existing object was found"
            raise target.conflict(why)
        if target.subresource == "status":
            config = {key: part for key, part in config.items() if key in ("apiVersion", "kind", "status")}
            config["metadata"] = {
                k: v for k, v in target.request.body["metadata"].items() if k in ("name", "resourceVersion")
            }
        elif target.served.status:
            config = {key: part for key, part in config.items() if key != "status"}
        manager = ssa.Manager(target.manager, "Apply", target.kind.api_version, target.subresource)
        schema, records = target.served.schema, ssa.read_records(live or {})
        try:
            force = target.request.query.get("force") == "true"
            new, records = ssa.apply(schema, live or {}, records, config, manager, force=force)
        except ssa.FieldConflict as conflict:
            raise _conflict_failure(conflict) from None
        if live is None:
            new = self._admitted(target, self._new_object(target, new), {})
        else:
            new = self._admitted(target, permitted_changes(target, live, new), live)
        if not target.request.query.get("dryRun"):
            new = self._commit(target, live, new, records)
        return Response(201 if live is None else 200, new)

    def _rescale(self, target: TargetedRequest) -> Response:
        live = self._live(target)
        scale = (
            merge_patch(_scale_of(target, live), target.request.body)
            if target.request.method == "PATCH"
            else target.request.body
        )
        patch: Any = value_at(scale, "spec.replicas") or 0
        for name in reversed(target.served.replicas.split(".")):
            patch = {name: patch}
        version = value_at(scale, "metadata.resourceVersion")
        edited = merge_patch(live, patch | {"metadata": {"resourceVersion": version}})
        return Response(200, _scale_of(target, self._update(target, live, edited)))

    def _evict(self, target: TargetedRequest) -> Response:
        eviction: Obj = target.request.body
        if eviction.get("metadata", {}).get("name") != target.name:
            raise Failure(400, "BadRequest", "name in URL does not match name in Eviction object")
        evictions.claim(self._store, self._live(target))
        self._delete(target, eviction.get("deleteOptions") or {})
        return Response(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})

    def _delete(self, target: TargetedRequest, options: Obj) -> Response:
        live = self._live(target)
        preconditions = options.get("preconditions") or {}
        for name, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            if preconditions.get(name) and preconditions[name] != live["metadata"][name]:
                both = (
                    f"{label} in precondition: {preconditions[name]}, {label} in object meta: {live['metadata'][name]}"
                )
                raise target.conflict(f"Precondition failed: {both}")
        terminating = clone(live)
        metadata = terminating["metadata"]
        finalizer = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(options.get("propagationPolicy", ""))
        if finalizer and finalizer not in metadata.setdefault("finalizers", []):
            metadata["finalizers"].append(finalizer)
        grace = _grace_period(target.kind, live, options.get("gracePeriodSeconds"))
        if deadline := metadata.get("deletionTimestamp"):  # a later deletion can only shorten the grace period
            before = metadata.get("deletionGracePeriodSeconds") or 0
            grace = min(grace, before) if options.get("gracePeriodSeconds") is not None else before
            metadata |= {"deletionTimestamp": _after(deadline, grace - before), "deletionGracePeriodSeconds": grace}
        else:
            deadline = _after(self._store.now(), grace)
            metadata |= {"deletionTimestamp": deadline, "deletionGracePeriodSeconds": grace}
            if metadata.get("generation"):
                metadata["generation"] += 1
        if metadata.get("finalizers") or grace:
            return Response(200, self._store.keep(target.kind, terminating))
        self._store.remove(target.kind, live)
        metadata["resourceVersion"] = str(self._store.version)
        return Response(200, _deletion_response(target, terminating))

    # Storage.

    def _live(self, target: TargetedRequest) -> Obj:
        live = self._store.get(target.kind, target.namespace, target.name)
        if live is None:
            raise target.not_found()
        return live

    def _new_object(self, target: TargetedRequest, obj: Obj) -> Obj:
        require_living_namespace(target, self._store.get(NAMESPACE, "", target.namespace))
        return new_object(target, obj, self._store)

    def _tracked(self, target: TargetedRequest, live: Obj, new: Obj, manager: ssa.Manager) -> ssa.Records:
        """Return the managed fields after a write other than apply; only writes to the subresource own the status."""
        records = ssa.track(target.served.schema, live, ssa.read_records(live), new, manager)
        if target.served.status and target.subresource != "status":
            records[manager] = frozenset(path for path in records.get(manager, ()) if path[0] != "f:status")
        return {other: fields for other, fields in records.items() if fields}

    def _admitted(self, target: TargetedRequest, new: Obj, live: Obj) -> Obj:
        try:
            return target.served.normalize(new, live)
        except ValueError as error:
            raise target.invalid(str(error)) from None

    def _commit(self, target: TargetedRequest, live: Obj | None, new: Obj, records: ssa.Records) -> Obj:
        """Store the result of a write if it changed anything; remove an object whose last finalizer is removed."""
        require_one_controller(target, new)
        if live is not None:
            require_fixed(target, live, new)
            require_growth(target, live, new, self._store)
            require_modifiable(target, live, new)
        if target.request.query.get("dryRun"):
            return new
        managed = ssa.write_records(records, live or {}, self._store.now())
        new["metadata"].pop("managedFields", None)
        if managed:
            new["metadata"]["managedFields"] = managed
        if (
            live is not None
            and target.served.generation
            and _generation_parts(target, new) != _generation_parts(target, live)
        ):
            new["metadata"]["generation"] += 1
        if _is_removable(new["metadata"]):
            self._store.remove(target.kind, new)
            return new
        return self._store.keep(target.kind, new)


def _is_removable(metadata: Obj) -> bool:
    """Whether an object is being deleted and nothing blocks its removal any more."""
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and not waits


def _deletion_response(target: TargetedRequest, last: Obj) -> Obj:
    """Return the response to a completed deletion: the last state of a pod, or a Status."""
    if target.kind == POD:
        return last
    details = {
        "name": target.name,
        "group": target.kind.group,
        "kind": target.kind.plural,
        "uid": last["metadata"]["uid"],
    }
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _generation_parts(target: TargetedRequest, obj: Obj) -> Obj:
    """Return the parts whose changes increase the generation: the spec, and the annotations of a Deployment."""
    counted = {key: part for key, part in obj.items() if key not in ("metadata", "status")}
    annotations = obj["metadata"].get("annotations") if target.kind == DEPLOYMENT else None
    return counted | {"metadata": annotations}


def _grace_period(kind: Kind, live: Obj, target: int | None) -> int:
    """Return the seconds until a deleted object is removed: nonzero only for a pod that a kubelet must stop first."""
    if kind != POD or not live["spec"].get("nodeName"):
        return 0
    default: int = live["spec"].get("terminationGracePeriodSeconds", 30)
    return default if target is None else target


def _after(time: str, seconds: int) -> str:
    """Return the time some seconds after another one, both in the format of the API."""
    return (datetime.fromisoformat(time) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _scale_of(target: TargetedRequest, live: Obj) -> Obj:
    metadata = live["metadata"]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "spec": {"replicas": value_at(live, target.served.replicas) or 0},
        "status": {"replicas": value_at(live, "status.replicas") or 0},
    }


def _conflict_failure(conflict: ssa.FieldConflict) -> Failure:
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{owner.name}"', "field": ssa.describe(path)}
        for owner, paths in conflict.fields.items()
        for path in sorted(paths)
    ]
    described = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return Failure(409, "Conflict", f"Apply failed with {len(causes)} conflicts: {described}", causes)
