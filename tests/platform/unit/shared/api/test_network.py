"""spec.network: rules that the API server cannot check, and the form that it stores."""

from __future__ import annotations

from typing import Any

import pytest

from shared.api.network import Network, as_peers
from shared.api.spec import InvalidSpec, broken, parse


def network(**given: Any) -> Network:
    return parse(Network, given, at="spec.network")


def test_misspelled_selector_is_refused() -> None:
    """Without its unknown key the selector would be empty, and an empty selector selects everything."""
    for selector in ("podSelector", "namespaceSelector"):
        with pytest.raises(InvalidSpec, match="matchLabels and matchExpressions, not matchLabel") as refused:
            network(allowFrom=[{selector: {"matchLabel": {"app": "web"}}}])
        assert f"spec.network.allowFrom[0].{selector}" in str(refused.value)


@pytest.mark.parametrize(
    ("cidr", "part"),
    [("10.0.0.0/8", "11.0.0.0/16"), ("10.0.0.0/8", "10.0.0.0/8"), ("10.0.0.0/8", "2001:db8::/32")],
    ids=["outside", "all", "another family"],
)
def test_exception_that_is_not_a_part_of_its_range_is_refused(cidr: str, part: str) -> None:
    given = network(allowFrom=[{"ipBlock": {"cidr": cidr, "except": [part]}}])
    assert broken(given, "spec.network") == [
        "spec.network.allowFrom[0].ipBlock.except: each entry must be a range within cidr, and smaller than it."
    ]


def test_peers_are_as_the_api_server_stores_them() -> None:
    given = [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]
    assert as_peers(network(allowFrom=given).allow_from or ()) == given
    empty = [{"ipBlock": {"cidr": "10.0.0.0/8", "except": []}}]
    assert as_peers(network(allowFrom=empty).allow_from or ()) == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]


def test_empty_list_restricts_clients_and_a_missing_one_does_not() -> None:
    assert network(allowFrom=[]).restricts_clients
    assert not network().restricts_clients
    assert not network(enabled=False, allowFrom=[]).restricts_clients
