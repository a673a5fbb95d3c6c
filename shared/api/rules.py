"""Rules that several kinds have, each for the API server and for the reconcile alike."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from shared.api.spec import Rule, Transition

_SET_NAME = r"^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$"
"""A StatefulSet's pods bear its name and a hash of 10 characters in one label, and a label has 63 at most."""

NAMES_A_SET = Rule(
    f"self.metadata.name.matches({json.dumps(_SET_NAME)})",
    lambda resource: re.fullmatch(_SET_NAME, resource.name) is not None,
    "metadata.name names the StatefulSet and Services too: at most 52 lower-case letters, digits and '-', "
    "starting with a letter and ending with a letter or digit. Rename it.",
)
"""Over a whole resource: its name is one that a StatefulSet and Services may have."""

ISSUER_RULES = (
    Rule(
        "self.mode != 'certManager' || has(self.issuer)",
        lambda tls: tls.mode != "certManager" or tls.issuer is not None,
        "is missing: cert-manager signs by an issuer; give its name.",
        at="issuer",
    ),
    Rule(
        "self.mode == 'certManager' || !has(self.issuer)",
        lambda tls: tls.mode == "certManager" or tls.issuer is None,
        "only mode certManager asks an issuer; remove it, or make the mode certManager.",
        at="issuer",
    ),
)
"""Over spec.tls with its fields mode and issuer: the issuer is given where it is asked, and only there."""


def not_ours(field: str, prefix: str) -> Rule:
    """No key of a map begins as those that the operator sets itself."""
    return Rule(
        f"!has(self.{field}) || !self.{field}.exists(key, key.startsWith('{prefix}'))",
        lambda model: not any(key.startswith(prefix) for key in getattr(model, field)),
        f"keys that begin with {prefix} are the operator's; remove them.",
        at=field,
    )


def stays(field: str, cel: str, read: Callable[[Any], object], why: str) -> Transition:
    """A field is what it was.

    Args:
        cel: its value in CEL over `self`, which is always there.
        read: the same in Python.
        why: what keeps it so, and what to do instead.
    """
    former = cel.replace("self.", "oldSelf.")
    return Transition(
        f"{cel} == {former}",
        lambda model, before: read(model) == read(before),
        f"stays {{}}, as it was created: {why}",
        at=field,
        value=(former, lambda _, before: read(before)),
    )
