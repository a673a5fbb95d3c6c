"""Command line and environment of an operator; a flag takes precedence over its environment variable."""

from __future__ import annotations

import argparse
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.kubernetes.client import SERVICE_ACCOUNT
from shared.kubernetes.encoding import decode
from shared.kubernetes.kinds import Obj
from shared.observability import logs
from shared.runtime.options import Flag, Options
from shared.runtime.shards import MAX_SHARDS

MIN_CERTIFICATE_LIFETIME_SECONDS = 20
"""Minimum lifetime of a certificate in seconds: issuing and loading the next one takes a few on a busy machine."""


def parse_options(
    operator: str,
    image_repository: str,
    arguments: Sequence[str] | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    flags: Sequence[Flag[Any]] = (),
) -> Options:
    """Parse flags and environment.

    Args:
        operator: default name of the operator, such as `memcached-operator`.
        image_repository: default image repository of the operand.
        arguments: command line without the program; None uses that of the process.
        flags: flags of this operator only.

    Raises:
        SystemExit: a flag or a variable is invalid; the message names it and the accepted values.
    """
    parser = _parser(operator, image_repository, environment, flags)
    given = vars(parser.parse_args(arguments))
    options = Options(own={flag.key: given.pop(flag.key) for flag in flags}, **given)
    if wrong := _contradiction(options):
        parser.error(wrong)
    return options


def _contradiction(options: Options) -> str | None:
    """Return an error if flags contradict each other."""
    if options.renew_deadline >= options.lease_duration:
        return (
            f"--leader-elect-renew-deadline {options.renew_deadline:g} must be below --leader-elect-lease-duration "
            f"{options.lease_duration}: a leader must stop before another starts. Lower the first, or raise the second."
        )
    if options.retry_period * 2 > options.renew_deadline:
        return (
            f"--leader-elect-retry-period {options.retry_period:g} must be at most half of "
            f"--leader-elect-renew-deadline {options.renew_deadline:g}: one failed renewal must be retried. "
            "Lower the first, or raise the second."
        )
    if options.certificate_lifetime < MIN_CERTIFICATE_LIFETIME_SECONDS:
        return (
            f"--certificate-lifetime {options.certificate_lifetime:g} is too short to rotate certificates in time. "
            f"Use at least {MIN_CERTIFICATE_LIFETIME_SECONDS}."
        )
    if options.leader_elect and not options.leader_elect_namespace:
        return "--leader-elect outside a pod requires --leader-elect-namespace, the namespace of the Lease."
    if options.shards > 1 and not options.leader_elect:
        return f"--shards {options.shards} requires --leader-elect: each shard has a leader. Add it, or use --shards 1."
    return None


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _parser(
    operator: str, image_repository: str, environment: Mapping[str, str], own: Sequence[Flag[Any]]
) -> argparse.ArgumentParser:
    known = {
        "operator": operator,
        "image_repository": image_repository,
        "namespace": _own_namespace(),
        "collector": environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
        "max_shards": MAX_SHARDS,
    }
    flags = _Flags(operator, environment)
    for group, rows in _TABLE.items():
        for flag in own if group == "observability" else ():
            flags.value(flag.name, flag.default, flag.help, type=flag.parse)
        for row in rows:
            _add(flags, **{field: of.format(**known) if isinstance(of, str) else of for field, of in row.items()})
    flags.parser.add_argument(
        "command", nargs="?", choices=("run", "crd"), default="run", help="run the operator, or print its CRDs (crd)"
    )
    return flags.parser


def _add(flags: _Flags, name: str, default: str | bool, help: str, type: str = "", **rest: Any) -> None:  # noqa: A002
    """Add the flag of a row in options.toml, which explains its fields."""
    if isinstance(default, bool):
        flags.switch(name, help, default=default)
    else:
        flags.value(name, default, " ".join(help.split()), type=_TYPES[type], **rest)


class _Flags:
    """Adds flags whose defaults come from the environment."""

    def __init__(self, operator: str, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.parser = argparse.ArgumentParser(
            prog=operator,
            description="Every flag can also be set in the environment, such as --watch-namespace as WATCH_NAMESPACE.",
            allow_abbrev=False,
        )

    def value(
        self, name: str, default: str, text: str, *, environment: bool = True, shows: str = "", **rest: Any
    ) -> None:
        given = self._environment.get(_variable(name), default) if environment else default
        shown = shows or default or "none"
        self.parser.add_argument(name, default=given, help=f"{text} (default: {shown})", **rest)

    def switch(self, name: str, text: str, *, default: bool = False) -> None:
        given = self._environment.get(_variable(name), str(default)).lower()
        if given not in _TRUTHS:
            self.parser.error(f"{_variable(name)}: {given!r} is not true or false")
        self.parser.add_argument(
            name,
            action=argparse.BooleanOptionalAction,
            default=_TRUTHS[given],
            help=f"{text} (default: {str(default).lower()})",
        )


def _variable(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_").upper()


_TRUTHS = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


def _own_namespace() -> str:
    """Return the namespace of the pod; empty outside a pod."""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return ""


# Unlike `choices=`, a type also validates values from the environment.


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def choose(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return choose


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


def seconds(text: str) -> float:
    """Parse a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def _shards(text: str) -> int:
    if _count(text) > MAX_SHARDS:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MAX_SHARDS} shards")
    return _count(text)


def _certificates(text: str) -> str:
    if text.startswith("self:") and not re.fullmatch(r"self:[^/]+/[^/]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} does not name a Secret: use self:NAMESPACE/NAME")
    return text


def _peers(text: str) -> tuple[Obj, ...]:
    form = 'use a list of peers such as [{"podSelector":{"matchLabels":{"app":"operator"}}}]'
    try:
        peers = decode(text or "[]")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON ({error}): {form}") from None
    if not isinstance(peers, list) or not all(isinstance(peer, dict) and peer for peer in peers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of peers: {form}")
    return tuple(peers)


def _url(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL: use http://host:4318 or https://host:4318")
    return text


_TYPES: Mapping[str, Callable[[str], object]] = {
    "": str,
    "names": _names,
    "seconds": seconds,
    "count": _count,
    "shards": _shards,
    "certificates": _certificates,
    "peers": _peers,
    "url": _url,
    "level": _one_of(logs.LEVELS),
    "format": _one_of(logs.FORMATS),
}
"""Functions that parse a value, by their names in options.toml."""
