"""A version of a Secret is reported once its content is in effect on every server."""

from __future__ import annotations

from shared.kubernetes.kinds import Obj
from shared.status.observed_secrets import report, versions_of

BEFORE: Obj = {"observedSecrets": [{"name": "users", "resourceVersion": "1"}]}


def test_version_is_reported_when_the_spec_is_met() -> None:
    found = report(BEFORE, {"users": "2"}, spec_is_met=True)
    assert found == {"observedSecrets": [{"name": "users", "resourceVersion": "2"}]}


def test_former_version_stays_until_the_spec_is_met() -> None:
    assert report(BEFORE, {"users": "2"}, spec_is_met=False) == BEFORE


def test_former_version_stays_while_servers_may_still_use_it() -> None:
    assert report(BEFORE, {"users": None}, spec_is_met=True) == BEFORE


def test_new_name_is_not_reported_before_it_is_in_effect() -> None:
    assert report(BEFORE, {"others": "7"}, spec_is_met=False) == {}


def test_secret_that_the_spec_no_longer_names_is_not_reported() -> None:
    assert report(BEFORE, {}, spec_is_met=True) == {}


def test_version_of_a_missing_secret_is_unknown() -> None:
    assert versions_of({"a": {"metadata": {"resourceVersion": "3"}}, "b": None}) == {"a": "3", "b": None}
