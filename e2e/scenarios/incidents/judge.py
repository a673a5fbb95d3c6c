"""The oracle: plays an incident, and compares what fires and what is shown with the catalogue."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from e2e.scenarios.incidents.model import Incident, Scene, Tile
from e2e.scenarios.incidents.tiles import Shown, shown
from e2e.scenarios.observability.watch import FAST, REAL, TRUE_HERE, Watch
from e2e.scenarios.support.commands import SYSTEM, Refused, until

NEEDED_ANNOTATIONS = {"summary", "description", "dashboard_url", "runbook_url"}
BROKEN_TEMPLATE = ("<error", "<no value>", "{{")
SETTLING_SECONDS = 3
"""Seconds without an alert after which an incident is over: a scrape, an evaluation and a notification."""


@dataclass
class Outcome:
    """Alerts, conditions and tiles during an incident.

    Attributes:
        fired: seconds from the moment at which the fault is in effect until each alert fired first, by name.
        conditions: seconds until each condition had the expected value, by type.
        tiles: text and colour of each tile, by title.
        also: alerts that fired although they need not.
        pages: number of notifications that paged.
        inhibited: warnings that fired, but were not notified because the resource paged.
        quiet: seconds from its end until everything was as before.
    """

    fired: dict[str, float] = field(default_factory=dict)
    conditions: dict[str, float] = field(default_factory=dict)
    tiles: dict[str, Shown] = field(default_factory=dict)
    also: set[str] = field(default_factory=set)
    pages: int = 0
    inhibited: set[str] = field(default_factory=set)
    quiet: float = 0.0

    def line(self, incident: Incident) -> str:
        """Return a row of the table of all incidents."""

        def timed(names: dict[str, float]) -> str:
            return ", ".join(f"{name} {self.fired[name]:.0f} s" for name in names)

        parts = [f"pages: {timed(dict(incident.pages)) or 'none'}", f"warns: {timed(dict(incident.warns)) or 'none'}"]
        if self.also:
            parts.append(f"also: {', '.join(sorted(self.also))}")
        if self.inhibited:
            parts.append(f"inhibited: {', '.join(sorted(self.inhibited))}")
        if incident.conditions:
            parts.append(", ".join(f"{name}={value}" for name, value in incident.conditions.items()))
        if self.tiles:
            parts.append(", ".join(f"{title}: {what}" for title, what in self.tiles.items()))
        return f"incident {incident.name}: {'; '.join(parts)}; quiet after {self.quiet:.0f} s"


class Judge:
    """Observes one incident.

    Args:
        watch: Prometheus and Alertmanager.
        scene: the resource that the incident happens to.
        incident: the incident.
    """

    def __init__(self, watch: Watch, scene: Scene, incident: Incident) -> None:
        self.watch, self.scene, self.incident = watch, scene, incident
        self.outcome = Outcome()
        self._before: dict[Tile, str] = {}
        self._healthy: dict[str, str] = {}
        self._known = set(TRUE_HERE) - set(incident.fires)
        self._lasting = set[str]()  # at the real pace, alerts of the incident before may last for half an hour
        self._notified = 0

    def play(self) -> Outcome:
        """Play the incident.

        Raises:
            AssertionError: something differs from the catalogue; the message has all that was observed.
        """
        self._await_quiet("before the incident", seconds=120)
        self._before = {tile: self._shown(tile).colour for tile in self.incident.tiles}
        self._healthy = {name: status for name, status in self._conditions().items() if name != "Degraded"}
        same = [tile.title for tile, colour in self._before.items() if colour == tile.colour]
        assert not same, f"tiles have the colour of the incident before it: {same}"
        self._lasting = {labels["alertname"] for labels in self.watch.firing(REAL)}
        self._notified = len(self.watch.alertmanager.notifications)
        began = time.monotonic()
        with self.incident.fault(self.scene):
            self._await_expected(time.monotonic())
        ended = time.monotonic()
        self._await_quiet("after the incident", seconds=self.incident.quiet_within)
        self.outcome.quiet = time.monotonic() - ended
        self._check_alerts(time.monotonic() - began)
        return self.outcome

    def _await_expected(self, began: float) -> None:
        """Wait until everything fires and shows as expected, and until the incident has lasted long enough."""
        incident, outcome = self.incident, self.outcome
        missing = _Missing(incident)
        while missing or time.monotonic() - began < incident.lasts:
            with _tolerating():
                for alert in self.watch.prometheus.alerts():
                    labels = alert["labels"]
                    name = labels["alertname"]
                    if alert["state"] == "firing" and labels["pace"] == FAST and self._concerns(labels):
                        outcome.fired.setdefault(name, time.monotonic() - began)
                        _check_annotations(name, alert["annotations"])
            missing.alerts -= outcome.fired.keys()
            if missing.conditions:
                with _tolerating():
                    now = self._conditions(with_reasons=True)
                    for name in sorted(missing.conditions):
                        if f"{now.get(name, '')} ".startswith(f"{incident.conditions[name]} "):
                            outcome.conditions[name] = time.monotonic() - began
            missing.conditions -= outcome.conditions.keys()
            for tile in sorted(missing.tiles, key=lambda tile: tile.title):
                what = self._shown(tile)
                if what.colour == tile.colour and tile.text in ("", what.text):
                    outcome.tiles[tile.title] = what
                    missing.tiles.discard(tile)
            late = missing.late(time.monotonic() - began)
            assert not late, f"missing: {', '.join(late)}\n{self._report()}"
            time.sleep(0.5)
        slow = {name: outcome.fired[name] for name, most in incident.fires.items() if outcome.fired[name] > most}
        assert not slow, f"alerts fired too late: {slow}"

    def _check_alerts(self, seconds: float) -> None:
        """Check that nothing else fired since the beginning, with the severities and notifications of the catalogue."""
        incident, outcome = self.incident, self.outcome
        expected = {*incident.fires, *incident.may, *self._known}
        expected_at = {FAST: expected, REAL: expected | self._lasting}
        paces = (REAL,) if incident.brief else (FAST, REAL)
        fired = {pace: [each for each in self.watch.fired(seconds, pace) if self._concerns(each)] for pace in paces}
        wrong = [f"{each['alertname']} ({pace}, {_subject(each)})" for pace in paces for each in fired[pace]
                 if each["alertname"] not in expected_at[pace]]  # fmt: skip
        assert not wrong, f"alerts that must not fire: {sorted(set(wrong))}\n{self._report()}"
        severities = {each["alertname"]: each["severity"] for pace in paces for each in fired[pace]}
        assert all(severities.get(name) == "critical" for name in incident.pages), severities
        assert all(severities.get(name) == "warning" for name in incident.warns), severities
        own = {each["alertname"] for each in fired.get(FAST, ())} - self._known
        outcome.also = own - incident.fires.keys()
        if incident.brief:
            return
        sent = [each for each in self.watch.alertmanager.notifications[self._notified :] if self._concerns(each.labels)]
        paged = {each.labels["alertname"] for each in sent if each.receiver == "page" and not each.resolved}
        assert paged >= incident.pages.keys(), f"pages: {sorted(paged)}"
        assert paged <= {name for name, severity in severities.items() if severity == "critical"}, sorted(paged)
        outcome.pages = len({each.at for each in sent if each.receiver == "page" and not each.resolved})
        outcome.inhibited = own - {each.labels["alertname"] for each in sent}

    def _await_quiet(self, when: str, *, seconds: float) -> None:
        """Wait until no alert fires, and conditions and tiles are as before."""
        since = 0.0

        def quiet() -> bool:
            nonlocal since
            try:
                self._check_quiet()
            except (AssertionError, OSError, Refused):
                since = 0.0
                raise
            since = since or time.monotonic()
            return time.monotonic() - since >= SETTLING_SECONDS

        until(f"all is quiet {when}", quiet, seconds=seconds, every=0.5)

    def _check_quiet(self) -> None:
        firing = {each["alertname"] for each in self.watch.firing() if self._concerns(each)} - set(TRUE_HERE)
        assert not firing, f"firing: {sorted(firing)}"
        now = self._conditions(with_reasons=True)
        assert now.get("Ready", "").startswith("True"), now
        differing = {
            name: now.get(name) for name, status in self._healthy.items() if now.get(name, "").split()[:1] != [status]
        }
        assert not differing, differing
        degraded = now.get("Degraded", "")
        assert degraded.startswith("False") or degraded.endswith("Together"), degraded
        resources = f'platform_resource_info{{namespace="{self.scene.kubectl.namespace}"}}'
        assert self.watch.prometheus.query(resources), "the operator's metrics are missing"
        for tile, colour in self._before.items():
            assert self._shown(tile).colour == colour, f"{tile.title}: {self._shown(tile)}, before {colour}"

    def _concerns(self, labels: Mapping[str, str]) -> bool:
        """Return whether an alert is about this incident: operators are judged only by incidents that touch them."""
        namespace = labels.get("namespace", SYSTEM)
        return namespace == self.scene.kubectl.namespace or (self.incident.shared and namespace == SYSTEM)

    def _conditions(self, *, with_reasons: bool = False) -> dict[str, str]:
        """Return the conditions of the resource by type: the status, and the reason if requested."""
        return {
            each["type"]: f"{each['status']} {each['reason']}" if with_reasons else each["status"]
            for each in self.scene.resource.status.get("conditions", ())
            if "status" in each
        }

    def _shown(self, tile: Tile) -> Shown:
        of_resource = {"namespace": self.scene.kubectl.namespace, "name": self.scene.resource.name}
        return shown(self.watch.prometheus, tile, {} if tile.dashboard == "platform-operators" else of_resource)

    def _report(self) -> str:
        """Return what is observed now, for failure messages."""
        firing = sorted({each["alertname"] for each in self.watch.firing() if self._concerns(each)})
        tiles = {tile.title: str(self._shown(tile)) for tile in self.incident.tiles}
        try:
            now = str({each["type"]: f"{each['status']} {each['reason']}: {each['message']}"
                       for each in self.scene.resource.status.get("conditions", ()) if "status" in each})  # fmt: skip
        except Exception as error:
            now = f"unknown: {error}"
        seconds = {name: round(seconds, 1) for name, seconds in self.outcome.fired.items()}
        return f"fired: {seconds}\nfiring now: {firing}\nconditions: {now}\ntiles: {tiles}"


class _Missing:
    """Alerts, conditions and tiles that an incident has not shown yet."""

    def __init__(self, incident: Incident) -> None:
        self._incident = incident
        self.alerts = set(incident.fires)
        self.conditions = set(incident.conditions)
        self.tiles = set(incident.tiles)

    def __bool__(self) -> bool:
        return bool(self.alerts or self.conditions or self.tiles)

    def late(self, seconds: float) -> list[str]:
        """Return what is missing although its time is over."""
        alerts = [f"alert {name}" for name in sorted(self.alerts) if seconds > self._incident.fires[name]]
        if seconds <= self._incident.seen_within:
            return alerts
        conditions = [f"condition {name}={self._incident.conditions[name]}" for name in sorted(self.conditions)]
        return [*alerts, *conditions, *(f"tile {tile.title} {tile.colour} {tile.text}" for tile in self.tiles)]


def _subject(labels: Mapping[str, str]) -> str:
    """Return what an alert is about."""
    return " ".join(labels[label] for label in ("namespace", "name", "pod", "instance") if label in labels)


def _check_annotations(name: str, texts: dict[str, str]) -> None:
    assert texts.keys() >= NEEDED_ANNOTATIONS, f"{name}: {sorted(texts)}"
    broken = [text for text in texts.values() if any(wrong in text for wrong in BROKEN_TEMPLATE)]
    assert not broken, f"{name}: {broken}"


@contextmanager
def _tolerating() -> Iterator[None]:
    """Ignore that the API server or Prometheus does not answer: the incident may be just that."""
    with suppress(OSError, Refused):
        yield
