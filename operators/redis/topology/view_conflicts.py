"""Who says what of whom, though it is not so: while that lasts, nothing dangerous is done. Pure.

Gossip evens most of it out within a second or two, so that a step only waits; what stays is for a person, who reads
these sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from operators.redis.slots.hash_slots import Slots
from operators.redis.topology.merged_view import MergedView, Seen

Kind = Literal["split", "minority", "claims", "slots", "role", "absence", "address", "link"]

MAX_LISTED_ITEMS = 3
"""Names, sentences or ranges that are listed; of more, only how many more."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One thing on which nodes do not agree.

    Attributes:
        kind: what about: who is of the cluster, who speaks for it, slots, roles, who is there, where, connections.
        who: ids of those who say so.
        about: ids of those of whom they say it.
        sentence: for people.
    """

    kind: Kind
    reporters: tuple[str, ...]
    about: tuple[str, ...]
    sentence: str


def summary(found: Sequence[Disagreement]) -> str:
    """All of it as one text; empty if there is none."""
    sentences = [each.sentence for each in found]
    more = len(sentences) - MAX_LISTED_ITEMS
    return " ".join(sentences[:MAX_LISTED_ITEMS]) + (f" And {more} more of the kind." if more > 0 else "")


def all_of(view: MergedView) -> Iterator[Disagreement]:
    """All that there is, the gravest first."""
    yield from _split(view)
    yield from _minority(view)
    yield from _claims(view)
    yield from _absences(view)
    yield from _slots(view)
    yield from _roles(view)
    yield from _addresses(view)
    yield from _links(view)


def names(nodes: Iterable[Seen]) -> str:
    """Nodes as people know them: `demo-0, demo-1 and demo-2`."""
    called = sorted(seen.name for seen in nodes)
    if len(called) > MAX_LISTED_ITEMS + 1:
        called[MAX_LISTED_ITEMS:] = [f"{len(called) - MAX_LISTED_ITEMS} others"]
    return " and ".join([", ".join(called[:-1]), called[-1]] if len(called) > 1 else called)


def brief(slots: Slots) -> str:
    """Slots as people read them: `slot 7`, `slots 0-5460`, `slots 1 3 5 and 12 more (15)`."""
    runs = str(slots).split()
    more = len(slots) - len(Slots.parse(" ".join(runs[:MAX_LISTED_ITEMS])))
    return (
        ("slots " if len(slots) > 1 else "slot ")
        + " ".join(runs[:MAX_LISTED_ITEMS])
        + (f" and {more} more" if more else "")
    )


def _split(view: MergedView) -> Iterator[Disagreement]:
    """Nodes with slots that have nothing to do with the rest."""
    for members in view.components[1:]:
        apart = [view.nodes[node_id] for node_id in sorted(members)]
        slots = Slots.union(seen.line.slots for seen in apart if seen.answers)
        if slots:
            own, know = _has(apart, "owns", "own"), _has(apart, "knows", "know")
            text = f"{names(apart)} {own} {brief(slots)} and {know} nothing of {names(view.reachable_nodes)}."
            yield Disagreement("split", tuple(sorted(members)), tuple(sorted(view.cluster)), text)


def _minority(view: MergedView) -> Iterator[Disagreement]:
    """What fewer than a majority of masters say may long be otherwise: they cannot know what the others agreed on."""
    answering = [seen for seen in view.primaries if seen.answers]
    if view.primaries and len(answering) < view.majority:
        unreachable = [seen for seen in view.primaries if not seen.answers]
        some = f"Only {len(answering)} of {len(view.primaries)} masters answer, not {names(unreachable)}"
        text = f"{some}: {view.majority} must, to speak for the cluster."
        yield Disagreement("minority", _ids(answering), _ids(unreachable), text)


def _claims(view: MergedView) -> Iterator[Disagreement]:
    """Two who call a slot their own."""
    for holder, other, slots in view.disputes():
        why = f"by configuration epoch ({holder.epoch} against {other.epoch})"
        if holder.epoch == other.epoch:
            why = f"for of the same configuration epoch ({holder.epoch}) the smaller node id takes a higher one"
        text = (
            f"{holder.name} and {other.name} both claim {brief(slots)}: {holder.name} will keep {_them(slots)}, {why}."
        )
        yield Disagreement("claims", (other.id,), (holder.id,), text)


def _absences(view: MergedView) -> Iterator[Disagreement]:
    """Members that some nodes count as present, and others do not."""
    for seen in view.members:
        entries = [
            (reporter, seen.entries.get(reporter.id)) for reporter in view.reachable_nodes if reporter.id != seen.id
        ]
        if seen.answers:
            yield from _wrongly_failed(seen, [reporter for reporter, node in entries if node and node.failing])
        else:
            present = [reporter for reporter, node in entries if node and not (node.failing or node.noaddr)]
            yield from _wrongly_present(seen, present)
        # While a node is forgotten, one by one, most find it lost and some do not know it: that is no conflict.
        if seen.answers or not seen.lost:
            unaware = [reporter for reporter, node in entries if not node or (node.noaddr and not node.failing)]
            yield from _unknown(seen, unaware)


def _wrongly_failed(seen: Seen, reporters: Sequence[Seen]) -> Iterator[Disagreement]:
    if reporters:
        text = f"{names(reporters)} {_has(reporters, 'says', 'say')} that {seen.name} has failed, yet it answers."
        yield Disagreement("absence", _ids(reporters), (seen.id,), text)


def _wrongly_present(seen: Seen, reporters: Sequence[Seen]) -> Iterator[Disagreement]:
    if reporters:
        say = f"{names(reporters)} {_has(reporters, 'does', 'do')} not say that it has failed"
        yield Disagreement("absence", _ids(reporters), (seen.id,), f"{seen.name} does not answer, yet {say}.")


def _unknown(seen: Seen, reporters: Sequence[Seen]) -> Iterator[Disagreement]:
    if reporters:
        text = f"{names(reporters)} {_has(reporters, 'does', 'do')} not know {seen.name}, or where it is."
        yield Disagreement("absence", _ids(reporters), (seen.id,), text)


def _slots(view: MergedView) -> Iterator[Disagreement]:
    """Nodes that report a wrong owner of another node's slots; what a node claims for itself is in `_claims`."""
    found: dict[tuple[str, str, Slots], list[Seen]] = {}
    for reporter in view.reachable_nodes:
        for wrong in _wrong_owners(view, reporter):
            found.setdefault(wrong, []).append(reporter)
    for (node_id, owner, slots), reporters in sorted(found.items(), key=lambda each: (*each[0][:2], each[0][2].mask)):
        belief, verb = f"no owner of {brief(slots)}", _has(reporters, "knows", "know")
        if node_id:
            belief, verb = f"that {brief(slots)} {_are(slots)} {view.name(node_id)}'s", _has(reporters, "says", "say")
        text = f"{names(reporters)} {verb} {belief}; {_they(slots)} {view.name(owner)}'s."
        yield Disagreement("slots", _ids(reporters), tuple(filter(None, (node_id, owner))), text)


