"""Executes the actions of a plan: every write to the objects of a resource, and every call on its database.

The rules for writes are decisions: docs/decisions/README.md, "Writes".
"""

from __future__ import annotations

import dataclasses
import logging
import secrets as random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from shared.kubernetes import accessors, errors, managed_fields, ownership, secret_provenance, secrets
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import POD, SECRET, Key, Kind, Obj
from shared.observability import metrics, tracing
from shared.pki.rotation import CertificateOrder
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.dependencies import Dependencies
from shared.runtime.errors import DatabaseError
from shared.runtime.field_conflicts import FieldConflicts
from shared.runtime.plan import Action, Apply, Attempt, Call, Delete, Evict, Patch, WriteSecret
from shared.runtime.steady_clock import SteadyClock
from shared.runtime.supervisor import end_if_cancelled
from shared.status import reconciliation_pause
from shared.status.events import MAX_MESSAGE_LENGTH, Event, Recorder
from shared.status.messages import shortened
from shared.status.reasons import CERTIFICATE_NOT_MADE, RESTORED

log = logging.getLogger(__name__)

MAX_REMEMBERED_INTENTS = 100_000
"""Maximum number of objects whose last applied intent is remembered; each takes about 250 bytes."""

Permit = Callable[[str], None]
"""Returns if this replica may perform the described act as the leader; raises Unavailable otherwise."""


def always(_act: str) -> None:
    """The permit of an operator without leader election."""


class CertificateNotMade(DatabaseError):
    """A certificate could not be issued; the message has the cause."""

    reason = CERTIFICATE_NOT_MADE


ExpectedFailure = errors.KubeError | DatabaseError | ownership.ForeignObject
"""Failures of actions that are not possible now, or whose object belongs to another owner."""


class Execution(NamedTuple):
    """The result of the chains of a plan.

    Attributes:
        changed: whether anything changed, so that the state must be observed again.
        resource: the resource, with the UIDs of Secrets that were recorded in its status.
        chain: index of the first chain that failed; None if none did.
        failure: failure of that chain.
    """

    changed: bool
    resource: Obj
    chain: int | None = None
    failure: ExpectedFailure | None = None


class _Applied(NamedTuple):
    """The intent that was last applied to an object.

    Attributes:
        digest: digest of the intent.
        fingerprint: the object (`Cache.fingerprint`) that need not be compared with the intent; 0 for none.
    """

    digest: str
    fingerprint: int = 0


_NOTHING_APPLIED = _Applied("")


