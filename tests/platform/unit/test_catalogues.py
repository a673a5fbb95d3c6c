"""The catalogues of all engines: complete, consistent and sourced; what runs by default has no known weakness."""

import dataclasses
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest

from docs import compatibility, versions
from operators import installed
from operators.etcd.api import catalogue as etcd
from operators.etcd.api import resource as etcd_resource
from operators.etcd.api.resource import EtcdCluster
from operators.memcached.api import catalogue as memcached
from operators.memcached.api import resource as memcached_resource
from operators.memcached.api.resource import Memcached
from operators.redis.api import admission as redis_admission
from operators.redis.api import catalogue as redis
from operators.redis.api.resource import RedisCluster
from shared.api.catalogue import Advisory, Catalogue, dotted, release_of, releases
from shared.api.spec import as_object
from shared.runtime.operator import Operator
from tools import catalogue_age
from tools.databases import redis_servers

CATALOGUES = [etcd.ETCD, memcached.MEMCACHED, redis.REDIS, redis.VALKEY]
EVERYTHING = {"auth", "tls", "maxmemory-clients", "io-threads"}
OF_PROJECTS = ("https://github.com/", "https://redis.io/", "https://www.cve.org/")

SMALLEST: dict[str, Any] = {
    "etcd": (EtcdCluster, {"size": 3}),
    "memcached": (Memcached, {"size": 3}),
    "redis": (RedisCluster, {"replicas": 6}),
    "valkey": (RedisCluster, {"replicas": 6, "engine": "valkey", "repository": "valkey/valkey"}),
}
"""Smallest spec of each engine, without a version."""

each_engine = pytest.mark.parametrize("catalogue", CATALOGUES, ids=lambda each: each.engine)


@each_engine
def test_newest_release_of_a_maintained_line_has_no_known_weakness(catalogue: Catalogue) -> None:
    for line in catalogue.lines:
        if line.maintained:
            assert catalogue.applying(line.newest, EVERYTHING) == (), line.newest
            least = catalogue.least_safe(line.series)
            assert least is not None
            assert least <= max(releases(line.newest))


@each_engine
def test_default_is_maintained_and_has_no_bug_that_concerns_the_operator(catalogue: Catalogue) -> None:
    line = next(line for line in catalogue.lines if dotted(line.series) == catalogue.default)
    assert line.maintained
    assert catalogue.warnings(catalogue.default_version, EVERYTHING) == []
    assert catalogue.notes(catalogue.default_version, EVERYTHING) == []


@each_engine
def test_every_entry_has_a_source_and_valid_releases(catalogue: Catalogue) -> None:
    assert [line.series for line in catalogue.lines] == sorted((line.series for line in catalogue.lines), reverse=True)
    sources = [line.source for line in catalogue.lines]
    sources += [each.source for each in catalogue.advisories] + [bug.source for bug in catalogue.bugs]
    assert all(source.startswith(OF_PROJECTS) for source in sources)
    for advisory in catalogue.advisories:
        series = [release[:2] for release in releases(advisory.fixed)]
        assert len(series) == len(set(series)), advisory.id
        assert set(advisory.needs.split()) <= EVERYTHING
    ids = [advisory.id for advisory in catalogue.advisories]
    assert len(ids) == len(set(ids))


@each_engine
def test_fixed_releases_exist_as_far_as_the_catalogue_knows(catalogue: Catalogue) -> None:
    newest = {line.series: max(releases(line.newest)) for line in catalogue.lines}
    for advisory in catalogue.advisories:
        assert all(release <= newest[release[:2]] for release in releases(advisory.fixed)), advisory.id


def test_every_unsafe_step_of_etcd_has_a_bug_that_prevents_it() -> None:
    prevented = {bug.prevents for catalogue in CATALOGUES for bug in catalogue.bugs if bug.prevents}
    assert prevented == {hazard.value for hazard in etcd.Hazard}


@pytest.mark.parametrize(
    ("operator", "catalogue"),
    [(each, found) for each in installed() for found in each.catalogues],
    ids=lambda each: getattr(each, "engine", ""),
)
def test_a_release_of_the_default_line_runs_in_tests(operator: Operator, catalogue: Catalogue) -> None:
    found = compatibility.tested(operator, catalogue)
    assert found is not None, f"no test runs {catalogue.engine} {catalogue.default}"
    page = compatibility.to_markdown()
    assert f"| {catalogue.engine} | {catalogue.default_version} | {found}" in page