def _wrong_owners(view: MergedView, reporter: Seen) -> Iterator[tuple[str, str, Slots]]:
    """What one node reports wrongly: the owner (empty for none), the true owner, and which slots."""
    believed = {seen.id: seen.entries[reporter.id].slots for seen in view.members if reporter.id in seen.entries}
    ignored = Slots.union(view.owned.values()) - Slots.union(believed.values())
    beliefs = {"": ignored} | {node_id: slots for node_id, slots in believed.items() if node_id != reporter.id}
    for node_id, slots in beliefs.items():
        if wrong := slots - view.slots_of(node_id):
            for owner, owned in view.owned.items():
                if mistaken := wrong & owned:
                    yield node_id, owner, mistaken


def _roles(view: MergedView) -> Iterator[Disagreement]:
    """Who takes a master for a replica, or a replica for another's.

    Only of those that answer: nodes hear of a role from its bearer alone, so of one who is gone they may
    differ for ever.
    """
    for seen in view.reachable_nodes:
        found: dict[str, list[Seen]] = {}
        for reporter in view.reachable_nodes:
            node = seen.entries.get(reporter.id)
            if node is not None and reporter.id != seen.id and node.primary != seen.primary:
                found.setdefault(node.primary, []).append(reporter)
        for primary, reporters in sorted(found.items()):
            believe = f"{_has(reporters, 'takes', 'take')} {seen.name} for {_role(view, primary)}"
            text = f"{names(reporters)} {believe}; it is {_role(view, seen.primary)}."
            yield Disagreement("role", _ids(reporters), (seen.id,), text)


def _addresses(view: MergedView) -> Iterator[Disagreement]:
    """Who looks for a node where it no longer is: addresses of pods change, and gossip spreads the old one, too."""
    for seen in view.reachable_nodes:
        found: dict[str, list[Seen]] = {}
        for reporter, node in seen.others.items():
            if node.address and seen.line.address and node.address != seen.line.address:
                found.setdefault(node.address, []).append(view.nodes[reporter])
        for address, reporters in sorted(found.items()):
            text = f"{names(reporters)} {_has(reporters, 'looks', 'look')} for {seen.name} at {address}; it is at {seen.line.address}."
            yield Disagreement("address", _ids(reporters), (seen.id,), text)


def _links(view: MergedView) -> Iterator[Disagreement]:
    """Nodes that both answer the operator, and not each other."""
    for seen in view.reachable_nodes:
        thought_there = {
            reporters: node for reporters, node in seen.others.items() if not (node.failing or node.noaddr)
        }
        reporters = [
            view.nodes[reporters] for reporters, node in thought_there.items() if node.suspected or not node.linked
        ]
        if reporters:
            text = f"{names(reporters)} {_has(reporters, 'has', 'have')} no connection to {seen.name}."
            yield Disagreement("link", _ids(reporters), (seen.id,), text)


def _role(view: MergedView, primary: str) -> str:
    return f"a replica of {view.name(primary)}" if primary else "a master"


def _ids(nodes: Iterable[Seen]) -> tuple[str, ...]:
    return tuple(seen.id for seen in nodes)


def _has(reporters: Sequence[object], one: str, many: str) -> str:
    return one if len(reporters) == 1 else many


def _are(slots: Slots) -> str:
    return "is" if len(slots) == 1 else "are"


def _they(slots: Slots) -> str:
    return "it is" if len(slots) == 1 else "they are"


def _them(slots: Slots) -> str:
    return "it" if len(slots) == 1 else "them"
