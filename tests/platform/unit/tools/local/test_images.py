"""Debian mirrors in apt sources, image tags and hashes, and versions for which an image exists."""

import re
from pathlib import Path

import pytest

import operators
from operators.etcd.api.spec import DEFAULT_VERSION, EtcdClusterSpec
from operators.etcd.manifests import images as etcd_images
from operators.etcd.operator import OPERATOR
from operators.memcached import operator as memcached
from operators.memcached.api.spec import MemcachedSpec
from operators.memcached.manifests import images as memcached_images
from operators.redis import operator as redis
from operators.redis.api.spec import DEFAULT_EXPORTER
from operators.redis.manifests import images as redis_images
from shared.runtime.operator import Operator as OperatorEntry
from tools.databases import redis_programs
from tools.local import __main__ as main
from tools.local import binaries, debian, images, release
from tools.local.errors import ClusterError
from tools.local.paths import REPOSITORY

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian http://second.example/debian
Suites: bookworm bookworm-updates
Components: main contrib

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""


@pytest.mark.parametrize(
    ("sources", "mirror"),
    [
        (DEB822, "http://mirror.example/debian"),
        ("deb http://mirror.example/debian bookworm main\n", "http://mirror.example/debian"),
        ("deb [arch=amd64 signed-by=/k.gpg] https://m.example/d bookworm contrib main", "https://m.example/d"),
        ("deb http://other.example/tool tool-bookworm main\n", None),
        ("# deb http://mirror.example/debian bookworm main\n", None),
        ("", None),
    ],
)
def test_mirror_of_the_machines_release_is_chosen(sources: str, mirror: str | None) -> None:
    assert debian.mirror_in(sources, "bookworm") == mirror


def test_digest_depends_on_content_and_names_but_not_caches(tmp_path: Path) -> None:
    source = tmp_path / "package"
    (source / "__pycache__").mkdir(parents=True)
    (source / "a.py").write_text("1")
    first = images.digest([source])

    (source / "__pycache__" / "a.pyc").write_text("compiled")
    assert images.digest([source]) == first

    (source / "a.py").write_text("2")
    second = images.digest([source])
    (source / "a.py").rename(source / "b.py")
    assert len({first, second, images.digest([source])}) == 3


def tags_for(text: str) -> set[str]:
    return {image.tag.rpartition("/")[2] for image in images.required_by(text)}


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ('{"spec": {"version": "1.6.18"}}', {"memcached:1.6.18"}),
        ("set image sts/a etcd=gcr.io/etcd-development/etcd:v3.5.35", {"etcd:v3.5.35"}),
        ("3.7.3,9.1", {"etcd:v3.7.3", "valkey:9.1"}),
        ("11.6.18 1.6.180 v3.5 10.241.9.1", set()),
        ("get pods -o json", set()),
        ("kind: Memcached\nspec: {size: 1}", {"memcached:1.6.45"}),
        ("kind: EtcdCluster\nspec: {size: 1, version: 3.6.16}", {"etcd:v3.6.16"}),
        ("kind: EtcdCluster\nspec: {size: 1, image: 'elsewhere/etcd:v3.6.0'}", set()),
        ("get memcached -o jsonpath={.items[?(@.kind=='Memcached')]}", set()),
    ],
)
def test_operand_images_follow_from_versions_in_a_text(text: str, required: set[str]) -> None:
    assert tags_for(text) == required


def test_samples_need_one_image_of_each_engine_and_helm_test_no_further_one() -> None:
    samples = "\n---\n".join(path.read_text() for path in release.sample_files())
    required = tags_for(samples)
    assert required == {"etcd:v3.6.16", "memcached:1.6.45", "redis:8.0.2", "redis_exporter:v1.69.0"}
    for operator in operators.installed():
        checked = images.local_default(operator, operator.catalogues[0].engine)
        assert any(tag.endswith(checked) for tag in required), operator.name


@pytest.mark.parametrize(
    ("operator", "engine"), [(each, found.engine) for each in operators.installed() for found in each.catalogues]
)
def test_resource_without_a_version_runs_on_the_local_cluster(operator: OperatorEntry, engine: str) -> None:
    """`make up` has an image of each default, or sets another default that has one and prints it."""
    version, kind = images.local_default(operator, engine), operator.main.kind
    found = [
        image.tag for image in images.operand_images() if image.tag.endswith((f"{engine}:{version}", f":v{version}"))
    ]
    assert found, f"no image of {engine} {version}"
    spec = f"{operator.smallest}, repository: valkey/valkey" if engine == "valkey" else operator.smallest
    assert found[0] in {image.tag for image in images.required_by(f"kind: {kind.name}\nspec: {{{spec}}}")}
    [default] = [each.default_version for each in operator.catalogues if each.engine == engine]
    assert (engine in release.local_defaults()) is (version != default)