VALIDATE: dict[Any, Callable[[Any], list[str]]] = {
    EtcdCluster: etcd_resource.validate,
    Memcached: memcached_resource.validate,
    RedisCluster: redis_admission.validate,
}


@each_engine
def test_admission_accepts_a_release_of_each_line(catalogue: Catalogue) -> None:
    model, smallest = SMALLEST[catalogue.engine]
    metadata = {"name": "a", "namespace": "b", "uid": "c"}
    for line in catalogue.lines:
        spec = smallest | {"version": line.newest}
        assert VALIDATE[model](model.parse({"metadata": metadata, "spec": spec})) == [], line.newest


def test_container_tests_of_each_commit_and_each_night_run_the_default_lines_of_redis_and_valkey() -> None:
    lines = {(each.engine, each.default) for each in (redis.REDIS, redis.VALKEY)}
    assert {(engine, ".".join(version.split(".")[:2])) for engine, version in redis_servers.DEFAULTS} == lines
    assert set(redis_servers.DEFAULTS) <= set(redis_servers.REGULAR)


def ids(found: tuple[Advisory, ...]) -> set[str]:
    return {advisory.id for advisory in found}


FEATURES: dict[str, list[tuple[dict[str, Any], set[str]]]] = {
    "EtcdCluster": [
        ({}, set()),
        ({"auth": None}, set()),
        ({"auth": {}}, {"auth"}),
        ({"auth": {"rootSecretName": "a"}}, {"auth"}),
        ({"auth": {"rootSecretName": "a", "enabled": False}}, set()),
        ({"tls": {"mode": "none"}}, set()),
        ({"tls": {"mode": "self"}, "auth": None}, {"tls"}),
    ],
    "Memcached": [
        ({}, set()),
        ({"auth": None}, set()),
        ({"auth": {}}, {"auth"}),
        ({"auth": {"secretName": None}}, {"auth"}),
        ({"auth": {"secretName": "a"}}, {"auth"}),
    ],
    "RedisCluster": [
        ({}, set()),
        ({"tls": {"mode": "none"}, "config": {}}, set()),
        ({"tls": {"mode": "certManager", "issuerRef": {"name": "a"}}}, {"tls"}),
        ({"config": {"io-threads": "1", "maxmemory-clients": "0"}}, set()),
        ({"config": {"IO-Threads": "4", "maxmemory-clients": "5%"}}, {"io-threads", "maxmemory-clients"}),
    ],
}
"""Features by kind and spelling of a spec: absent, null, empty and with defaults."""

KINDS: dict[str, Any] = {
    "EtcdCluster": (etcd.features_of, *SMALLEST["etcd"]),
    "Memcached": (memcached.features_of, *SMALLEST["memcached"]),
    "RedisCluster": (redis.features_of, *SMALLEST["redis"]),
}


@pytest.mark.parametrize(("kind", "spec", "features"), [(kind, *each) for kind in FEATURES for each in FEATURES[kind]])
def test_features_of_a_spec_are_those_of_the_spec_with_its_defaults(
    kind: str, spec: dict[str, Any], features: set[str]
) -> None:
    features_of, model, smallest = KINDS[kind]
    assert features_of(spec) == features
    parsed = model.parse({"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": smallest | spec})
    assert features_of(as_object(parsed.spec)) == features


@pytest.mark.parametrize(
    ("version", "auth", "found"),
    [
        ("3.6.16", True, set()),
        ("3.6.8", False, set()),
        ("3.6.8", True, {"CVE-2026-73499", "CVE-2026-44283", "CVE-2026-33413", "CVE-2026-33343"}),
        ("3.6.11", True, {"CVE-2026-73499"}),
        ("3.5.33", True, set()),
        ("3.7.0", True, {"CVE-2026-73499"}),
    ],
)
def test_advisories_of_etcd_concern_authentication(version: str, auth: bool, found: set[str]) -> None:
    assert ids(etcd.ETCD.applying(version, {"auth"} if auth else set())) == found


