"""Output of --known-operators."""

import operators
from shared.cli import list_operators


def test_every_operator_is_listed_with_its_resources() -> None:
    titles, *rows = (line.split() for line in list_operators.table(operators.installed()).splitlines())
    assert titles == ["OPERATOR", "RESOURCE", "SHORTNAMES", "APIVERSION", "KIND"]
    assert ["memcached-operator", "memcacheds", "mc", "cache.example.com/v1alpha1", "Memcached"] in rows
