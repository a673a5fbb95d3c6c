"""Versions of etcd: parsing, supported upgrades and features."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api.versions import DOWNGRADES, SUPPORTED, Version, features, upgrade_refusal

VERSIONS = st.builds(Version, st.just(3), st.sampled_from([minor for _, minor in SUPPORTED]), st.integers(0, 40))


def version(text: str) -> Version:
    return Version.parse(text)


@pytest.mark.parametrize(
    "text", ["3.6.16", "v3.6.16", "3.6.16-0", "v3.6.16-debian-12-r1", "3.6.16-rc.0", "3.6.16+dirty"]
)
def test_version_is_parsed_from_any_tag_format(text: str) -> None:
    assert version(text) == Version(3, 6, 16)
    assert str(version(text)) == "3.6.16"


@pytest.mark.parametrize("text", ["", "3.6", "latest", "3.6.x", "03.6.1", "3.6.16 ", "3.6.16/3", "V3.6.16"])
def test_invalid_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version of etcd"):
        version(text)


def test_version_components_compare_as_numbers() -> None:
    assert version("3.5.9") < version("3.5.26") < version("3.6.0") < version("3.10.0")


ALLOWED = [
    # versions of the members, version of the cluster, target
    (["3.6.8"], "3.6.0", "3.6.16"),
    (["3.6.16"], "3.6.0", "3.6.8"),  # patch downgrade: etcd supports it, admission warns
    (["3.4.13"], "3.4.0", "3.5.35"),
    (["3.5.26", "3.5.35"], "3.5.0", "3.6.16"),
    (["3.6.11"], "3.6.0", "3.7.3"),
    (["3.5.35", "3.6.16"], "3.5.0", "3.5.35"),  # upgrade in progress, reverted
    (["3.5.35", "3.6.16"], "3.5.0", "3.6.16"),  # upgrade in progress, continued
    (["3.6.16", "3.6.16"], "3.5.0", "3.5.35"),  # all members upgraded, version of the cluster not raised yet
    (["3.6.16"], "3.6.0", "3.5.35"),  # etcd's rolling downgrade
    (["3.7.3", "3.7.3"], "3.7.0", "3.6.11"),
    ([], None, "3.7.3"),
    ([], "3.6.0", "3.6.16"),
]
REFUSED = [
    (["3.5.35"], "3.5.0", "3.7.3", "3.7.3 is more than one minor version above 3.5", "Set a version of 3.6 first."),
    (["3.4.13"], "3.4.0", "3.6.16", "3.6.16 is more than one minor version above 3.4", "Set a version of 3.5 first."),
    (["3.5.25"], "3.5.0", "3.6.16", "a member runs 3.5.25", "Set 3.5.26 or a later 3.5 first."),
    (["3.5.35", "3.5.23"], "3.5.0", "3.6.16", "a member runs 3.5.23", "Set 3.5.26 or a later 3.5 first."),
    (["3.6.8"], "3.6.0", "3.7.3", "a member runs 3.6.8", "Set 3.6.11 or a later 3.6 first."),
    (["3.5.35"], "3.5.0", "3.4.45", "3.4.45 is below 3.5, the current version of the cluster", "Set a version of 3.5."),
    (
        ["3.6.16"],
        "3.6.0",
        "3.5.25",
        "3.5.25 is below 3.5.26, the first version from which",
        "Set 3.5.26 or a later 3.5.",
    ),
    (["3.7.3"], "3.7.0", "3.5.35", "more than one minor version below 3.7", "Set a version of 3.6 first."),
    (["3.5.35", "3.6.16"], "3.5.0", "3.7.3", "more than one minor version above 3.5", "Set a version of 3.6 first."),
    (["3.5.35", "3.6.16"], "3.5.0", "3.4.45", "3.4.45 is below 3.5", "Set a version of 3.5."),
    (["3.5.35", "3.6.16"], None, "3.7.3", "more than one minor version above 3.5", "Set a version of 3.6 first."),
    # versions of the members unknown
    (
        [],
        "3.5.0",
        "3.6.16",
        "requires that all members run 3.5.26 or later",
        "Set 3.5.26 or a later 3.5 first.",
    ),
]


@pytest.mark.parametrize(("members", "cluster", "target"), ALLOWED)
def test_supported_upgrade_is_allowed(members: list[str], cluster: str | None, target: str) -> None:
    assert (
        upgrade_refusal([version(one) for one in members], version(cluster) if cluster else None, version(target)) == ""
    )


@pytest.mark.parametrize(("members", "cluster", "target", "why", "first"), REFUSED)
def test_unsupported_upgrade_is_refused_with_the_reason_and_the_next_step(
    members: list[str], cluster: str | None, target: str, why: str, first: str
) -> None:
    message = upgrade_refusal([version(one) for one in members], version(cluster) if cluster else None, version(target))
    assert why in message
    assert first in message


@given(st.lists(VERSIONS, min_size=1, max_size=5), VERSIONS)
def test_allowed_change_skips_no_minor_version(members: list[Version], target: Version) -> None:
    cluster = min(members)
    if upgrade_refusal(members, cluster, target) == "":
        assert target.series <= (cluster.major, cluster.minor + 1)
        assert target.series >= cluster.series or target.series == DOWNGRADES[cluster.series]


@given(st.lists(VERSIONS, min_size=1, max_size=5), VERSIONS)
def test_cluster_can_be_upgraded_again_after_a_downgrade(members: list[Version], target: Version) -> None:
    cluster = min(members)
    if target.series < cluster.series and upgrade_refusal(members, cluster, target) == "":
        assert upgrade_refusal([target], target, cluster) == ""


@given(VERSIONS, VERSIONS)
def test_following_the_advice_of_refusals_reaches_the_target(running: Version, target: Version) -> None:
    """Simulate the upgrades that the refusals recommend; each recommended upgrade is allowed itself."""
    steps = 0
    while running.series < target.series:
        refusal = upgrade_refusal([running], running, target)
        if not refusal:
            break
        following = Version(running.major, running.minor + 1, 40)
        running = Version(*running.series, 40) if upgrade_refusal([running], running, following) else following
        steps += 1
        assert steps < 10
    assert target.series < running.series or upgrade_refusal([running], running, target) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # exclude, serializable, checks, restores with, bumps, hashes
        ("3.4.13", (False, False, 0, "etcdctl", False)),
        ("3.4.18", (False, False, 0, "etcdctl", False)),
        ("3.4.19", (True, False, 0, "etcdctl", False)),
        ("3.4.27", (True, False, 0, "etcdctl", True)),
        ("3.4.29", (True, True, 0, "etcdctl", True)),
        ("3.5.0", (False, False, 1, "etcdutl", False)),
        ("3.5.2", (True, False, 1, "etcdutl", False)),
        ("3.5.5", (True, True, 2, "etcdutl", False)),
        ("3.5.10", (True, True, 2, "etcdutl", True)),
        ("3.6.0", (True, True, 1, "etcdutl", True)),
        ("3.7.3", (True, True, 1, "etcdutl", True)),
        ("3.9.0", (True, True, 1, "etcdutl", True)),
    ],
)
def test_features_of_a_version(text: str, expected: tuple[object, ...]) -> None:
    known = features(version(text))
    assert expected == (
        known.exclude_alarms,
        known.serializable_health,
        len(known.corruption_checks),
        known.restores_with,
        known.bumps_revision,
    )


@given(VERSIONS)
def test_version_gets_only_its_own_corruption_check_flags(one: Version) -> None:
    checks = " ".join(features(one).corruption_checks)
    assert ("--experimental-" in checks) == (one.series == (3, 5))
    assert ("--feature-gates" in checks) == (one >= Version(3, 6, 0))
