"""Conformance sessions that run on a real etcd and on `FakeEtcd`: the simulation must match the recorded transcript.

A session is a coroutine that starts, stops and queries members, and writes the outcome of each step to a transcript.
The transcripts of etcd 3.6.16 are in `tests/recorded/etcd.json`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from operators.etcd.client.errors import EtcdError
from operators.etcd.client.server import Alarm, Member, Server

Session = Callable[["Lab"], Awaitable[None]]


class Lab(Protocol):
    """Environment in which a session starts members.

    Attributes:
        transcript: outcomes of the session so far.
    """

    transcript: list[str]

    def url(self, name: str) -> str:
        """Return the peer URL of a member."""

    async def start(self, name: str, state: str, initial: dict[str, str]) -> str:
        """Start a member on its disk, which is empty at first, and wait; return its exit message, empty if it runs.

        Args:
            initial: peer URLs by member name, for --initial-cluster.
        """

    async def stop(self, name: str) -> None: ...

    async def wipe(self, name: str) -> None:
        """Stop a member and delete its disk."""

    async def exited(self, name: str) -> str:
        """Wait until a member exits by itself; return its exit message, empty if it still runs."""

    async def calm(self) -> None:
        """Wait until etcd considers connected members healthy."""

    def server(self, name: str) -> Server: ...


async def _role(lab: Lab, name: str) -> str:
    status = await lab.server(name).status()
    return "leads" if status.leader == status.member_id else "follows" if status.leader else "knows no leader"


class Recorder:
    """Writes the outcome of each step to the transcript."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._names: dict[int, str] = {}

    async def start(self, name: str, state: str = "existing", **initial: str) -> None:
        listed = {key.replace("_", "-"): self.lab.url(of) for key, of in initial.items()}
        exited = await self.lab.start(name, state, listed)
        self.lab.transcript.append(f"{name} starts: {exited or 'it runs'}")

    async def request(self, title: str, call: Awaitable[Any]) -> Any:
        try:
            answer = await call
        except EtcdError as error:
            self.lab.transcript.append(f"{title}: {type(error).__name__}")
            return None
        outcome = answer if isinstance(answer, str) else "done"
        self.lab.transcript.append(f"{title}: {outcome}")
        return answer

    async def list_members(self, name: str) -> None:
        async def members() -> str:
            found = (await self.lab.server(name).members()).members
            return ", ".join(sorted(map(self._describe, found)))

        await self.request(f"{name} lists", members())

    def _describe(self, member: Member) -> str:
        names_by_url = {self.lab.url(name): name for name in "abcd"}
        return (
            f"{names_by_url[member.peer_urls[0]]}{'' if member.name else ' not started'}{' learner' * member.learner}"
        )

    async def id_of(self, name: str, *, by: str = "a") -> int:
        found = (await self.lab.server(by).members()).members
        return next(member.id for member in found if member.peer_urls == (self.lab.url(name),))


async def grow(lab: Lab, *names: str) -> Recorder:
    """Start a cluster of `a` and other members, all voters."""
    recorder = Recorder(lab)
    await lab.start("a", "new", {"a": lab.url("a")})
    for name in names:
        await lab.calm()
        await lab.server("a").add_learner(lab.url(name))
        existing = ["a", *names[: names.index(name)]]
        await lab.start(name, "existing", {name: lab.url(name)} | {f"x{other}": lab.url(other) for other in existing})
        await lab.server("a").promote(await recorder.id_of(name))
    await lab.calm()
    lab.transcript.clear()
    return recorder


async def learner_joins(lab: Lab) -> None:
    recorder = Recorder(lab)
    await recorder.start("a", "new", a="a")
    await recorder.list_members("a")
    await lab.calm()
    await recorder.request("add b", lab.server("a").add_learner(lab.url("b")))
    await recorder.request("add b again", lab.server("a").add_learner(lab.url("b")))
    await recorder.request("add c", lab.server("a").add_learner(lab.url("c")))
    await recorder.request("promote b", lab.server("a").promote(await recorder.id_of("b")))
    await recorder.list_members("a")
    await recorder.start("b", xa="a", xb="b")
    await recorder.start("b", b="b")
    await recorder.start("b", b="b", xa="c")
    await recorder.start("b", b="b", xa="a", xc="c")
    await recorder.start("b", "new", b="c")
    await recorder.start("b", b="b", xa="a")
    await recorder.list_members("a")
    await recorder.list_members("b")
    await recorder.request("role of b", _role(lab, "b"))
    await recorder.request("remove b via b", lab.server("b").remove(await recorder.id_of("b")))
    await recorder.request("promote b", lab.server("a").promote(await recorder.id_of("b")))
    await recorder.request("promote b again", lab.server("a").promote(await recorder.id_of("b")))
    await recorder.list_members("b")
    await recorder.request("promote an unknown member", lab.server("a").promote(1))
    await recorder.request("remove an unknown member", lab.server("a").remove(1))
    await lab.stop("b")
    await recorder.start("b", other="c")
    await recorder.list_members("b")


async def one_of_three_members_is_down(lab: Lab) -> None:
    recorder = await grow(lab, "b", "c")
    await lab.stop("c")
    await recorder.request("add d", lab.server("a").add_learner(lab.url("d")))
    await recorder.request("remove b", lab.server("a").remove(await recorder.id_of("b")))
    await recorder.request("move the leadership to c", lab.server("a").move_leader(await recorder.id_of("c")))
    await recorder.request("remove c", lab.server("a").remove(await recorder.id_of("c")))
    await recorder.list_members("b")
    await recorder.start("c", any="a")
    await recorder.request("move the leadership via b", lab.server("b").move_leader(await recorder.id_of("a")))
    await recorder.request("move the leadership", lab.server("a").move_leader(await recorder.id_of("b")))
    await recorder.request("role of a", _role(lab, "a"))
    await recorder.request("remove a", lab.server("b").remove(await recorder.id_of("a")))
    lab.transcript.append(f"a: {await lab.exited('a') or 'it runs'}")
    await recorder.list_members("b")
    await recorder.request("remove b, the last", lab.server("b").remove(await recorder.id_of("b", by="b")))
    await recorder.request("disarm nothing", lab.server("b").disarm(Alarm(1, "NOSPACE")))


async def quorum_is_lost(lab: Lab) -> None:
    recorder = await grow(lab, "b")
    known = await recorder.id_of("b")
    await lab.wipe("b")
    await recorder.start("b", other="a")
    await recorder.list_members("a")
    await recorder.request("role of a", _role(lab, "a"))
    await recorder.request("remove b", lab.server("a").remove(known))
    remembered = (await lab.server("a").remembered_members()).members
    lab.transcript.append(f"a remembers {len(remembered)} members")
    await lab.stop("a")
    await recorder.start("a", other="a")
    await recorder.request("status", lab.server("a").status())
    await recorder.request("progress", lab.server("a").progress())


async def seed_bootstraps_again(lab: Lab) -> None:
    """Show why `new` must be rendered only once."""
    recorder = Recorder(lab)
    await recorder.start("a", "new", a="a")
    before = await lab.server("a").members()
    await lab.wipe("a")
    await recorder.start("a", "new", a="a")
    after = await lab.server("a").members()
    lab.transcript.append("the ids are the same" if before == after else "the ids differ")


SESSIONS: dict[str, Session] = {
    session.__name__: session
    for session in (learner_joins, one_of_three_members_is_down, quorum_is_lost, seed_bootstraps_again)
}