def test_make_up_sets_default_versions_by_values_of_the_chart() -> None:
    assert release.local_values() == [r"--set-string=redis.defaultVersions=redis=8.0.2\,valkey=8.1.1"]


def test_reason_of_an_image_is_shown() -> None:
    reasons = {image.tag: reason for image, reason in main._required({}, "3.7.3,1.6.45")}
    assert reasons["gcr.io/etcd-development/etcd:v3.7.3"] == "VERSIONS=3.7.3,1.6.45"
    assert reasons["memcached:1.6.45"] == "the samples run it"
    assert len(main._required({}, "all")) == len(images.operand_images())


@pytest.mark.parametrize("operator", [each.name for each in operators.installed()])
def test_lock_of_an_operator_repeats_no_common_package(operator: str) -> None:
    def packages(lock: str) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (REPOSITORY / "locks" / lock).read_text(), re.MULTILINE))

    own, common, development = packages(f"{operator}.txt"), packages("common.txt"), packages("dev.txt")
    assert not own.keys() & common.keys()
    assert {**own, **common}.items() <= development.items()


def test_operator_tag_contains_a_hash_of_its_sources() -> None:
    image = images.operator_image("memcached")
    assert image.tag.startswith("platform/memcached-operator:dev-")
    assert image.built_as == "platform/memcached-operator:dev"
    assert images.operator_image("memcached", "registry.example/team/op:1.2").built_as == "registry.example/team/op:1.2"


@pytest.mark.parametrize("version", [version for version in binaries.ETCD if version != "3.4.13"])
def test_etcd_image_is_built_from_the_version_in_its_tag(version: str) -> None:
    required = (binaries.ETCD[version].directory / "go.mod").read_text()
    for part in ("server", "etcdutl", "etcdctl", "api"):
        assert re.search(rf"go\.etcd\.io/etcd/{part}/v3 v{re.escape(version)}\s", required)
    assert etcd_images.TAGS[version].endswith(f":v{version}")


def test_default_etcd_version_has_an_image() -> None:
    requested = EtcdClusterSpec(size=1, version=DEFAULT_VERSION).image_reference(OPERATOR.image_repository)
    assert requested in {image.tag for image in etcd_images.images()}


def test_etcd_image_of_the_seed_manifest_exists() -> None:
    assert "cnych/etcd:v3.4.13" in {image.tag for image in etcd_images.images()}


def test_version_of_redis_for_the_local_cluster_and_default_exporter_have_images() -> None:
    tags = {image.tag for image in redis_images.images()}
    assert redis_images.TAGS["redis", redis.OPERATOR.local_versions["redis"]] in tags
    assert DEFAULT_EXPORTER in tags


def test_default_memcached_version_has_an_image() -> None:
    requested = MemcachedSpec(size=1).image_reference(memcached.OPERATOR.image_repository)
    assert requested in {image.tag for image in memcached_images.images()}


def test_suite_that_debootstrap_does_not_know_is_made_like_unstable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_BOOTSTRAP_SCRIPTS", tmp_path)
    (tmp_path / "trixie").touch()
    assert images._script("trixie") == []
    assert images._script("forky") == [tmp_path / "sid"]


@pytest.mark.parametrize(
    ("engine", "requested", "exact"),
    [("redis", "7.0", "7.0.15"), ("redis", "7", "7.0.15"), ("redis", "8.0.2", "8.0.2"), ("valkey", "9.1", "9.1")],
)
def test_redis_version_prefix_selects_the_exact_version(engine: str, requested: str, exact: str) -> None:
    assert redis_programs.exact(engine, requested) == exact


@pytest.mark.parametrize(
    ("engine", "requested"), [("redis", "7.1"), ("redis", "8.1"), ("redis", "0.2"), ("valkey", "9.10")]
)
def test_unknown_redis_version_error_lists_the_available_versions(engine: str, requested: str) -> None:
    with pytest.raises(ClusterError, match=f"{engine} {requested} is not available") as refused:
        redis_programs.exact(engine, requested)
    assert "valkey 8.1.1" in str(refused.value)
