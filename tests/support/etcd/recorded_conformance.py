"""What etcd does, as stories that go the same on a real one and on `FakeEtcd`: the record of the one judges the other.

A story is a coroutine that starts, ends and asks members, and tells what came of it in words. The words of etcd 3.6.16
are in `tests/recorded/etcd.json`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from operators.etcd.client.errors import EtcdError
from operators.etcd.client.server import Alarm, Member, Server

Story = Callable[["Lab"], Awaitable[None]]


class Lab(Protocol):
    """Where members are started.

    Attributes:
        told: what came of the story so far.
    """

    told: list[str]

    def url(self, name: str) -> str:
        """The peer URL of a member."""

    async def start(self, name: str, state: str, initial: dict[str, str]) -> str:
        """Start a member on its disk, empty at first, and give it time; returns what it ended with, empty if it runs.

        Args:
            initial: peer URLs by the names that --initial-cluster gives them.
        """

    async def stop(self, name: str) -> None: ...

    async def wipe(self, name: str) -> None:
        """Its disk is lost, with its process."""

    async def ended(self, name: str) -> str:
        """What a member ended with by itself, after some time; empty if it runs."""

    async def calm(self) -> None:
        """Let members be connected for so long that etcd calls them healthy."""

    def server(self, name: str) -> Server: ...


async def _led(lab: Lab, name: str) -> str:
    status = await lab.server(name).status()
    return "leads" if status.leader == status.member_id else "follows" if status.leader else "knows no leader"


class Teller:
    """Puts what comes of a step into words."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._names: dict[int, str] = {}

    async def starts(self, name: str, state: str = "existing", **initial: str) -> None:
        listed = {key.replace("_", "-"): self.lab.url(of) for key, of in initial.items()}
        ended = await self.lab.start(name, state, listed)
        self.lab.told.append(f"{name} starts: {ended or 'it runs'}")

    async def asks(self, what: str, asked: Awaitable[Any]) -> Any:
        try:
            answer = await asked
        except EtcdError as error:
            self.lab.told.append(f"{what}: {type(error).__name__}")
            return None
        said = answer if isinstance(answer, str) else "done"
        self.lab.told.append(f"{what}: {said}")
        return answer

    async def lists(self, name: str) -> None:
        async def members() -> str:
            found = (await self.lab.server(name).members()).members
            return ", ".join(sorted(map(self._words, found)))

        await self.asks(f"{name} lists", members())

    def _words(self, member: Member) -> str:
        places = {self.lab.url(name): name for name in "abcd"}
        return f"{places[member.peer_urls[0]]}{'' if member.name else ' not started'}{' learner' * member.learner}"

    async def id_of(self, name: str, *, by: str = "a") -> int:
        found = (await self.lab.server(by).members()).members
        return next(member.id for member in found if member.peer_urls == (self.lab.url(name),))


async def grow(lab: Lab, *names: str) -> Teller:
    """A cluster of `a` and others, each a voter."""
    tell = Teller(lab)
    await lab.start("a", "new", {"a": lab.url("a")})
    for name in names:
        await lab.calm()
        await lab.server("a").add_learner(lab.url(name))
        there = ["a", *names[: names.index(name)]]
        await lab.start(name, "existing", {name: lab.url(name)} | {f"x{other}": lab.url(other) for other in there})
        await lab.server("a").promote(await tell.id_of(name))
    await lab.calm()
    lab.told.clear()
    return tell


async def a_learner_joins(lab: Lab) -> None:
    tell = Teller(lab)
    await tell.starts("a", "new", a="a")
    await tell.lists("a")
    await lab.calm()
    await tell.asks("add b", lab.server("a").add_learner(lab.url("b")))
    await tell.asks("add b again", lab.server("a").add_learner(lab.url("b")))
    await tell.asks("add c", lab.server("a").add_learner(lab.url("c")))
    await tell.asks("promote b", lab.server("a").promote(await tell.id_of("b")))
    await tell.lists("a")
    await tell.starts("b", xa="a", xb="b")
    await tell.starts("b", b="b")
    await tell.starts("b", b="b", xa="c")
    await tell.starts("b", b="b", xa="a", xc="c")
    await tell.starts("b", "new", b="c")
    await tell.starts("b", b="b", xa="a")
    await tell.lists("a")
    await tell.lists("b")
    await tell.asks("who leads, asks b", _led(lab, "b"))
    await tell.asks("remove b, says b", lab.server("b").remove(await tell.id_of("b")))
    await tell.asks("promote b", lab.server("a").promote(await tell.id_of("b")))
    await tell.asks("promote b again", lab.server("a").promote(await tell.id_of("b")))
    await tell.lists("b")
    await tell.asks("promote nobody", lab.server("a").promote(1))
    await tell.asks("remove nobody", lab.server("a").remove(1))
    await lab.stop("b")
    await tell.starts("b", other="c")
    await tell.lists("b")


async def one_of_three_is_down(lab: Lab) -> None:
    tell = await grow(lab, "b", "c")
    await lab.stop("c")
    await tell.asks("add d", lab.server("a").add_learner(lab.url("d")))
    await tell.asks("remove b", lab.server("a").remove(await tell.id_of("b")))
    await tell.asks("move the leadership to c", lab.server("a").move_leader(await tell.id_of("c")))
    await tell.asks("remove c", lab.server("a").remove(await tell.id_of("c")))
    await tell.lists("b")
    await tell.starts("c", any="a")
    await tell.asks("move the leadership, says b", lab.server("b").move_leader(await tell.id_of("a")))
    await tell.asks("move the leadership", lab.server("a").move_leader(await tell.id_of("b")))
    await tell.asks("who leads, asks a", _led(lab, "a"))
    await tell.asks("remove a", lab.server("b").remove(await tell.id_of("a")))
    lab.told.append(f"a: {await lab.ended('a') or 'it runs'}")
    await tell.lists("b")
    await tell.asks("remove b, the last", lab.server("b").remove(await tell.id_of("b", by="b")))
    await tell.asks("disarm nothing", lab.server("b").disarm(Alarm(1, "NOSPACE")))


async def the_quorum_is_lost(lab: Lab) -> None:
    tell = await grow(lab, "b")
    known = await tell.id_of("b")
    await lab.wipe("b")
    await tell.starts("b", other="a")
    await tell.lists("a")
    await tell.asks("who leads, asks a", _led(lab, "a"))
    await tell.asks("remove b", lab.server("a").remove(known))
    remembered = (await lab.server("a").remembered_members()).members
    lab.told.append(f"a remembers {len(remembered)} members")
    await lab.stop("a")
    await tell.starts("a", other="a")
    await tell.asks("status", lab.server("a").status())
    await tell.asks("progress", lab.server("a").progress())


async def the_seed_begins_again(lab: Lab) -> None:
    """Why `new` must be rendered but once."""
    tell = Teller(lab)
    await tell.starts("a", "new", a="a")
    before = await lab.server("a").members()
    await lab.wipe("a")
    await tell.starts("a", "new", a="a")
    after = await lab.server("a").members()
    lab.told.append("the ids are the same" if before == after else "the ids are others")


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (a_learner_joins, one_of_three_is_down, the_quorum_is_lost, the_seed_begins_again)
}