class Executor:
    """Executes the plans of one controller.

    Args:
        dependencies: where the Secrets that plans write are noted.
        permit: called before each database call; writes to Kubernetes are fenced by their transport.
        clock: present time; by default a `SteadyClock`.

    Attributes:
        conflicts: objects of which other clients keep changing fields.
    """

    def __init__(
        self,
        controller: Controller[Any, Any],
        *,
        kube: Kube,
        cache: Cache,
        recorder: Recorder,
        dependencies: Dependencies,
        permit: Permit = always,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._controller = controller
        self._dependencies = dependencies
        self._kube = kube
        self._cache = cache
        self._recorder = recorder
        self._permit = permit
        self._clock = clock or SteadyClock()
        self.conflicts = FieldConflicts()
        self._applied: dict[int, _Applied] = {}  # by hash of the object
        metrics.CONTESTED_OBJECTS.labels(controller=controller.name).set_function(self.conflicts.__len__)

    async def execute(
        self, resource: Obj, chains: Sequence[Sequence[Action]], record: Mapping[str, str] | None = None
    ) -> Execution:
        """Execute the chains of a plan, one after the other; a failure ends its own chain only.

        Args:
            resource: the resource as it was planned on.
            record: the record of Secrets of the plan's status (`secret_provenance`).

        Raises:
            Conflict: the observed state is outdated; the following chains are not executed.
            NamespaceTerminating: the following chains would be refused as well.
        """
        changed, failed, known = False, list[tuple[int, ExpectedFailure]](), {**(record or {})}
        for number, actions in enumerate(chains):
            try:
                resource, has_changed = await self._execute_chain(resource, actions, known)
                changed |= has_changed
            except (errors.Conflict, errors.NamespaceTerminating):
                raise
            except (errors.KubeError, DatabaseError, ownership.ForeignObject) as failure:
                end_if_cancelled()  # a failure of the clean-up may have replaced the cancellation
                failed.append((number, failure))
        failed.sort(key=lambda each: isinstance(each[1], errors.NotEvictable))  # waiting for a budget is no problem
        for _, other in failed[1:]:
            log.warning("%s: %s", _key(resource), other)
        return Execution(changed, resource, *(failed[0] if failed else ()))

    async def _execute_chain(
        self, resource: Obj, actions: Sequence[Action], record: dict[str, str]
    ) -> tuple[Obj, bool]:
        changed, is_current, seen = False, False, dict[int, Obj]()
        for number, action in enumerate(actions):
            self._require_unpaused(resource)
            if isinstance(action, WriteSecret) and not action.is_copy and not seen:
                resource, seen = await self._prepare_secrets(resource, actions, record)
            publishes = isinstance(action, WriteSecret) and action.is_copy and action.seen is not None
            if (publishes or isinstance(action, Call | Delete | Evict | Attempt)) and not is_current:
                await self._require_current(resource)
                is_current = True
            match action:
                case Apply(dry_run=True):
                    await self._judge(action)
                case Apply():
                    changed |= await self._apply(resource, action)
                case Patch():
                    changed |= await self._patch(resource, action)
                case WriteSecret():
                    await self._write_secret(resource, action, seen.get(number, action.seen))
                    changed = True
                case Delete():
                    changed |= await self._delete(resource, action)
                case Evict():
                    await self._evict(resource, action)
                    changed = True
                case Call():
                    resource = await self._call(resource, action)
                    changed |= not action.lasting
                case Attempt():
                    resource = await self._attempt(resource, action)
                    changed = True
        return resource, changed

    async def pending(self, chains: Sequence[Sequence[Action]]) -> list[Action]:
        """Return the actions of a plan that would change something; nothing is changed."""
        return [action for actions in chains for action in actions if await self._would_change(action)]

    async def _would_change(self, action: Action) -> bool:
        if not isinstance(action, Apply | Patch):
            return True
        metadata = action.obj["metadata"]
        observed = await self._read(action.kind, metadata["namespace"], metadata["name"])
        if observed is None:
            return True
        if isinstance(action, Patch):
            return bool(managed_fields.changed_by(action.change, observed))
        return bool(managed_fields.difference(managed_fields.with_digest(action.obj), observed, self._kube.manager))

    def _require_unpaused(self, resource: Obj) -> None:
        """Check before each action that no user has paused the reconciliation since the plan."""
        kind = self._controller.kind
        is_newest = self._cache.fingerprint_of(kind, resource)  # unpacking it for each action would cost more
        live = resource if is_newest else self._cache.get(kind, *_key(resource)) or resource
        if reconciliation_pause.is_paused(live):
            raise errors.Conflict(f"the reconciliation of {_key(resource)} was paused")

    async def _require_current(self, resource: Obj) -> None:
        """Check that an irreversible action follows from the newest spec and status.

        Neither a database call nor a deletion has a precondition on the version of the resource, and such actions also
        depend on what the status records. Nor has what clients read: they would use a password of a former spec.
        """
        kind, metadata = self._controller.kind, resource["metadata"]
        live = await self._kube.find(kind, metadata["namespace"], metadata["name"])
        if live is None:
            self._cache.drop(kind, resource)
            raise errors.Conflict(f"{kind} {metadata['name']} was deleted")
        if _planned_state(live) != _planned_state(resource):
            self._cache.put(kind, live)  # the next reconcile, which follows at once, reads it
            raise errors.Conflict(f"{kind} {metadata['name']} has changed since it was observed")

    async def _require_owned(self, resource: Obj, desired: Obj, observed: Obj) -> None:
        """Check that the resource may write to an object, and that it still exists if the write adopts the object."""
        ownership.require_owned(desired, observed, resource["metadata"]["uid"])
        if ownership.is_adoption(desired, observed):
            await self._require_current(resource)

    async def _apply(self, resource: Obj, action: Apply) -> bool:
        action = dataclasses.replace(action, obj=managed_fields.with_digest(action.obj))
        if self._is_unchanged(action):
            return False
        kind, metadata = action.kind, action.obj["metadata"]
        observed = await self._read(kind, metadata["namespace"], metadata["name"])
        if observed is None and action.seen is not None:
            raise errors.Conflict(f"{kind} {metadata['name']} was deleted")
        if observed is None:
            await self._apply_missing(resource, action)
            return True
        await self._require_owned(resource, action.obj, observed)
        _require_living(observed)
        paths = managed_fields.difference(action.obj, observed, self._kube.manager)
        if not paths:
            self._remember(action, observed)
            return False
        if self._was_applied(action, observed):
            return await self._restore(resource, action, observed)
        return await self._apply_over(resource, action, observed, paths)

    async def _judge(self, action: Apply) -> None:
        """Raise the refusal of an apply to an existing object, if the API server would refuse it."""
        kind, metadata = action.kind, action.obj["metadata"]
        observed = await self._read(kind, metadata["namespace"], metadata["name"])
        if observed is None:
            raise errors.Conflict(f"{kind} {metadata['name']} was deleted")
        pinned = _pinned(managed_fields.with_digest(action.obj), uid=observed["metadata"]["uid"])
        await self._kube.apply(kind, pinned, dry_run=True)

    async def _apply_missing(self, resource: Obj, action: Apply) -> None:
        """Create an object that does not exist."""
        kind, metadata = action.kind, action.obj["metadata"]
        namespace, name, was_applied = metadata["namespace"], metadata["name"], self._was_applied(action, None)
        if action.unchanged or was_applied:  # it may have been deleted with the resource
            await self._require_current(resource)
        created = await self._written(kind, namespace, name, self._create(resource, action))
        self._remember(action, created)
        log.info("%s: created %s %s", _key(resource), kind, name)
        if was_applied:
            self._record_restored(resource, kind, f"{kind} {name} was missing and has been recreated.")

    async def _apply_over(self, resource: Obj, action: Apply, observed: Obj, paths: Sequence[str]) -> bool:
        """Apply an intent that differs from the observed object; return whether that changed the object."""
        kind, metadata = action.kind, observed["metadata"]
        pinned = _pinned(action.obj, uid=metadata["uid"])
        if action.unchanged:
            await self._require_current(resource)
            pinned["metadata"]["resourceVersion"] = metadata["resourceVersion"]
        try:
            write = self._kube.apply(kind, pinned)
            applied = await self._written(kind, metadata["namespace"], metadata["name"], write)
        except errors.Conflict:
            if action.unchanged:
                await self._refresh(kind, observed)
            raise
        self._remember(action, applied)
        has_changed = accessors.resource_version(applied) != accessors.resource_version(observed)
        named = [path for path in paths if path != managed_fields.APPLIED_PATH] or ["changed intent"]
        level = logging.INFO if has_changed else logging.DEBUG
        listed = shortened(", ".join(named), MAX_MESSAGE_LENGTH)
        log.log(level, "%s: applied %s %s: %s", _key(resource), kind, metadata["name"], listed)
        return has_changed

    async def _restore(self, resource: Obj, action: Apply, observed: Obj) -> bool:
        """Apply an intent again because another client has changed the object; return whether that changed it.

        If that client does so repeatedly, the restoration waits for some seconds (`FieldConflicts`).
        """
        key, kind, name = _key(resource), action.kind, observed["metadata"]["name"]
        if self.conflicts.delay(key, kind, name, self._clock()):
            return False
        live = await self._kube.get(kind, key.namespace, name)  # the cache has no records of other managers
        await self._require_owned(resource, action.obj, live)
        _require_living(live)
        paths = managed_fields.difference(action.obj, live, self._kube.manager)
        if not paths or not await self._apply_over(resource, action, live, paths):
            return False
        managers = managed_fields.managers_of(paths, live, own=self._kube.manager)
        is_first = self.conflicts.restored(key, kind, name, managers, paths, self._clock())
        by = f"by {' and '.join(managers)}" if managers else "by another client"
        message = f"{kind} {name} was changed {by}; restored: {', '.join(paths)}."
        self._record_restored(resource, kind, message, is_event=is_first)
        return True

    async def _create(self, resource: Obj, action: Apply) -> Obj:
        """Create an object that was not observed; if it exists nevertheless, adopt it only if this resource owns it.

        If the action requires the observed state, raise Conflict instead of adopting it.
        """
        kind, desired = action.kind, action.obj
        try:
            return await self._kube.create_by_apply(kind, desired)
        except errors.Conflict:
            metadata = desired["metadata"]
            live = await self._kube.get(kind, metadata["namespace"], metadata["name"])
            await self._require_owned(resource, desired, live)
            _require_living(live)
            if action.unchanged:
                self._cache.put(kind, live)
                raise
            return await self._kube.apply(kind, _pinned(desired, uid=live["metadata"]["uid"]))

    async def _patch(self, resource: Obj, action: Patch) -> bool:
        kind, metadata = action.kind, action.obj["metadata"]
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        observed = await self._read(kind, namespace, name) or await self._kube.find(kind, namespace, name)
        if observed is None or observed["metadata"]["uid"] != uid:
            raise errors.Conflict(f"{kind} {name} (uid {uid}) was deleted")
        ownership.require_part(observed, self._controller.operator, resource)
        paths = managed_fields.changed_by(action.change, observed)
        if not paths:
            return False
        change = _pinned({"metadata": {}} | action.change, uid=uid)
        if "ownerReferences" in change["metadata"]:  # the patch replaces all of them
            if observed["metadata"].get("ownerReferences") != metadata.get("ownerReferences"):
                raise errors.Conflict(f"the owners of {kind} {name} have changed since it was observed")
            change["metadata"]["resourceVersion"] = observed["metadata"]["resourceVersion"]
            await self._require_current(resource)
        try:
            if kind == SECRET:
                patched = await self._secret_written(resource, name, self._kube.merge(kind, namespace, name, change))
            else:
                patched = await self._merge(kind, namespace, name, change, action.subresource)
        except (errors.Forbidden, errors.Invalid, errors.NotFound) as refusal:
            if action.noted is None or (isinstance(refusal, errors.NotFound) and not action.subresource):
                raise
            key, beginning = action.noted
            note = {"metadata": {"uid": uid, "annotations": {key: f"{beginning}: {refusal}"}}}
            patched = await self._merge(kind, namespace, name, note)
            paths = [f"metadata.annotations.{key}"]
        if accessors.resource_version(patched) == accessors.resource_version(observed):
            return False
        log.info("%s: changed %s %s: %s", _key(resource), kind, name, ", ".join(paths))
        return True

    async def _prepare_secrets(
        self, resource: Obj, actions: Sequence[Action], record: dict[str, str]
    ) -> tuple[Obj, dict[int, Obj]]:
        """Create missing Secrets without content, and record their UIDs before they get content.

        Args:
            record: the record to write, which gets these UIDs: a later chain would write the former ones otherwise.

        Returns:
            The resource with the record in its status, and the Secrets that the actions fill, by number of the action.

        Raises:
            ForeignObject: a Secret has content that the operator may not use.
        """
        found, created = dict[int, Obj](), dict[str, str]()
        for number, action in enumerate(actions):
            if not isinstance(action, WriteSecret) or action.is_copy:
                continue
            self._require_unpaused(resource)
            seen = action.seen or await self._create_blank(resource, action)
            ownership.require_owned(action.obj, seen, resource["metadata"]["uid"])
            found[number] = seen
            if not secret_provenance.is_proven(resource, seen):
                _require_blank(resource, seen)
                created[seen["metadata"]["name"]] = seen["metadata"]["uid"]
            elif secret_provenance.is_blank(seen):  # emptied for another spec, which no longer records it
                await self._require_current(resource)
        if created:
            resource = await self._record(resource, {secret_provenance.RECORD: {**record, **created}})
            record |= created
        return resource, found

    async def _create_blank(self, resource: Obj, action: WriteSecret) -> Obj:
        name = action.obj["metadata"]["name"]
        keys = (*action.obj.get("data", {}), *(action.under if action.order else ()), action.token)
        blank = {**action.obj, "data": dict.fromkeys(filter(None, keys), "")}
        try:
            return await self._secret_written(resource, name, self._kube.create_by_apply(SECRET, blank))
        except errors.Conflict:
            live = await self._kube.get(SECRET, resource["metadata"]["namespace"], name)
            ownership.require_owned(action.obj, live, resource["metadata"]["uid"])
            if not secret_provenance.is_proven(resource, live):
                _require_blank(resource, live)
            raise

    async def _write_secret(self, resource: Obj, action: WriteSecret, seen: Obj | None) -> None:
        secret, name = action.obj, action.obj["metadata"]["name"]
        if action.order is not None:
            secret = {**secret, "data": secret.get("data", {}) | await self._issue(action.order, action.under)}
        if action.token:
            made = secrets.encoded({action.token: random.token_hex(32).join(action.around)})
            secret = {**secret, "data": secret.get("data", {}) | made}
        self._require_unpaused(resource)  # the record of the Secret was written since, and a certificate was issued
        if seen is None:
            await self._secret_written(resource, name, self._kube.create_by_apply(SECRET, secret))
            log.info("%s: created %s %s", _key(resource), SECRET, name)
            return
        await self._require_owned(resource, secret, seen)
        # The UID is not enough: another replica may have written a key since.
        version = {"resourceVersion": seen["metadata"]["resourceVersion"]}
        pinned = _pinned(secret, uid=seen["metadata"]["uid"])
        write = self._kube.apply(SECRET, {**pinned, "metadata": pinned["metadata"] | version})
        await self._secret_written(resource, name, write)
        done = "created" if secret_provenance.is_blank(seen) else "replaced"
        log.info("%s: %s %s %s", _key(resource), done, SECRET, name)

    async def _secret_written(self, resource: Obj, name: str, write: Awaitable[Obj]) -> Obj:
        key = _key(resource)
        return await self._dependencies.written(key, SECRET, key.namespace, name, write)

    async def _issue(self, order: CertificateOrder, under: tuple[str, str]) -> dict[str, str]:
        try:
            made = await self._controller.issue(order)
        except OSError as error:
            raise CertificateNotMade(str(error)) from None
        pair = made.serving or made.authority
        assert pair is not None
        return secrets.encoded(dict(zip(under, pair, strict=True)))

    async def _delete(self, resource: Obj, action: Delete) -> bool:
        """Delete an object; return whether anything changed: one that is being deleted is not deleted again."""
        kind, metadata = action.kind, action.obj["metadata"]
        ownership.require_part(action.obj, self._controller.operator, resource)
        if _is_being_deleted(action):
            return False
        self._applied.pop(_object_hash(action), None)
        try:
            left = await self._kube.delete(
                kind,
                metadata["namespace"],
                metadata["name"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"] if action.unchanged else None,
                propagation="Orphan" if action.orphan else "Background",
                grace_seconds=action.grace_seconds,
            )
            within = "" if action.grace_seconds is None else f", to stop within {action.grace_seconds} s"
            log.info("%s: deleted %s %s%s", _key(resource), kind, metadata["name"], within)
        except errors.NotFound:
            left = None
        if kind not in self._cache.kinds:
            return True
        if left is None:
            self._cache.drop(kind, action.obj)
        else:
            self._cache.put(kind, left)
        return True

    async def _evict(self, resource: Obj, action: Evict) -> None:
        metadata = action.obj["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        ownership.require_part(action.obj, self._controller.operator, resource)
        try:
            # The server charges the budget before it compares the UID: a stale request would block drains for minutes.
            live = await self._kube.get(POD, namespace, name)
            if live["metadata"]["uid"] != metadata["uid"]:
                raise errors.Conflict(f"Pod {name} (uid {metadata['uid']}) was deleted")
            await self._kube.evict(namespace, name, uid=metadata["uid"])
        except errors.NotEvictable as refusal:
            raise errors.NotEvictable(
                f"Pod {name} is not evicted yet: {str(refusal).rstrip('.')}.", status=refusal.status
            ) from None
        except errors.NotFound:
            self._cache.drop(POD, action.obj)
            return
        log.info("%s: evicted %s %s", _key(resource), POD, name)
        if POD in self._cache.kinds:  # the response does not contain the terminating pod
            await self._refresh(POD, action.obj)

    async def _call(self, resource: Obj, call: Call) -> Obj:
        """Carry out a call; return the resource, in whose status the call may have recorded its progress."""

        async def record(fields: Obj) -> None:
            nonlocal resource
            self._permit(f"record the progress: {call}")
            resource = await self._record(resource, fields)

        self._permit(str(call))
        log.info("%s: %s", _key(resource), call)
        with tracing.span("call", {"step": str(call)}):
            await self._controller.call(call, record)
        return resource

    async def _record(self, resource: Obj, fields: Obj) -> Obj:
        """Write fields of the status of exactly the observed resource, and return it.

        Raises:
            Conflict: the resource has changed since, so that what the plan follows from is outdated.
        """
        kind, metadata = self._controller.kind, resource["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": fields}
        return await self._merge(kind, metadata["namespace"], metadata["name"], patch, "status")

    async def _attempt(self, resource: Obj, attempt: Attempt) -> Obj:
        """Carry out a call, and record whether the database refused it."""
        key, beginning = attempt.noted
        value: str | None = None
        try:
            resource = await self._call(resource, attempt.call)
        except attempt.refusal as refusal:
            log.warning("%s: refused: %s: %s", _key(resource), attempt.call, refusal)
            value = f"{beginning}: {refusal}"
        await self._patch(resource, Patch(attempt.kind, attempt.obj, {"metadata": {"annotations": {key: value}}}))
        return resource

    async def _read(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """Return an object from the cache, or live if its kind is not watched."""
        if kind in self._cache.kinds:
            return self._cache.get(kind, namespace, name)
        return await self._kube.find(kind, namespace, name)

    async def _refresh(self, kind: Kind, observed: Obj) -> None:
        """Update the cache, so that the next reconcile, which follows at once, reads the current object."""
        metadata = observed["metadata"]
        try:
            self._cache.put(kind, await self._kube.get(kind, metadata["namespace"], metadata["name"]))
        except errors.NotFound:
            self._cache.drop(kind, observed)

    async def _merge(self, kind: Kind, namespace: str, name: str, patch: Obj, subresource: str = "") -> Obj:
        write = self._kube.merge(kind, namespace, name, patch, subresource=subresource or None)
        return await self._written(kind, namespace, name, write)

    async def _written(self, kind: Kind, namespace: str, name: str, write: Awaitable[Obj]) -> Obj:
        """Return the response to a write, which also enters the cache if the kind is watched."""
        if kind in self._cache.kinds:
            return await self._cache.written(kind, namespace, name, write)
        return await write

    def _was_applied(self, action: Apply, observed: Obj | None) -> bool:
        """Return whether this intent was applied before: if the object differs now, another client has changed it."""
        digest = managed_fields.applied_digest(action.obj)
        return digest in (managed_fields.applied_digest(observed), self._last_applied(action).digest)

    def _is_unchanged(self, action: Apply) -> bool:
        """Return whether this very object is the response to this intent, or does not differ from it."""
        last, metadata = self._last_applied(action), action.obj["metadata"]
        if last.fingerprint == 0 or last.digest != managed_fields.applied_digest(action.obj):
            return False
        return last.fingerprint == self._cache.fingerprint(action.kind, metadata["namespace"], metadata["name"])

    def _last_applied(self, action: Apply) -> _Applied:
        return self._applied.get(_object_hash(action), _NOTHING_APPLIED)

    def _remember(self, action: Apply, current: Obj) -> None:
        """Remember the applied intent: if the object is missing the next time, another client has deleted it.

        Args:
            current: the object that needs no comparison with the intent: it does not differ, or it is the response to
                the intent. Where an admission webhook has changed the intent, applying it again would change nothing.
        """
        fingerprint = self._cache.fingerprint_of(action.kind, current)
        self._applied[_object_hash(action)] = _Applied(managed_fields.applied_digest(action.obj), fingerprint)
        if len(self._applied) > MAX_REMEMBERED_INTENTS:
            self._applied.pop(next(iter(self._applied)))

    def _record_restored(self, resource: Obj, kind: Kind, message: str, *, is_event: bool = True) -> None:
        """Report that an object was changed by another client, and restored."""
        metrics.RESTORATIONS.labels(controller=self._controller.name, kind=kind.name).inc()
        if is_event:
            self._recorder.record(Event.about(resource, RESTORED, message))


def _object_hash(action: Apply | Delete) -> int:
    return hash((action.kind, action.obj["metadata"]["namespace"], action.obj["metadata"]["name"]))


def _require_blank(resource: Obj, secret: Obj) -> None:
    """Raise ForeignObject if a Secret has content, which may be that of another client."""
    if not secret_provenance.is_blank(secret):
        raise ownership.ForeignObject(secret_provenance.refusal(resource, [secret]))


def _require_living(observed: Obj) -> None:
    """Raise an error if an object is being deleted: it can be neither used nor created.

    Raises:
        Terminating: the message names the object and what it waits for.
    """
    metadata = observed["metadata"]
    if since := metadata.get("deletionTimestamp"):
        what = f"{observed['kind']} {metadata['name']} is being deleted since {since}"
        if finalizers := metadata.get("finalizers"):
            raise errors.Terminating(
                f"{what} and waits for its finalizers: {', '.join(finalizers)}. The operator creates it again after "
                "that. Check the controllers that these finalizers belong to; if one no longer exists, remove its "
                "finalizer."
            )
        raise errors.Terminating(f"{what}. The operator creates it again after that.")


def _is_being_deleted(action: Delete) -> bool:
    """Whether an object is being deleted already, and ends as soon as the action requires."""
    seconds = action.obj["metadata"].get("deletionGracePeriodSeconds", 0)
    return accessors.is_terminating(action.obj) and (action.grace_seconds is None or seconds <= action.grace_seconds)


def _planned_state(resource: Obj) -> tuple[object, ...]:
    """Return what must not have changed since the plan: identity, spec, deletion, status and a pause."""
    metadata, is_paused = resource["metadata"], reconciliation_pause.is_paused(resource)
    state = metadata["uid"], metadata.get("generation"), metadata.get("deletionTimestamp"), resource.get("status")
    return *state, is_paused


def _key(obj: Obj) -> Key:
    return Key(obj["metadata"]["namespace"], obj["metadata"]["name"])


def _pinned(desired: Obj, *, uid: str) -> Obj:
    """Return the object with its UID as a precondition: another object is not changed, a deleted one not recreated."""
    return {**desired, "metadata": {**desired["metadata"], "uid": uid}}
