"""Who says what of whom, though it is not so: while that lasts, nothing dangerous is done. Pure.

Gossip evens most of it out within a second or two, so that a step only waits; what stays is for a person, who reads
these sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from operators.redis.slots.hash_slots import Slots
from operators.redis.topology.merged_view import Gossip, Seen

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
    who: tuple[str, ...]
    about: tuple[str, ...]
    sentence: str


def told(found: Sequence[Disagreement]) -> str:
    """All of it as one text; empty if there is none."""
    sentences = [each.sentence for each in found]
    more = len(sentences) - MAX_LISTED_ITEMS
    return " ".join(sentences[:MAX_LISTED_ITEMS]) + (f" And {more} more of the kind." if more > 0 else "")


def all_of(gossip: Gossip) -> Iterator[Disagreement]:
    """All that there is, the gravest first."""
    yield from _split(gossip)
    yield from _minority(gossip)
    yield from _claims(gossip)
    yield from _absences(gossip)
    yield from _slots(gossip)
    yield from _roles(gossip)
    yield from _addresses(gossip)
    yield from _links(gossip)


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


def _split(gossip: Gossip) -> Iterator[Disagreement]:
    """Nodes with slots that have nothing to do with the rest."""
    for members in gossip.components[1:]:
        apart = [gossip.nodes[node_id] for node_id in sorted(members)]
        slots = Slots.union(seen.line.slots for seen in apart if seen.answers)
        if slots:
            own, know = _has(apart, "owns", "own"), _has(apart, "knows", "know")
            text = f"{names(apart)} {own} {brief(slots)} and {know} nothing of {names(gossip.reachable_nodes)}."
            yield Disagreement("split", tuple(sorted(members)), tuple(sorted(gossip.cluster)), text)


def _minority(gossip: Gossip) -> Iterator[Disagreement]:
    """What fewer than a majority of masters say may long be otherwise: they cannot know what the others agreed on."""
    answering = [seen for seen in gossip.masters if seen.answers]
    if gossip.masters and len(answering) < gossip.majority:
        silent = [seen for seen in gossip.masters if not seen.answers]
        some = f"Only {len(answering)} of {len(gossip.masters)} masters answer, not {names(silent)}"
        text = f"{some}: {gossip.majority} must, to speak for the cluster."
        yield Disagreement("minority", _ids(answering), _ids(silent), text)


def _claims(gossip: Gossip) -> Iterator[Disagreement]:
    """Two who call a slot their own."""
    for holder, other, slots in gossip.disputes():
        why = f"by configuration epoch ({holder.epoch} against {other.epoch})"
        if holder.epoch == other.epoch:
            why = f"for of the same configuration epoch ({holder.epoch}) the smaller node id takes a higher one"
        text = (
            f"{holder.name} and {other.name} both claim {brief(slots)}: {holder.name} will keep {_them(slots)}, {why}."
        )
        yield Disagreement("claims", (other.id,), (holder.id,), text)


def _absences(gossip: Gossip) -> Iterator[Disagreement]:
    """Members that some nodes count as present, and others do not."""
    for seen in gossip.members:
        told = [(voice, seen.told.get(voice.id)) for voice in gossip.reachable_nodes if voice.id != seen.id]
        if seen.answers:
            yield from _wrongly_failed(seen, [voice for voice, node in told if node and node.failing])
        else:
            present = [voice for voice, node in told if node and not (node.failing or node.noaddr)]
            yield from _wrongly_present(seen, present)
        # While a node is forgotten, one by one, most find it lost and some do not know it: that is no conflict.
        if seen.answers or not seen.lost:
            unaware = [voice for voice, node in told if not node or (node.noaddr and not node.failing)]
            yield from _unknown(seen, unaware)


def _wrongly_failed(seen: Seen, who: Sequence[Seen]) -> Iterator[Disagreement]:
    if who:
        text = f"{names(who)} {_has(who, 'says', 'say')} that {seen.name} has failed, yet it answers."
        yield Disagreement("absence", _ids(who), (seen.id,), text)


def _wrongly_present(seen: Seen, who: Sequence[Seen]) -> Iterator[Disagreement]:
    if who:
        say = f"{names(who)} {_has(who, 'does', 'do')} not say that it has failed"
        yield Disagreement("absence", _ids(who), (seen.id,), f"{seen.name} does not answer, yet {say}.")


def _unknown(seen: Seen, who: Sequence[Seen]) -> Iterator[Disagreement]:
    if who:
        text = f"{names(who)} {_has(who, 'does', 'do')} not know {seen.name}, or where it is."
        yield Disagreement("absence", _ids(who), (seen.id,), text)


def _slots(gossip: Gossip) -> Iterator[Disagreement]:
    """Nodes that report a wrong owner of another node's slots; what a node claims for itself is in `_claims`."""
    found: dict[tuple[str, str, Slots], list[Seen]] = {}
    for voice in gossip.reachable_nodes:
        for wrong in _wrong_owners(gossip, voice):
            found.setdefault(wrong, []).append(voice)
    for (node_id, owner, slots), who in sorted(found.items(), key=lambda each: (*each[0][:2], each[0][2].mask)):
        belief, verb = f"no owner of {brief(slots)}", _has(who, "knows", "know")
        if node_id:
            belief, verb = f"that {brief(slots)} {_are(slots)} {gossip.name(node_id)}'s", _has(who, "says", "say")
        text = f"{names(who)} {verb} {belief}; {_they(slots)} {gossip.name(owner)}'s."
        yield Disagreement("slots", _ids(who), tuple(filter(None, (node_id, owner))), text)


