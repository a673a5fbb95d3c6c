"""The users that nodes know, and how their password changes while everybody goes on. Pure.

Our Secret NAME-users has what nodes start with, and which passwords are good at this time. A change is three writes of
it, each followed by telling every node; from any of them the next follows by what is seen, wherever the operator stopped:

| write | the password to replicas | good | and only when |
|---|---|---|---|
| introduce | the former | the former, the new | the user's Secret has a new one |
| promote | the new | the new, the former | every node takes both |
| forget | the new | the new | every replica gives the new one, and clients had their time |

So no node is ever given a password that it does not take, by nodes, clients or us. Nobody at all being asked for a
password counts as one (empty), for a node that asks nobody takes every password.
"""  # noqa: E501 - a table

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from operators.redis.client.responses import digest
from operators.redis.objects.names import EXPORTER_PASSWORD_KEY, EXPORTER_USER
from operators.redis.objects.redis_conf import USERS_KEY, quoted
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import content_of

USER = "default"
"""The user that clients, nodes and the operator are; without a password, so is everybody."""

CURRENT, NEXT, FORMER = "password", "next", "former"
"""Keys of the Secret, beside what nodes read."""

_MAY_READ = "+ping +info +cluster|info +cluster|nodes +cluster|slots +client|setname +slowlog +latency +select"


@dataclass(frozen=True, slots=True)
class Former:
    """A password that is good for a while yet.

    Attributes:
        until: that while's end.
    """

    password: str = field(repr=False)
    until: datetime


@dataclass(frozen=True, slots=True)
class Passwords:
    """Which passwords are good.

    Attributes:
        current: what replicas give their masters, and the operator gives; empty if nobody is asked.
        next: what is to be that; None if it is to stay.
        former: others that are good still.
        exporter: of the user that reads metrics.
    """

    current: str = field(repr=False)
    next: str | None = field(default=None, repr=False)
    former: tuple[Former, ...] = ()
    exporter: str = field(default="", repr=False)

    @classmethod
    def of(cls, secret: Obj | None) -> Passwords | None:
        """As our Secret has them; None if it does not exist, or cannot be used."""
        held = content_of(secret)
        if USERS_KEY not in held:
            return None
        try:
            former = tuple(
                Former(str(each["password"]), datetime.fromisoformat(each["until"]))
                for each in json.loads(held.get(FORMER, "[]"))
            )
        except (ValueError, TypeError, KeyError):
            return None
        return cls(held.get(CURRENT, ""), held.get(NEXT), former, held.get(EXPORTER_PASSWORD_KEY, ""))

    @property
    def good(self) -> tuple[str, ...]:
        """All that are, the current one first."""
        found = [self.current, *([] if self.next is None else [self.next]), *(each.password for each in self.former)]
        return tuple(dict.fromkeys(found))

    @property
    def digests(self) -> tuple[str, ...]:
        """SHA-256 of each, in hexadecimal, as the server keeps them; none where nobody is asked."""
        return () if "" in self.good else tuple(sorted(map(digest, self.good)))

    def introduce(self, password: str, until: datetime) -> Passwords:
        """Another one is to be the current one."""
        gone = [] if self.next is None else [Former(self.next, until)]  # somebody may have taken it up already
        return replace(self, next=password, former=_other(password, (*gone, *self.former)))

    def withdraw(self, until: datetime) -> Passwords:
        """The current one is to stay; somebody may have taken up the next one already."""
        gone = () if self.next is None else (Former(self.next, until),)
        return replace(self, next=None, former=_other(self.current, (*gone, *self.former)))

    def admit(self, password: str, until: datetime) -> Passwords:
        """Another one is good, too."""
        return replace(self, former=_other(self.current, (*self.former, Former(password, until))))

    def promote(self, until: datetime) -> Passwords:
        """The next one is the current one, and the one before is good for a while yet.

        Only among passwords: where nobody was asked, or is to be, nobody gave one that could be good still.
        """
        assert self.next is not None
        before = [Former(self.current, until)] if self.current and self.next else []
        former = _other(self.next, (*before, *self.former)) if self.next else ()
        return replace(self, current=self.next, next=None, former=former)

    def forget(self, now: datetime, named: str) -> Passwords:
        """Without those whose time is over.

        Args:
            named: one that is good for as long as the user's Secret names it.
        """
        kept = tuple(each for each in self.former if each.until > now or each.password == named)
        return replace(self, former=kept)

    @property
    def text(self) -> str:
        """What nodes read at their start."""
        rights = " ".join(f"#{digest}" for digest in self.digests) or "nopass"
        lines = [f"user {USER} on {rights} ~* &* +@all"]
        if self.exporter:
            lines.append(f"user {EXPORTER_USER} on #{digest(self.exporter)} -@all {_MAY_READ}")
        if self.current:
            lines.append(f"masterauth {quoted(self.current)}")
        return "".join(f"{line}\n" for line in lines)

    def content(self) -> Mapping[str, str]:
        """What our Secret is to hold, by key."""
        former = [{"password": each.password, "until": each.until.isoformat()} for each in self.former]
        found = {USERS_KEY: self.text, EXPORTER_PASSWORD_KEY: self.exporter}
        found |= {CURRENT: self.current} if self.current else {}
        found |= {} if self.next is None else {NEXT: self.next}
        return found | ({FORMER: json.dumps(former)} if former else {})


def _other(password: str, former: tuple[Former, ...]) -> tuple[Former, ...]:
    """Former ones but this, each once, and with the longest time that it was given."""
    found: dict[str, Former] = {}
    for each in former:
        known = found.get(each.password)
        if each.password and each.password != password and (known is None or known.until < each.until):
            found[each.password] = each
    return tuple(found.values())
