"""The catalogue of an engine's versions: which advisories and bugs apply, what to use instead, and its age."""

from datetime import date

import pytest

from shared.api.catalogue import Advisory, Bug, Catalogue, Line, release_of, releases

NOTES = "https://example.com/notes"
ANY = Advisory("A-1", "anyone can crash it", NOTES, fixed="1.2.5 1.4.2", introduced="1.1.0")
WITH_TLS = Advisory("A-2", "TLS can be skipped", NOTES, fixed="1.4.4", introduced="1.4.3", needs="tls")
UNKNOWN = Advisory("A-3", "users can read all", NOTES, fixed="1.4.1", introduced="1.2.0", unknown="1.2", needs="auth")
BUG = Bug("1.2.0", "1.2.3", "moves fail", f"{NOTES}/7", "1.2.4", "The operator waits", "threads")
CATALOGUE = Catalogue(
    "box",
    date(2026, 1, 31),
    "example/box",
    "1.4",
    (Line("1.4.5", NOTES), Line("1.3.9", NOTES, maintained=False), Line("1.2.7", NOTES)),
    (WITH_TLS, ANY, UNKNOWN),
    (BUG,),
)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("1.2.3", (1, 2, 3)),
        ("v1.2.3", (1, 2, 3)),
        ("8.0", (8, 0, 0)),
        ("1.6.45-alpine3.24", (1, 6, 45)),
        ("3.6.16-0", (3, 6, 16)),
        ("latest", None),
        ("", None),
        ("sha256:00", None),
        ("1.2.3.4", None),
    ],
)
def test_release_of_a_version_or_tag(text: str, release: tuple[int, int, int] | None) -> None:
    assert release_of(text) == release


def test_a_release_that_is_no_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a version"):
        releases("1.2.3 next")


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ("1.0.9", False),  # before it was introduced
        ("1.1.0", True),  # a line without a fix
        ("1.2.4", True),
        ("1.2.5", False),
        ("1.3.9", True),  # a line between two with a fix
        ("1.4.1", True),
        ("1.4.2", False),
        ("1.5.0", False),  # a later line contains the fix
    ],
)
def test_fixed_releases_of_each_line_decide(version: str, affected: bool) -> None:
    assert (ANY in CATALOGUE.applying(version, ())) is affected


def test_advisory_applies_only_with_the_features_that_it_needs() -> None:
    assert CATALOGUE.applying("1.4.3", {"auth"}) == ()
    assert CATALOGUE.applying("1.4.3", {"tls", "auth"}) == (WITH_TLS,)


def test_line_whose_fix_could_not_be_looked_up_counts_as_not_affected() -> None:
    assert UNKNOWN not in CATALOGUE.applying("1.2.0", {"auth"})
    assert UNKNOWN in CATALOGUE.applying("1.3.0", {"auth"})


def test_image_whose_tag_is_no_version_has_no_known_weakness() -> None:
    assert CATALOGUE.warnings("latest", {"tls", "auth", "threads"}) == []
    assert CATALOGUE.notes("latest", {"tls", "auth", "threads"}) == []


@pytest.mark.parametrize(("series", "release"), [((1, 4), (1, 4, 4)), ((1, 3), None), ((1, 2), (1, 2, 5))])
def test_least_safe_release_is_affected_in_no_configuration(
    series: tuple[int, int], release: tuple[int, int, int] | None
) -> None:
    assert CATALOGUE.least_safe(series) == release


def test_message_names_all_advisories_and_the_newest_release_of_the_line() -> None:
    assert CATALOGUE.weaknesses("1.2.3", ()).message == (
        "box 1.2.3 has known weaknesses that apply to this configuration: A-1. A-1: anyone can crash it "
        "(https://example.com/notes). Set 1.2.7 or a later 1.2."
    )
    assert CATALOGUE.notes("1.2.3", ()) == ["box 1.2.3 has 1 known weakness, fixed in 1.2.7 (version)"]


def test_message_about_a_line_without_fixes_names_the_default() -> None:
    message = CATALOGUE.weaknesses("1.3.9", ()).message
    assert "No release of its line has the fixes. Upgrade to 1.4.5 or later." in message
    assert "fixed in 1.4.5 (version)" in CATALOGUE.notes("1.3.9", ())[0]


def test_bug_is_warned_of_with_what_the_operator_does() -> None:
    assert CATALOGUE.warnings("1.2.3", {"threads"}) == [
        "spec.version: with 1.2.0 to 1.2.3, moves fail (https://example.com/notes/7). The operator waits. Set 1.2.4 or "
        "later."
    ]
    assert CATALOGUE.bugs_of("1.2.4", {"threads"}) == ()
    assert CATALOGUE.bugs_of("1.2.3", ()) == ()


def test_default_version_is_the_newest_of_the_default_line() -> None:
    assert CATALOGUE.default_version == "1.4.5"
