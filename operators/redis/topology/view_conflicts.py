"""Conflicts between the reports of nodes: while any exist, no dangerous step runs. Pure.

Gossip resolves most of them within a second or two, so that steps only wait; the remaining ones are reported to the
user in these sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from operators.redis.client.responses import Node
from operators.redis.slots.hash_slots import Slots
from operators.redis.topology.merged_view import MergedView, Seen

Kind = Literal["split", "minority", "claims", "slots", "role", "absence", "address", "link"]

MAX_LISTED_ITEMS = 3
"""Maximum number of names, sentences or ranges in a message; of the others, only the number is given."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One conflict between the reports of nodes.

    Attributes:
        kind: subject: membership, majority, slots, roles, presence, addresses or connections.
        reporters: ids of the nodes with the wrong view.
        about: ids of the nodes that it concerns.
        sentence: description for the user.
    """

    kind: Kind
    reporters: tuple[str, ...]
    about: tuple[str, ...]
    sentence: str


def summary(found: Sequence[Disagreement]) -> str:
    """Return all conflicts as one text; empty if there is none."""
    sentences = [each.sentence for each in found]
    more = len(sentences) - MAX_LISTED_ITEMS
    return " ".join(sentences[:MAX_LISTED_ITEMS]) + (f" And {more} more." if more > 0 else "")


def all_of(view: MergedView) -> Iterator[Disagreement]:
    """Yield all conflicts, the most severe first."""
    yield from _split(view)
    yield from _minority(view)
    yield from _claims(view)
    yield from _absences(view)
    yield from _slots(view)
    yield from _roles(view)
    yield from _addresses(view)
    yield from _links(view)


def names(nodes: Iterable[Seen]) -> str:
    """Return a list of names: `demo-0, demo-1 and demo-2`."""
    listed = sorted(seen.name for seen in nodes)
    if len(listed) > MAX_LISTED_ITEMS + 1:
        listed[MAX_LISTED_ITEMS:] = [f"{len(listed) - MAX_LISTED_ITEMS} others"]
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def brief(slots: Slots) -> str:
    """Return a short list of slots: `slot 7`, `slots 0-5460`, `slots 1 3 5 and 12 more (15)`."""
    runs = str(slots).split()
    more = len(slots) - len(Slots.parse(" ".join(runs[:MAX_LISTED_ITEMS])))
    return (
        ("slots " if len(slots) > 1 else "slot ")
        + " ".join(runs[:MAX_LISTED_ITEMS])
        + (f" and {more} more" if more else "")
    )


def _split(view: MergedView) -> Iterator[Disagreement]:
    """Yield groups of nodes with slots that have no connection to the cluster."""
    for members in view.components[1:]:
        apart = [view.nodes[node_id] for node_id in sorted(members)]
        slots = Slots.union(seen.line.slots for seen in apart if seen.answers)
        if slots:
            own, know = _has(apart, "owns", "own"), _has(apart, "knows", "know")
            text = f"{names(apart)} {own} {brief(slots)} but {know} nothing of {names(view.reachable_nodes)}."
            yield Disagreement("split", tuple(sorted(members)), tuple(sorted(view.cluster)), text)


def _minority(view: MergedView) -> Iterator[Disagreement]:
    """Yield a conflict if no majority of primaries is reachable: the others may have agreed on something else."""
    answering = [seen for seen in view.primaries if seen.answers]
    if view.primaries and len(answering) < view.majority:
        unreachable = [seen for seen in view.primaries if not seen.answers]
        some = f"Only {len(answering)} of {len(view.primaries)} primaries reachable (unreachable: {names(unreachable)})"
        text = f"{some}; a majority needs {view.majority}."
        yield Disagreement("minority", _ids(answering), _ids(unreachable), text)


def _claims(view: MergedView) -> Iterator[Disagreement]:
    """Yield pairs of nodes that claim the same slots."""
    for holder, other, slots in view.disputes():
        why = f"by config epoch ({holder.epoch} against {other.epoch})"
        if holder.epoch == other.epoch:
            why = f"because with the same config epoch ({holder.epoch}) the smaller node id wins"
        text = (
            f"{holder.name} and {other.name} both claim {brief(slots)}: {holder.name} will keep {_them(slots)}, {why}."
        )
        yield Disagreement("claims", (other.id,), (holder.id,), text)


def _absences(view: MergedView) -> Iterator[Disagreement]:
    """Yield members that some nodes consider present, and others not."""
    reachable = frozenset(_ids(view.reachable_nodes))
    for seen in view.members:
        if seen.answers:
            yield from _wrongly_failed(seen, _nodes(view, seen.reported_by(lambda node: node.failing)))
        else:
            present = seen.reported_by(lambda node: not (node.failing or node.noaddr))
            yield from _wrongly_present(seen, _nodes(view, present))
        # While a node is forgotten, one by one, most find it lost and some do not know it: that is no conflict.
        if seen.answers or not seen.lost:
            aware = seen.reported_by(lambda node: not node.noaddr or node.failing)
            yield from _unknown(seen, _nodes(view, reachable - aware - {seen.id}))


def _wrongly_failed(seen: Seen, reporters: Sequence[Seen]) -> Iterator[Disagreement]:
    if reporters:
        report = _has(reporters, "reports", "report")
        text = f"{names(reporters)} {report} that {seen.name} has failed, but it is reachable."
        yield Disagreement("absence", _ids(reporters), (seen.id,), text)


def _wrongly_present(seen: Seen, reporters: Sequence[Seen]) -> Iterator[Disagreement]:
    if reporters:
        present = f"{names(reporters)} {_has(reporters, 'does', 'do')} not report it as failed"
        yield Disagreement("absence", _ids(reporters), (seen.id,), f"{seen.name} is unreachable, but {present}.")


def _unknown(seen: Seen, reporters: Sequence[Seen]) -> Iterator[Disagreement]:
    if reporters:
        text = f"{names(reporters)} {_has(reporters, 'does', 'do')} not know {seen.name} or its address."
        yield Disagreement("absence", _ids(reporters), (seen.id,), text)


def _slots(view: MergedView) -> Iterator[Disagreement]:
    """Yield nodes that report a wrong owner of another node's slots; claims to slots are in `_claims`."""
    found: dict[tuple[str, str, Slots], list[Seen]] = {}
    for reporter in _nodes(view, _mistaken(view)):
        for wrong in _wrong_owners(view, reporter):
            found.setdefault(wrong, []).append(reporter)
    for (node_id, owner, slots), reporters in sorted(found.items(), key=lambda each: (*each[0][:2], each[0][2].mask)):
        reported = f"{view.name(node_id)} as the owner" if node_id else "no owner"
        claim = f"{_has(reporters, 'reports', 'report')} {reported} of {brief(slots)}"
        text = f"{names(reporters)} {claim}; the owner is {view.name(owner)}."
        yield Disagreement("slots", _ids(reporters), tuple(filter(None, (node_id, owner))), text)


