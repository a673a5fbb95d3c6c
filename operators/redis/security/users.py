"""The users of the nodes, and password rotation without a restart. Pure.

Secret NAME-users has the file that nodes read when they start, and the valid passwords. A rotation is three writes
of this Secret, each of which is then applied to every node; the next write follows from the observed state, wherever
the operator was interrupted:

| write | current password | valid passwords | precondition |
|---|---|---|---|
| introduce | the old one | the old one, the new one | the user's Secret has a new one |
| promote | the new one | the new one, the old one | every node accepts both |
| remove | the new one | the new one | every node accepts the new one, and the overlap for clients has ended |

So nodes, clients and the operator never use a password that a node rejects. No authentication counts as an empty
password, because such a node accepts every password.

Replicas have a user of their own, also without spec.auth, and a generated password that no other cluster has. A server
copies any server at the address that it has for its primary (syncWithMaster in replication.c), and no server checks the
identity of the other. A foreign server at a former address refuses the replica, because it does not have this user with
this password, and the replica keeps its data. The user comes to an existing cluster in two writes, and another password
of the user too:

| write | replicas authenticate as | precondition |
|---|---|---|
| admit | `default`, or as they do, where all nodes accept that | a password was generated |
| use | `replication` | every node has the user |

The user has all rights: the source of a slot migration of Valkey 9.1 sends the commands of clients to the target as
this user. `default`, as which replicas authenticated before, has them too.

A server that finds a wrong rule in its file does not start. So the rules of a user of the spec are in the file only
once all reachable servers accept them. Each server has them twice: as the rights of the user, and of its revision, a
disabled user whose only password is the digest of the rules as the spec has them. If the server reports the same rights
for both, the user has exactly these rules, in any canonical form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from operators.redis.client.responses import AclUser, digest
from operators.redis.client.server import ALL_RIGHTS, REPLICATION_USER
from operators.redis.objects.conf_syntax import quoted
from operators.redis.objects.names import EXPORTER_PASSWORD_KEY, EXPORTER_USER, REPLICATION_PASSWORD_KEY
from operators.redis.objects.redis_conf import USERS_KEY
from shared.kubernetes.encoding import decode
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import content_of

USER = "default"
"""User of clients and the operator; without authentication, of every connection."""

CURRENT, NEXT, FORMER = "password", "next", "former"
"""Keys of the Secret, in addition to the file. A next password that is the current one is none (`users_secret`)."""

MAX_FORMER_BYTES = 64 * 1024
"""Maximum size of the former passwords in the Secret; more cannot be parsed."""

SPEC_USERS, GENERATED, REQUEST, MAX_SPEC_USERS_BYTES = "specUsers", "generated.", "request.", 512 * 1024
"""Key of the users of the spec; beginnings of the keys of their generated passwords and of the requests for these."""

_MAY_READ = "+ping +info +cluster|info +cluster|nodes +cluster|slots +client|setname +slowlog +latency +select"


@dataclass(frozen=True, slots=True)
class Former:
    """A former password that is still valid.

    Attributes:
        until: end of its validity.
    """

    password: str = field(repr=False)
    until: datetime


@dataclass(frozen=True, slots=True)
class Rotation:
    """The valid passwords of a user, while they change.

    Attributes:
        current: password that is published: of `default`, that of the operator; empty if none is required.
        next: next current password; None if it does not change.
        former: other valid passwords.
    """

    current: str = field(repr=False)
    next: str | None = field(default=None, repr=False)
    former: tuple[Former, ...] = ()

    @property
    def good(self) -> tuple[str, ...]:
        """All valid passwords, the current one first."""
        found = [self.current, *([] if self.next is None else [self.next]), *(each.password for each in self.former)]
        return tuple(dict.fromkeys(found))

    @property
    def digests(self) -> tuple[str, ...]:
        """SHA-256 of each valid password, in hexadecimal, as the server stores them; empty if none is required."""
        return () if "" in self.good else tuple(sorted(map(digest, self.good)))

    def introduce(self, password: str, until: datetime) -> Self:
        """Return the passwords with a new next one."""
        replaced = [] if self.next is None else [Former(self.next, until)]  # clients may use it already
        return replace(self, next=password, former=_other(password, (*replaced, *self.former)))

    def withdraw(self, until: datetime) -> Self:
        """Return the passwords without the next one, which stays valid for clients that use it already."""
        withdrawn = () if self.next is None else (Former(self.next, until),)
        return replace(self, next=None, former=_other(self.current, (*withdrawn, *self.former)))

    def admit(self, password: str, until: datetime) -> Self:
        """Return the passwords with another valid one."""
        return replace(self, former=_other(self.current, (*self.former, Former(password, until))))

    def promote(self, until: datetime) -> Self:
        """Return the passwords with the next one as the current one; the previous one stays valid for a while.

        Unless one of them is empty: without authentication no client uses a password that must stay valid.
        """
        assert self.next is not None
        before = [Former(self.current, until)] if self.current and self.next else []
        former = _other(self.next, (*before, *self.former)) if self.next else ()
        return replace(self, current=self.next, next=None, former=former)

    def expire(self, now: datetime, named: str) -> Self:
        """Return the passwords without expired ones.

        Args:
            now: present time.
            named: password that stays valid while the user's Secret contains it.
        """
        kept = tuple(each for each in self.former if each.until > now or each.password == named)
        return replace(self, former=kept)


@dataclass(frozen=True, slots=True)
class SpecUser(Rotation):
    """A user of the spec, as the file of the nodes has it.

    Attributes:
        rules: rules that servers accepted.
        removed: whether the spec no longer has the user: nodes delete it.
    """

    name: str = ""
    rules: str = ""
    enabled: bool = True
    removed: bool = False

    def is_applied(self, found: Mapping[str, AclUser], tried: str) -> bool:
        """Return whether a server has exactly this user; its revision may have the rules that servers try."""
        user, revision = found.get(self.name), found.get(revision_of(self.name))
        if self.removed or user is None or revision is None:
            return self.removed and user is revision
        if (user.enabled, user.passwords) != (self.enabled, self.digests):
            return False
        return revision == AclUser(False, (digest(self.rules),), user.rights) or (
            tried != self.rules and revision.passwords == (digest(tried),)
        )

    @property
    def definitions(self) -> tuple[tuple[str, ...], ...]:
        """The user and its revision, each as the arguments of ACL SETUSER and of the directive `user`."""
        passwords = (f"#{digest}" for digest in self.digests)
        user = (self.name, "reset", "on" if self.enabled else "off", *passwords, *self.rules.split())
        return () if self.removed else (revision(self.name, self.rules), user)

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """Commands that give a server this user, or delete it; a disabled user is disconnected."""
        if self.removed:
            return (("ACL", "DELUSER", self.name, revision_of(self.name)),)
        kill = () if self.enabled else (("CLIENT", "KILL", "USER", self.name),)
        return (*(("ACL", "SETUSER", *each) for each in self.definitions), *kill)


def revision_of(user: str) -> str:
    """Return the name of the revision of a user, which no user of a spec can have."""
    return f"{user}:revision"


def revision(user: str, rules: str) -> tuple[str, ...]:
    """Return the revision of a user, as `SpecUser.definitions`."""
    return (revision_of(user), "reset", "off", f"#{digest(rules)}", *rules.split())


@dataclass(frozen=True, slots=True)
class Passwords(Rotation):
    """The valid passwords of all users.

    Attributes:
        exporter: password of the exporter's user.
        replication: password of the replicas' user; empty until it is generated.
        uses_replication: whether replicas authenticate as that user; otherwise as `default`, with `current`.
        users: users of the spec, and those that were removed from it, until no node has them.
        generated: generated passwords of these users, and the requests for which they were, by key of the Secret.
    """

    exporter: str = field(default="", repr=False)
    replication: str = field(default="", repr=False)
    uses_replication: bool = False
    users: tuple[SpecUser, ...] = ()
    generated: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, secret: Obj | None) -> Passwords | None:
        """Parse the operator's Secret; None if it does not exist or is invalid."""
        content = content_of(secret)
        if USERS_KEY not in content:
            return None
        try:
            former = _parsed(decode(content.get(FORMER, "[]")[:MAX_FORMER_BYTES]))
            users = tuple(map(_user, decode(content.get(SPEC_USERS, "[]")[:MAX_SPEC_USERS_BYTES])))
        except (ValueError, TypeError, KeyError):
            return None
        replication, current = (content.get(key, "") for key in (REPLICATION_PASSWORD_KEY, CURRENT))
        return cls(
            current,
            None if content.get(NEXT) == current else content.get(NEXT),
            former,
            content.get(EXPORTER_PASSWORD_KEY, ""),
            replication,
            bool(replication) and {*_link_lines(REPLICATION_USER, replication)} <= {*content[USERS_KEY].split("\n")},
            users,
            {key: text for key, text in content.items() if text and key.startswith((GENERATED, REQUEST))},
        )

    @property
    def admits_replication(self) -> bool:
        """Whether nodes get the user of replicas, and no replica uses it yet."""
        return bool(self.replication) and not self.uses_replication

    @property
    def is_changing(self) -> bool:
        """Whether nodes have to apply these passwords before others follow."""
        changing = any(user.next is not None or user.removed for user in self.users)
        return changing or self.next is not None or self.admits_replication

    def use_replication(self) -> Passwords:
        """Return the passwords with replicas that authenticate as their own user."""
        return replace(self, uses_replication=True)

    @property
    def link(self) -> tuple[str, str]:
        """User and password with which a replica authenticates at its primary."""
        return (REPLICATION_USER, self.replication) if self.uses_replication else (USER, self.current)

    @property
    def admitted(self) -> tuple[str, ...]:
        """SHA-256 of each password of the replicas' user, as in `digests`; empty until there is one.

        Those of `default` are among them: an operator of an earlier version sets the password of replicas to that one,
        and leaves their user as it is.
        """
        return tuple(sorted({digest(self.replication), *self.digests})) if self.replication else ()

    @property
    def text(self) -> str:
        """File that nodes read when they start."""
        accepted = " ".join(f"#{digest}" for digest in self.digests) or "nopass"
        lines = [f"user {USER} on {accepted} {ALL_RIGHTS}"]
        if self.exporter:
            lines.append(f"user {EXPORTER_USER} on #{digest(self.exporter)} -@all {_MAY_READ}")
        if self.replication:
            admitted = " ".join(f"#{digest}" for digest in self.admitted)
            lines.append(f"user {REPLICATION_USER} on {admitted} {ALL_RIGHTS}")
        for name, *words in (words for user in self.users for words in user.definitions):
            lines.append(" ".join(["user", name, *(word if word[0] == "#" else quoted(word) for word in words)]))
        lines += _link_lines(*self.link)
        return "".join(f"{line}\n" for line in lines)

    def content(self) -> Mapping[str, str]:
        """Return the content of the Secret, by key."""
        found: dict[str, str] = {USERS_KEY: self.text, EXPORTER_PASSWORD_KEY: self.exporter, CURRENT: self.current}
        found |= {REPLICATION_PASSWORD_KEY: self.replication, SPEC_USERS: _json(self.users), **self.generated}
        return found | {FORMER: _json(self.former)} | ({} if self.next is None else {NEXT: self.next})


def _json(entries: Iterable[Former | SpecUser]) -> str:
    return json.dumps([asdict(each) for each in entries], default=datetime.isoformat)


def _parsed(former: Any) -> tuple[Former, ...]:
    return tuple(Former(str(each["password"]), datetime.fromisoformat(each["until"])) for each in former)


def _user(entry: Any) -> SpecUser:
    rest = {name: entry[name] for name in ("name", "rules", "enabled", "removed")}
    return SpecUser(entry["current"], entry["next"], _parsed(entry["former"]), **rest)


def _link_lines(user: str, password: str) -> list[str]:
    """Return the directives with which a replica authenticates at its primary; redis.conf names `default`."""
    found = [] if user == USER else [f"masteruser {user}"]
    return [*found, f"masterauth {quoted(password)}"] if password else found


def _other(password: str, former: tuple[Former, ...]) -> tuple[Former, ...]:
    """Return the former passwords except this one, each once, with its latest expiry."""
    found: dict[str, Former] = {}
    for each in former:
        known = found.get(each.password)
        if each.password and each.password != password and (known is None or known.until < each.until):
            found[each.password] = each
    return tuple(found.values())
