"""Kubernetes quantities: "500m", "64Mi", "1e3"."""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal

_SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal("1e3"), "M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"), "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}  # fmt: skip

_FORM = re.compile(r"(?P<number>[+-]?(\d++\.?\d*+|\.\d++)([eE][+-]?\d++)?)(?P<suffix>[numkMGTPE]?|[KMGTPE]i)")
_MAX = Decimal(2**63 - 1)
_CONTEXT = Context(prec=40, rounding=ROUND_UP, Emax=99, Emin=-99, traps=[])
"""Numbers beyond the exponents are infinite, or the smallest above zero: an integer of more digits takes seconds."""


def parse_quantity(text: str | int | float) -> Decimal:
    """Return the number of a quantity in its base unit (bytes, cores), capped at 2^63-1 in magnitude.

    Raises:
        ValueError: the text is not a quantity.

    Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    found = _FORM.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{str(text)[:40]!r} is not a quantity: write a number with a unit such as 500m, 64Mi or 2Gi")
    number = _CONTEXT.multiply(_CONTEXT.create_decimal(found["number"]), _SUFFIXES[found["suffix"]])
    return max(-_MAX, min(number, _MAX))
