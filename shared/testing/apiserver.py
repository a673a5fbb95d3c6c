"""An in-memory Kubernetes API server: what a controller can tell from the outside is as a real one does it.

`ApiServer` is a `Transport`. The one under test talks through it (`Kube(server, manager=...)`): what it asks is logged
in `server.log` and subject to `server.faults`. Everybody else (a person with kubectl, Kubernetes' controllers) acts
through `server.actor(name)`, unlogged and undisturbed.

Garbage collection does not happen by itself: `collect_garbage()` lets it, so that a test can look at the time between,
which in a cluster is real.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from shared.kube import Kind, Obj, Response
from shared.testing import apply as ssa
from shared.testing import faults, garbage
from shared.testing.actor import Actor
from shared.testing.faults import Faults, RequestLog, Write
from shared.testing.fieldsets import Malformed
from shared.testing.requests import APPLY_PATCH, MERGE_PATCH, Failure, Request, locate, merge_patch, selects, value_at
from shared.testing.served import NAMESPACE, POD, Served, built_in_kinds
from shared.testing.watch import Watches

Place = tuple[str, str]
"""Namespace (empty for kinds without) and name."""

FIRST_VERSION = 1000
"""resourceVersion before the first write: like in a real cluster, no object is at version 1."""

OPTIMISTIC_LOCK = "the object has been modified; please apply your changes to the latest version and try again"
_KEPT = ("name", "namespace", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class ApiServer:
    """Keeps objects of the built-in kinds and of those given.

    Args:
        kinds: more kinds to serve, in place of built-in ones of the same name; a bare Kind is served as a custom
            resource with a status subresource.
        clock: the time of creations, deletions and managedFields.

    Attributes:
        faults: what goes wrong for the one under test.
        log: what the one under test asked.
        watches: who hears of changes, and when.
    """

    def __init__(
        self, kinds: Iterable[Kind | Served] = (), *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        every = [*built_in_kinds(), *(Served(kind) if isinstance(kind, Kind) else kind for kind in kinds)]
        self.kinds = {(served.kind.group, served.kind.version, served.kind.plural): served for served in every}
        self.faults = Faults()
        self.log = RequestLog()
        self.watches = Watches()
        self._clock = clock
        self._objects: dict[Kind, dict[Place, Obj]] = {served.kind: {} for served in every}
        self._version = FIRST_VERSION

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any = None,
        content_type: str = "application/json",
    ) -> Response:
        """A request of the one under test: logged, and struck by faults.

        Raises:
            Unavailable: a fault lost the request or its answer.
            Crash: a fault ended the process.
        """
        await asyncio.sleep(0)  # others run meanwhile, as they do while a real request is on its way
        fault = self.faults.next(method, path)
        before = self._version
        reached = fault is None or fault.landed
        answer = self.handle(method, path, query=query, body=body, content_type=content_type) if reached else None
        self._record(method, path, query, body, content_type, answer, changed=self._version != before)
        if fault is not None:
            return faults.strike(fault, method, path)
        assert answer is not None
        return answer

    def handle(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Response:
        """Answer a request at once, unlogged and undisturbed."""
        try:
            served, namespace, name, subresource = locate(self.kinds, path)
            asked = Request(
                method, path, served, namespace, name, subresource, query or {}, copy.deepcopy(body), content_type
            )
            return copy.deepcopy(self._dispatch(asked))
        except Failure as failure:
            return failure.response()
        except Malformed as error:  # a real server says so, and with this status, too
            return Failure(500, "InternalError", f"failed to create typed patch object: {error}").response()

    def actor(self, name: str) -> Actor:
        """Somebody else who uses this server, under a field manager of that name."""
        return Actor(self, name)

    def subscribe(self, callback: Callable[[Obj], None], kind: Kind | None = None) -> None:
        """Watch: call back with `{"type": ADDED | MODIFIED | DELETED, "object": ...}` of each change, in order.

        Changes are told at once, within the request that makes them, unless `watches.hold()` keeps them back.
        """
        self.watches.subscribe(callback, kind)

    def collect_garbage(self) -> int:
        """Do what Kubernetes' garbage collector would, until nothing is left to do.

        Returns:
            How many objects it deleted, or let go.
        """
        return garbage.collect(self)

    def objects(self, kind: Kind | None = None) -> list[tuple[Kind, Obj]]:
        """Copies of everything kept, or of one kind, in order of kind, namespace and name."""
        kept = (kind,) if kind else self._objects
        return [(of, copy.deepcopy(obj)) for of in kept for _, obj in sorted(self._objects[of].items())]

    def now(self) -> str:
        """The server's time as Kubernetes writes it."""
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    # What is asked.

    def _dispatch(self, asked: Request) -> Response:
        if asked.method == "GET":
            return self._read(asked)
        if asked.method == "DELETE" and asked.name and not asked.subresource:
            return self._delete(asked)
        if asked.method == "POST" and not asked.name:
            return self._create(asked)
        if asked.subresource == "scale" and asked.method in ("PATCH", "PUT"):
            return self._rescale(asked)
        if asked.method == "PATCH" and asked.name and asked.content_type == APPLY_PATCH:
            return self._apply(asked)
        if asked.method == "PATCH" and asked.name and asked.content_type == MERGE_PATCH:
            live = self._live(asked)
            return Response(200, self._update(asked, live, merge_patch(live, asked.body)))
        if asked.method == "PATCH" and asked.name:
            raise Failure(415, "UnsupportedMediaType", f"this server takes no {asked.content_type}")
        if asked.method == "PUT" and asked.name:
            live = self._live(asked)
            if not asked.served.built_in and not asked.body["metadata"].get("resourceVersion"):
                raise asked.invalid("metadata.resourceVersion: Invalid value: 0: must be specified for an update")
            return Response(200, self._update(asked, live, asked.body))
        raise Failure(405, "MethodNotAllowed", f"the server does not allow this method on {asked.path}")

    def _read(self, asked: Request) -> Response:
        if asked.query.get("watch"):
            raise Failure(400, "BadRequest", "this server tells of changes by subscribe(), not by requests")
        if asked.name:
            live = self._live(asked)
            return Response(200, _scale_of(asked, live) if asked.subresource == "scale" else live)
        matches = selects(asked.query.get("labelSelector", ""))
        items = [
            obj
            for (namespace, _), obj in sorted(self._objects[asked.kind].items())
            if asked.namespace in ("", namespace) and matches(obj["metadata"].get("labels") or {})
        ]
        start, limit = int(asked.query.get("continue") or 0), int(asked.query.get("limit") or 0)
        end = start + limit if limit else len(items)
        metadata = {"resourceVersion": str(self._version)} | ({"continue": str(end)} if end < len(items) else {})
        if asked.served.built_in:  # typed lists name the kind once
            items = [{key: part for key, part in obj.items() if key not in ("apiVersion", "kind")} for obj in items]
        kind, api_version = f"{asked.kind.name}List", asked.kind.api_version
        return Response(200, {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items[start:end]})

    def _create(self, asked: Request) -> Response:
        obj = asked.body
        metadata = obj.setdefault("metadata", {})
        self._require_match(asked, obj)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self._uid(metadata['generateName'])[:5]}"
        if not metadata.get("name"):
            raise asked.invalid("metadata.name: Required value: name or generateName is required")
        if metadata.get("resourceVersion"):
            raise Failure(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        if (asked.namespace, metadata["name"]) in self._objects[asked.kind]:
            raise Failure(409, "AlreadyExists", f'{asked.resource} "{metadata["name"]}" already exists')
        manager = ssa.Manager(asked.manager, "Update", asked.kind.api_version)
        new = self._admitted(asked, self._fresh(asked, obj))
        records = ssa.track(asked.served.schema, {}, {}, new, manager)
        return Response(201, self._commit(asked, None, new, records))

    def _update(self, asked: Request, live: Obj, edited: Obj) -> Obj:
        """Make the live object what a merge patch or an update says; returns what it is then."""
        self._require_match(asked, edited)
        new = self._admitted(asked, self._bounded(asked, live, edited))
        manager = ssa.Manager(asked.manager, "Update", asked.kind.api_version, asked.subresource)
        records = ssa.track(asked.served.schema, live, ssa.read_records(live), new, manager)
        return self._commit(asked, live, new, records)

    def _apply(self, asked: Request) -> Response:
        config: Obj = asked.body
        if not asked.query.get("fieldManager"):
            raise Failure(422, "Invalid", "PatchOptions is invalid: fieldManager: Required value: is required for apply patch")
        if config.get("metadata", {}).get("managedFields"):
            raise Failure(400, "BadRequest", "metadata.managedFields must be nil")
        if not config.get("kind") or not config.get("apiVersion"):
            raise Failure(400, "BadRequest", "invalid object type: apply needs apiVersion and kind")
        self._require_match(asked, config)
        live = self._objects[asked.kind].get((asked.namespace, asked.name))
        pinned = config["metadata"].get("uid")
        if live is None and asked.subresource:
            raise asked.not_found()
        if live is None and pinned:
            why = f"uid mismatch: the provided object specified uid {pinned}, and no existing object was found"
            raise asked.conflict(why)
        if asked.subresource == "status":
            config = {key: part for key, part in config.items() if key in ("apiVersion", "kind", "status")}
            config["metadata"] = {k: v for k, v in asked.body["metadata"].items() if k in ("name", "resourceVersion")}
        elif asked.served.status:
            config = {key: part for key, part in config.items() if key != "status"}
        manager = ssa.Manager(asked.manager, "Apply", asked.kind.api_version, asked.subresource)
        schema, records = asked.served.schema, ssa.read_records(live or {})
        try:
            force = asked.query.get("force") == "true"
            new, records = ssa.apply(schema, live or {}, records, config, manager, force=force)
        except ssa.FieldConflict as conflict:
            raise _refusal(conflict) from None
        if live is None:
            return Response(201, self._commit(asked, None, self._admitted(asked, self._fresh(asked, new)), records))
        new = self._admitted(asked, self._bounded(asked, live, new))
        return Response(200, self._commit(asked, live, new, records))

    def _rescale(self, asked: Request) -> Response:
        live = self._live(asked)
        scale = merge_patch(_scale_of(asked, live), asked.body) if asked.method == "PATCH" else asked.body
        patch: Any = value_at(scale, "spec.replicas") or 0
        for name in reversed(asked.served.replicas.split(".")):
            patch = {name: patch}
        version = value_at(scale, "metadata.resourceVersion")
        edited = merge_patch(live, patch | {"metadata": {"resourceVersion": version}})
        return Response(200, _scale_of(asked, self._update(asked, live, edited)))

    def _delete(self, asked: Request) -> Response:
        live = self._live(asked)
        options = asked.body or {}
        wanted = options.get("preconditions") or {}
        for name, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            if wanted.get(name) and wanted[name] != live["metadata"][name]:
                was, want = live["metadata"][name], wanted[name]
                raise asked.conflict(f"Precondition failed: {label} in precondition: {want}, {label} in object meta: {was}")
        leaving = copy.deepcopy(live)
        metadata = leaving["metadata"]
        held = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(options.get("propagationPolicy", ""))
        if held and held not in metadata.setdefault("finalizers", []):
            metadata["finalizers"].append(held)
        grace = _grace_period(asked.kind, live, options.get("gracePeriodSeconds"))
        if not metadata.get("finalizers") and not grace:
            return Response(200, self._remove(asked, live))
        if not metadata.get("deletionTimestamp"):
            metadata |= {"deletionTimestamp": self.now(), "deletionGracePeriodSeconds": grace}
            if metadata.get("generation"):
                metadata["generation"] += 1
        return Response(200, self._keep(asked.kind, live, leaving))

    # How it is kept.

    def _live(self, asked: Request) -> Obj:
        live = self._objects[asked.kind].get((asked.namespace, asked.name))
        if live is None:
            raise asked.not_found()
        return live

    def _require_match(self, asked: Request, obj: Obj) -> None:
        """Make sure that an object is of the kind, name and namespace that the request names."""
        metadata = obj["metadata"]
        says = (obj.get("apiVersion") or asked.kind.api_version, obj.get("kind") or asked.kind.name)
        if says != (asked.kind.api_version, asked.kind.name) and asked.subresource != "scale":
            raise Failure(400, "BadRequest", f"{says[0]} {says[1]} in the data does not match the URL {asked.path}")
        for name, want in (("name", asked.name), ("namespace", asked.namespace)):
            if want and metadata.setdefault(name, want) != want:
                message = f"the {name} of the object ({metadata[name]}) does not match the {name} on the URL ({want})"
                raise Failure(400, "BadRequest", message)

    def _fresh(self, asked: Request, obj: Obj) -> Obj:
        """A new object with what the server gives it; status comes later, by its subresource."""
        home = self._objects[NAMESPACE].get(("", asked.namespace))
        if home is not None and home["metadata"].get("deletionTimestamp"):
            message = f"unable to create new content in namespace {asked.namespace} because it is being terminated"
            raise Failure(403, "Forbidden", message, [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}])
        new = {"apiVersion": asked.kind.api_version, "kind": asked.kind.name} | obj
        if asked.served.status:
            new.pop("status", None)
        given = {"uid": self._uid(), "creationTimestamp": self.now()}
        given |= {"generation": 1} if asked.served.generation else {}
        unset = ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "generation")
        new["metadata"] = {key: part for key, part in new["metadata"].items() if key not in unset} | given
        return new

    def _bounded(self, asked: Request, live: Obj, edited: Obj) -> Obj:
        """What of an edit is the writer's to make: status by its subresource alone, and some metadata never."""
        version = edited["metadata"].get("resourceVersion")
        if version and version != live["metadata"]["resourceVersion"]:
            raise asked.conflict(OPTIMISTIC_LOCK)
        uid, was = edited["metadata"].get("uid"), live["metadata"]["uid"]
        # The status subresource of a custom resource takes nothing of metadata, and so checks nothing of it.
        if uid and uid != was and (asked.served.built_in or asked.subresource != "status"):
            raise asked.invalid(f'metadata.uid: Invalid value: "{uid}": field is immutable')
        if asked.subresource == "status":
            new = {key: part for key, part in live.items() if key != "status"}
            return new | ({"status": edited["status"]} if "status" in edited else {})
        new = {"apiVersion": asked.kind.api_version, "kind": asked.kind.name} | edited
        if asked.served.status:
            new = {key: part for key, part in new.items() if key != "status"}
            new |= {"status": live["status"]} if "status" in live else {}
        kept = {key: live["metadata"][key] for key in (*_KEPT, "uid", "resourceVersion") if key in live["metadata"]}
        new["metadata"] = {key: part for key, part in edited["metadata"].items() if key not in _KEPT} | kept
        return new

    def _admitted(self, asked: Request, new: Obj) -> Obj:
        try:
            return asked.served.normalize(new)
        except ValueError as error:
            raise asked.invalid(str(error)) from None

    def _commit(self, asked: Request, live: Obj | None, new: Obj, records: ssa.Records) -> Obj:
        """Keep what a write made, if it changed anything; an object that only waited for its finalizers goes."""
        if live is not None:
            for path in asked.served.fixed:
                if value_at(live, path) is not None and value_at(live, path) != value_at(new, path):
                    raise asked.invalid(f"{path}: Invalid value: {value_at(new, path)}: field is immutable")
        managed = ssa.write_records(records, live or {}, self.now())
        new["metadata"].pop("managedFields", None)
        if managed:
            new["metadata"]["managedFields"] = managed
        if live is not None and asked.served.generation and _spec(new) != _spec(live):
            new["metadata"]["generation"] += 1
        if live is not None and "deletionTimestamp" in live["metadata"] and not new["metadata"].get("finalizers"):
            if not new["metadata"].get("deletionGracePeriodSeconds"):
                self._remove(asked, live)
                return new
        return self._keep(asked.kind, live, new)

    def _keep(self, kind: Kind, live: Obj | None, new: Obj) -> Obj:
        if new == live:
            return new
        metadata = new["metadata"]
        metadata["resourceVersion"] = self._next_version()
        self._objects[kind][metadata.get("namespace", ""), metadata["name"]] = new
        self.watches.tell(kind, "ADDED" if live is None else "MODIFIED", new)
        return new

    def _remove(self, asked: Request, live: Obj) -> Obj:
        """Forget an object; returns what the answer to a deletion is."""
        del self._objects[asked.kind][asked.namespace, asked.name]
        last = copy.deepcopy(live)
        last["metadata"]["resourceVersion"] = self._next_version()
        self.watches.tell(asked.kind, "DELETED", last)
        if asked.kind == POD:
            return live
        details = {"name": asked.name, "group": asked.kind.group, "kind": asked.kind.plural}
        details["uid"] = live["metadata"]["uid"]
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _uid(self, salt: str = "") -> str:
        """The same in every run of a test, and never twice in one."""
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{salt}{self._version}"))

    def _record(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content_type: str,
        answer: Response | None,
        *,
        changed: bool,
    ) -> None:
        try:
            served, namespace, name, subresource = locate(self.kinds, path)
        except Failure:
            return  # nothing is served there: nothing was read or written
        asked = Request(method, path, served, namespace, name, subresource, query, body, content_type)
        if method not in faults.WRITES:
            self.log.reads[asked.verb] += 1
            return
        made = answer.body.get("metadata", {}) if answer is not None and answer.status < 400 else {}
        name = name or made.get("name") or (body or {}).get("metadata", {}).get("name", "")
        version = int(made.get("resourceVersion") or 0)
        manager = "" if method == "DELETE" else asked.manager
        status = answer.status if answer is not None else 0
        write = Write(asked.verb, served.kind.name, namespace, name, subresource, manager, changed, version, status)
        self.log.all_writes.append(write)


def _spec(obj: Obj) -> Obj:
    return {key: part for key, part in obj.items() if key not in ("metadata", "status")}


def _grace_period(kind: Kind, live: Obj, asked: int | None) -> int:
    """Seconds that a deleted object lives on: only a pod on a node does, until its kubelet has stopped it."""
    if kind != POD or not live["spec"].get("nodeName"):
        return 0
    default: int = live["spec"].get("terminationGracePeriodSeconds", 30)
    return default if asked is None else asked


def _scale_of(asked: Request, live: Obj) -> Obj:
    metadata = live["metadata"]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "spec": {"replicas": value_at(live, asked.served.replicas) or 0},
        "status": {"replicas": value_at(live, "status.replicas") or 0},
    }


def _refusal(conflict: ssa.FieldConflict) -> Failure:
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{owner.name}"', "field": ssa.describe(path)}
        for owner, paths in conflict.fields.items()
        for path in sorted(paths)
    ]
    told = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return Failure(409, "Conflict", f"Apply failed with {len(causes)} conflicts: {told}", causes)
