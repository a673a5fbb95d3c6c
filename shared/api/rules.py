"""Rules that several kinds share, for admission by the API server and for the reconcile."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from shared.api.image import FORM, is_reference
from shared.api.spec import Rule, Transition

_SET_NAME = r"^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$"
"""Pods of a StatefulSet have its name and a hash of 10 characters in one label; a label has at most 63 characters."""

NAMES_A_SET = Rule(
    f"self.metadata.name.matches({json.dumps(_SET_NAME)})",
    lambda resource: re.fullmatch(_SET_NAME, resource.name) is not None,
    "metadata.name is also the name of the StatefulSet and of Services: use at most 52 lower-case letters, digits and "
    "'-', starting with a letter and ending with a letter or digit. Rename the resource.",
)
"""Rule over a whole resource: StatefulSets and Services can have the same name."""

ISSUER_RULES = (
    Rule(
        "self.mode != 'certManager' || has(self.issuer)",
        lambda tls: tls.mode != "certManager" or tls.issuer is not None,
        "is required in mode certManager: set the name of the cert-manager issuer.",
        at="issuer",
    ),
    Rule(
        "self.mode == 'certManager' || !has(self.issuer)",
        lambda tls: tls.mode == "certManager" or tls.issuer is None,
        "is used only in mode certManager; remove it, or set mode to certManager.",
        at="issuer",
    ),
)
"""Rules over spec.tls with the fields mode and issuer: an issuer is required in mode certManager, and only there."""

TLS_RULES = (
    Rule(
        "self.mode != 'secret' || has(self.secretName)",
        lambda tls: tls.mode != "secret" or tls.secret_name is not None,
        "is required with mode secret: set the Secret with your certificate.",
        at="secretName",
    ),
    Rule(
        "self.mode == 'secret' || !has(self.secretName)",
        lambda tls: tls.mode == "secret" or tls.secret_name is None,
        "is not allowed with mode {}; remove it, or use mode secret.",
        at="secretName",
        value=("self.mode", lambda tls: tls.mode),
    ),
    *ISSUER_RULES,
)
"""Rules over spec.tls with the fields mode, secretName and issuer: also, a Secret is named in mode secret only."""


def image_rule(
    field: str,
    advice: str,
    read: Callable[[Any], str | None],
    form: str = FORM,
    is_valid: Callable[[str], bool] = is_reference,
) -> Rule:
    """Return the rule that a field, if set, is an image.

    Args:
        advice: rest of the sentence that begins with the value and "is".
    """
    return Rule(
        f"!has(self.{field}) || self.{field}.matches({json.dumps(form)})",
        lambda model: (text := read(model)) is None or is_valid(text),
        f"'{{}}' is {advice}",
        at=field,
        value=(f"self.{field}", read),
    )


def reserved_prefix(field: str, prefix: str) -> Rule:
    """Return a rule that no key of a map has the prefix of the operator's own keys."""
    return Rule(
        f"!has(self.{field}) || !self.{field}.exists(key, key.startsWith('{prefix}'))",
        lambda model: not any(key.startswith(prefix) for key in getattr(model, field)),
        f"keys that begin with {prefix} are reserved for the operator; remove them.",
        at=field,
    )


def immutable(field: str, cel: str, read: Callable[[Any], object], why: str) -> Transition:
    """Return a rule that a field is immutable.

    Args:
        cel: value of the field in CEL over `self`; it must always be set.
        read: reads the same value in Python.
        why: reason why the field is immutable, and what to do instead.
    """
    former = cel.replace("self.", "oldSelf.")
    return Transition(
        f"{cel} == {former}",
        lambda model, before: read(model) == read(before),
        f"is immutable and must remain {{}}: {why}",
        at=field,
        value=(former, lambda _, before: read(before)),
    )
