from decimal import Decimal

import pytest

from shared.kubernetes.quantity import parse_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", "0.5"), ("64Mi", 67108864), ("1Gi", 2**30), ("2", 2), (3, 3), ("1e3", 1000), ("1.5G", "1.5e9"), ("0", 0),
     ("1E", "1e18"), ("100n", "1e-7")],
)  # fmt: skip
def test_quantities_are_numbers(text: str | int, number: str | int) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "Mi", "64MB", "a", "1 Gi", "NaN", "Infinity", "--1"])
def test_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)
