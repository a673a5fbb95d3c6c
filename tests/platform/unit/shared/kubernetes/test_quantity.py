from decimal import Decimal

import pytest

from shared.kubernetes.quantity import parse_quantity
from tests.harness import cost


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


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e999999", 2**63 - 1), ("1e1000000", 2**63 - 1), ("-1e99999", 1 - 2**63), ("10E", 2**63 - 1), ("8Ei", 2**63 - 1),
     ("1e99999999999999999999", 2**63 - 1), ("0e999999", 0), ("9" * 100_000, 2**63 - 1), ("7Ei", 7 * 2**60)],
)  # fmt: skip
async def test_quantity_is_capped_as_kubernetes_does(text: str, number: int) -> None:
    async with cost.bounded():
        assert int(parse_quantity(text)) == number


@pytest.mark.parametrize("text", ["1e-99999", "1e-99999999999999999999"])
def test_quantity_near_zero_is_not_zero(text: str) -> None:
    assert 0 < parse_quantity(text) < Decimal("1e-9")


async def test_text_that_is_no_quantity_is_rejected_at_little_cost() -> None:
    for text in ("1" * 250_000 + "x", "1." * 125_000):
        async with cost.bounded():
            with pytest.raises(ValueError, match="is not a quantity") as error:
                parse_quantity(text)
        assert len(str(error.value)) < 200