@pytest.mark.parametrize(
    ("version", "features", "found"),
    [
        ("8.2.9", {"tls"}, set()),
        ("8.2.8", {"tls"}, {"CVE-2026-81934"}),
        ("8.2.8", set(), set()),
        ("8.2.2", set(), {"CVE-2025-62507", "CVE-2026-23479", "CVE-2026-25243", "CVE-2026-23631"}),
        ("7.2.12", set(), set()),
        ("7.2.10", set(), {"CVE-2025-49844"}),
        ("8.8.0", set(), set()),
    ],
)
def test_advisories_of_redis(version: str, features: set[str], found: set[str]) -> None:
    assert ids(redis.REDIS.applying(version, features)) == found


def test_former_default_versions_have_known_weaknesses() -> None:
    assert "CVE-2025-49844" in ids(redis.REDIS.applying("8.0.2", ()))
    assert "CVE-2025-49844" in ids(redis.VALKEY.applying("8.1.1", ()))
    assert "ReleaseNotes1642" in ids(memcached.MEMCACHED.applying("1.6.38", ()))


def test_running_version_counts_not_the_requested_one() -> None:
    obj = {"spec": {"version": "8.2.9"}, "status": {"version": "valkey 9.1.2"}}
    assert redis.weaknesses_of(obj).ids == ("GHSA-f4q9-j22m-xqq9",)
    assert redis.weaknesses_of({"spec": {"version": "8.0.2"}}).ids == ()
    assert etcd.weaknesses_of({"spec": {"auth": {}}, "status": {}}).ids == ()
    assert "ReleaseNotes1642" in memcached.weaknesses_of({"status": {"image": "memcached:1.6.38-alpine"}}).ids
    assert memcached.weaknesses_of({"status": {"image": "memcached:1.6.38", "serverVersion": "1.6.45"}}).ids == ()
    assert release_of("1.6.38-alpine") == (1, 6, 38)


def test_catalogue_is_outdated_after_90_days() -> None:
    known = dataclasses.replace(etcd.ETCD, looked_up=date(2026, 1, 31))
    assert timedelta(days=90) == catalogue_age.MAX_AGE
    assert not catalogue_age.is_outdated(known, date(2026, 5, 1))
    assert catalogue_age.is_outdated(known, date(2026, 5, 2))


def test_release_is_refused_with_an_outdated_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    looked_up = max(catalogue.looked_up for catalogue in CATALOGUES)
    assert catalogue_age.outdated(min(catalogue.looked_up for catalogue in CATALOGUES) + catalogue_age.MAX_AGE) == []
    late = (looked_up + catalogue_age.MAX_AGE + timedelta(days=1)).isoformat()
    assert catalogue_age.main([late]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["etcd", "memcached", "redis", "valkey"]
    assert "more than 90 days old" in lines[0]
    assert catalogue_age.main([looked_up.isoformat()]) == 0


def test_default_image_of_an_operator_is_that_of_its_first_engine() -> None:
    found = [operator for operator in installed() if operator.catalogues]
    assert [each for operator in found for each in operator.catalogues] == CATALOGUES
    assert all(operator.image_repository == operator.catalogues[0].image for operator in found)


def test_page_of_versions_lists_every_line_advisory_and_bug() -> None:
    page = versions.to_markdown()
    for catalogue in CATALOGUES:
        assert f"Looked up on {catalogue.looked_up}." in page
        assert all(f"[{line.newest}]({line.source})" in page for line in catalogue.lines)
        assert all(f"[{each.id}]({each.source})" in page for each in catalogue.advisories)
        assert all(bug.source in page for bug in catalogue.bugs)
    assert "| 8.0 | [8.0.6](https://github.com/redis/redis/releases/tag/8.0.6) | none | no |" in page
    assert "/CHANGELOG-3.6.md) | 3.6.14 | yes |" in page


def test_fixes_of_memcached_after_its_security_release_are_known() -> None:
    """The catalogue once called 1.6.42 to 1.6.44 clean (K2)."""
    found = {version: ids(memcached.MEMCACHED.applying(version, ())) for version in ("1.6.42", "1.6.43", "1.6.44")}
    assert found["1.6.42"] == {"ReleaseNotes1643", "ReleaseNotes1644", "ReleaseNotes1645"}
    assert found["1.6.43"] == {"ReleaseNotes1644", "ReleaseNotes1645"}
    assert found["1.6.44"] == {"ReleaseNotes1645"}


@each_engine
def test_every_engine_has_a_repository_of_its_project(catalogue: Catalogue) -> None:
    assert catalogue.repository.startswith("https://github.com/")