def _mistaken(view: MergedView) -> frozenset[str]:
    """Return the ids of reachable nodes that report other slots of any node than it owns."""
    reachable, mistaken = frozenset(_ids(view.reachable_nodes)), frozenset[str]()
    for seen in view.members:
        owned = view.slots_of(seen.id)
        mistaken |= seen.reported_by(lambda node, owned=owned: node.slots != owned)  # type: ignore[misc]
        if seen.report is not None and seen.line.slots != owned:
            mistaken |= {seen.id}
        if owned:
            mistaken |= reachable - seen.reporters - {seen.id}
    return mistaken


def _wrong_owners(view: MergedView, reporter: Seen) -> Iterator[tuple[str, str, Slots]]:
    """Yield the wrong entries of a node: reported owner (empty for none), true owner, and slots."""
    table = reporter.report.by_id if reporter.report else {}
    reported = {seen.id: table[seen.id].slots for seen in view.members if seen.id in table}
    ignored = Slots.union(view.owned.values()) - Slots.union(reported.values())
    owners = {"": ignored} | {node_id: slots for node_id, slots in reported.items() if node_id != reporter.id}
    for node_id, slots in owners.items():
        if wrong := slots - view.slots_of(node_id):
            for owner, owned in view.owned.items():
                if mistaken := wrong & owned:
                    yield node_id, owner, mistaken


def _roles(view: MergedView) -> Iterator[Disagreement]:
    """Yield nodes that report a wrong role or primary of another node.

    Only of reachable nodes: a node learns a role from the node itself, so entries of a removed node may differ forever.
    """
    for seen in view.reachable_nodes:
        for primary, reporters in _reported(view, seen, lambda node: node.primary, seen.primary):
            claim = f"{_has(reporters, 'reports', 'report')} {seen.name} as {_role(view, primary)}"
            text = f"{names(reporters)} {claim}; it is {_role(view, seen.primary)}."
            yield Disagreement("role", _ids(reporters), (seen.id,), text)


def _addresses(view: MergedView) -> Iterator[Disagreement]:
    """Yield nodes that have an outdated address of another node: they change, and gossip also spreads old ones."""
    for seen in (each for each in view.reachable_nodes if each.line.address):
        for address, reporters in _reported(view, seen, lambda node: node.address, seen.line.address, ""):
            known = f"{names(reporters)} {_has(reporters, 'has', 'have')} the address {address} for {seen.name}"
            text = f"{known}; it is at {seen.line.address}."
            yield Disagreement("address", _ids(reporters), (seen.id,), text)


def _reported(view: MergedView, seen: Seen, of: Callable[[Node], str], *known: str) -> Iterator[tuple[str, list[Seen]]]:
    """Yield each value that others report of a node, except the known ones, with its reporters."""
    found: dict[str, frozenset[str]] = {}
    for entry in seen.others:
        if (value := of(entry.node)) not in known:
            found[value] = found.get(value, frozenset()) | entry.reporters
    yield from ((value, _nodes(view, ids)) for value, ids in sorted(found.items()))


def _links(view: MergedView) -> Iterator[Disagreement]:
    """Yield nodes that are reachable for the operator, but not for each other."""
    for seen in view.reachable_nodes:
        cut_off = seen.reported_by(
            lambda node: not (node.failing or node.noaddr) and (node.suspected or not node.linked)
        )
        if reporters := _nodes(view, cut_off):
            text = f"{names(reporters)} {_has(reporters, 'has', 'have')} no connection to {seen.name}."
            yield Disagreement("link", _ids(reporters), (seen.id,), text)


def _role(view: MergedView, primary: str) -> str:
    return f"a replica of {view.name(primary)}" if primary else "a primary"


def _nodes(view: MergedView, ids: Iterable[str]) -> list[Seen]:
    return [view.nodes[node_id] for node_id in sorted(ids)]


def _ids(nodes: Iterable[Seen]) -> tuple[str, ...]:
    return tuple(seen.id for seen in nodes)


def _has(reporters: Sequence[object], one: str, many: str) -> str:
    return one if len(reporters) == 1 else many


def _them(slots: Slots) -> str:
    return "it" if len(slots) == 1 else "them"
