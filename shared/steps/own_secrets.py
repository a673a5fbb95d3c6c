"""The Secrets that the operator makes: the origin of their content, and their owners. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shared.api.spec import CustomResource
from shared.kubernetes import secret_provenance
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.ownership import ForeignObject, FormerObject, Owner, controller_of, require_owned
from shared.runtime.plan import PASS, Patch, Step
from shared.status.reasons import FOREIGN_OBJECT
from shared.steps import connection
from shared.steps.connection import Connection, ConnectionSecret


def former_secrets(resource: CustomResource[Any]) -> set[str]:
    """Return the names of all recorded Secrets if the spec has changed, which may change their owner; else none.

    The connection Secret is read by itself.
    """
    recorded = {*secret_provenance.recorded(resource.obj)}
    return recorded - {connection.secret_name(resource.name)} if resource.changed else set()


@dataclass(frozen=True, slots=True)
class OwnSecrets:
    """The Secrets that the operator makes for a resource.

    Attributes:
        own: owner of the Secrets.
        component: component label of the Secrets.
        resource: the resource.
        names: names of the Secrets, without the connection Secret.
        found: Secrets by name, without the unproven ones.
        unproven: Secrets with content that the operator did not write.
        connection: address and credentials for clients.
        published: the connection Secret; None if it was not read.
        of_users: the same for each further user of the database.
        lasting: names of Secrets that outlive the resource although its other objects do not.
        spare: Secrets that the spec no longer needs, by name, and their keys that the operator wrote.
    """

    own: Owner
    component: str
    resource: Obj
    names: Collection[str]
    found: Mapping[str, Obj | None] = field(repr=False)
    unproven: tuple[Obj, ...] = field(repr=False)
    connection: Connection = field(repr=False)
    published: ConnectionSecret | None
    of_users: Sequence[tuple[Connection, ConnectionSecret]] = ()
    lasting: frozenset[str] = frozenset()
    spare: Mapping[str, Collection[str]] = field(default_factory=dict)

    @property
    def record(self) -> dict[str, str]:
        """The next record of the status (`secret_provenance`)."""
        copies = [(self.connection, self.published), *self.of_users]
        written = [connection.written(self.own, self.component, *copy) for copy in copies]
        emptied = self.spare.keys() - {each["metadata"]["name"] for each in self._filled}
        return secret_provenance.record(self.resource, self._present, filter(None, written), without=emptied)

    @property
    def _taken(self) -> list[Obj]:
        """The Secrets that another controller has, without the connection Secret, on which nothing depends."""
        return [secret for secret in self._existing(self.names) if _controller_uid(secret) not in ("", self.own.uid)]

    @property
    def _filled(self) -> list[Obj]:
        """The spare Secrets of the resource that have content."""
        own = filter(self.own.may_delete, self._existing(self.spare))
        return [secret for secret in own if not secret_provenance.is_blank(secret)]

    @property
    def _present(self) -> list[Obj]:
        """The Secrets that exist, and were read."""
        copies = [self.published, *(published for _, published in self.of_users)]
        read = [copy.found for copy in copies if copy and not copy.is_unread]
        return self._existing(self.names) + [secret for secret in read if secret is not None]

    def _existing(self, names: Collection[str]) -> list[Obj]:
        return [secret for name in sorted(names) if (secret := self.found.get(name)) is not None]

    def refuse(self) -> Step:
        """Block while Secrets with names of the operator's own have another controller, or content of unknown origin.

        A Secret that the operator made, and another client gave to another controller, is deleted with that one.
        """
        for secret in (*self.unproven, *self._taken):
            desired = self.own.object(SECRET, secret["metadata"]["name"], component=self.component)
            try:
                require_owned(desired, secret, self.own.uid)
            except FormerObject as error:
                return Step.wait(FOREIGN_OBJECT, str(error), warning=True, requeue=connection.COLLECTION_SECONDS)
            except ForeignObject as error:
                return Step.blocked(FOREIGN_OBJECT, str(error))
        if not self.unproven:
            return PASS
        return Step.blocked(FOREIGN_OBJECT, secret_provenance.refusal(self.resource, self.unproven))

    def empty_spare(self) -> Step:
        """Remove the content of Secrets that nothing mounts any longer, such as the copy of a private key.

        The operator has no right to delete Secrets; an empty one is deleted with its resource, or by a user. Keys that
        a user added stay.
        """
        found = ((each, each["data"].keys() & self.spare[each["metadata"]["name"]]) for each in self._filled)
        return Step.do(*(connection.removal(secret, sorted(keys)) for secret, keys in found if keys))

    def keep_owners(self) -> Step:
        """Give each Secret of the next record the labels and owner reference of a new one.

        The spec may have changed since it was made, or it was orphaned. That of another controller stays as it is
        (`refuse`).
        """
        uids = set(self.record.items())
        own = (each for each in self._present if (each["metadata"]["name"], each["metadata"]["uid"]) in uids)
        kept = (each for each in own if _controller_uid(each) in ("", self.own.uid))
        changes = ((secret, self._change(secret)) for secret in kept)
        return Step.do(*(Patch(SECRET, secret, {"metadata": change}) for secret, change in changes if change))

    def _change(self, secret: Obj) -> Obj:
        """Return the change of labels and owner references; empty if there is none.

        References to other owners stay. Those to former resources of this name do not: with no other reference, the
        garbage collector would delete the Secret.
        """
        metadata, name = secret["metadata"], secret["metadata"]["name"]
        own = replace(self.own, lasting=True) if name in self.lasting else self.own
        desired = own.object(SECRET, name, component=self.component)["metadata"]
        labelled = metadata.get("labels") or {}
        labels = {key: text for key, text in desired["labels"].items() if labelled.get(key) != text}
        present = metadata.get("ownerReferences") or []
        others = [reference for reference in present if not own.was(reference)]
        references = [*others, *desired.get("ownerReferences", ())]
        known = {frozenset(each.items()) for each in present}
        is_same = len(present) == len(references) and all(frozenset(each.items()) in known for each in references)
        return ({"labels": labels} if labels else {}) | ({} if is_same else {"ownerReferences": references})


def _controller_uid(secret: Obj) -> str:
    return str((controller_of(secret) or {}).get("uid", ""))