def _wrong_owners(gossip: Gossip, voice: Seen) -> Iterator[tuple[str, str, Slots]]:
    """What one node reports wrongly: the owner (empty for none), the true owner, and which slots."""
    believed = {seen.id: seen.told[voice.id].slots for seen in gossip.members if voice.id in seen.told}
    ignored = Slots.union(gossip.owned.values()) - Slots.union(believed.values())
    beliefs = {"": ignored} | {node_id: slots for node_id, slots in believed.items() if node_id != voice.id}
    for node_id, slots in beliefs.items():
        if wrong := slots - gossip.slots_of(node_id):
            for owner, owned in gossip.owned.items():
                if mistaken := wrong & owned:
                    yield node_id, owner, mistaken


def _roles(gossip: Gossip) -> Iterator[Disagreement]:
    """Who takes a master for a replica, or a replica for another's.

    Only of those that answer: nodes hear of a role from its bearer alone, so of one who is gone they may
    differ for ever.
    """
    for seen in gossip.reachable_nodes:
        found: dict[str, list[Seen]] = {}
        for voice in gossip.reachable_nodes:
            node = seen.told.get(voice.id)
            if node is not None and voice.id != seen.id and node.master != seen.master:
                found.setdefault(node.master, []).append(voice)
        for master, who in sorted(found.items()):
            believe = f"{_has(who, 'takes', 'take')} {seen.name} for {_role(gossip, master)}"
            text = f"{names(who)} {believe}; it is {_role(gossip, seen.master)}."
            yield Disagreement("role", _ids(who), (seen.id,), text)


def _addresses(gossip: Gossip) -> Iterator[Disagreement]:
    """Who looks for a node where it no longer is: addresses of pods change, and gossip spreads the old one, too."""
    for seen in gossip.reachable_nodes:
        found: dict[str, list[Seen]] = {}
        for reporter, node in seen.others.items():
            if node.address and seen.line.address and node.address != seen.line.address:
                found.setdefault(node.address, []).append(gossip.nodes[reporter])
        for address, who in sorted(found.items()):
            text = (
                f"{names(who)} {_has(who, 'looks', 'look')} for {seen.name} at {address}; it is at {seen.line.address}."
            )
            yield Disagreement("address", _ids(who), (seen.id,), text)


def _links(gossip: Gossip) -> Iterator[Disagreement]:
    """Nodes that both answer the operator, and not each other."""
    for seen in gossip.reachable_nodes:
        thought_there = {who: node for who, node in seen.others.items() if not (node.failing or node.noaddr)}
        who = [gossip.nodes[who] for who, node in thought_there.items() if node.suspected or not node.linked]
        if who:
            text = f"{names(who)} {_has(who, 'has', 'have')} no connection to {seen.name}."
            yield Disagreement("link", _ids(who), (seen.id,), text)


def _role(gossip: Gossip, master: str) -> str:
    return f"a replica of {gossip.name(master)}" if master else "a master"


def _ids(nodes: Iterable[Seen]) -> tuple[str, ...]:
    return tuple(seen.id for seen in nodes)


def _has(who: Sequence[object], one: str, many: str) -> str:
    return one if len(who) == 1 else many


def _are(slots: Slots) -> str:
    return "is" if len(slots) == 1 else "are"


def _they(slots: Slots) -> str:
    return "it is" if len(slots) == 1 else "they are"


def _them(slots: Slots) -> str:
    return "it" if len(slots) == 1 else "them"
