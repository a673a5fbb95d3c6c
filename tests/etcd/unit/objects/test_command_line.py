"""Command line of etcd by version and spec, and the bootstrap flags of a pod with an empty data directory."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.client.server import Member
from operators.etcd.objects import bootstrap, command_line
from operators.etcd.objects import names as object_names
from operators.etcd.objects.bootstrap import Closed, Joining, New
from shared.kubernetes.kinds import Obj
from tests.etcd.unit.world import cluster

MODES: tuple[dict[str, Any], ...] = (
    {},
    {"tls": {"mode": "self"}},
    {"tls": {"mode": "self", "client": {"auth": "none"}}},
)


def arguments(**spec: Any) -> list[str]:
    return command_line.arguments(cluster(**spec))


def names(found: list[str]) -> list[str]:
    return [argument.partition("=")[0] for argument in found]


@pytest.mark.parametrize("spec", MODES)
@pytest.mark.parametrize("version", ["3.4.13", "3.5.0", "3.5.26", "3.6.16", "3.7.3"])
def test_each_flag_is_given_once_and_has_a_value(version: str, spec: dict[str, Any]) -> None:
    found = arguments(version=version, **spec)
    assert len(set(names(found))) == len(found), "a flag given twice is ambiguous to readers"
    assert all(re.fullmatch(r"--[a-z-]+=\S+", argument) for argument in found)


@pytest.mark.parametrize(
    ("version", "checks"),
    [
        ("3.4.13", []),
        ("3.5.0", ["--experimental-initial-corrupt-check=true"]),
        (
            "3.5.26",
            ["--experimental-initial-corrupt-check=true", "--experimental-compact-hash-check-enabled=true"],
        ),
        ("3.6.16", ["--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true"]),
        ("3.7.3", ["--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true"]),
    ],
)
def test_corruption_checks_are_enabled_as_far_as_the_version_has_them(version: str, checks: list[str]) -> None:
    assert [argument for argument in arguments(version=version) if "orrupt" in argument or "hash" in argument] == checks


def test_experimental_flags_are_not_given_to_3_7() -> None:
    for spec in MODES:
        assert not [name for name in names(arguments(version="3.7.3", **spec)) if "experimental" in name]


def test_etcd_itself_refuses_member_changes_that_lose_the_quorum() -> None:
    assert "--strict-reconfig-check=true" in arguments()


def test_flags_without_a_value_in_the_spec_are_omitted() -> None:
    found = names(arguments())
    assert not {"--snapshot-count", "--auto-compaction-mode", "--auto-compaction-retention"} & set(found)
    more = arguments(snapshotCount=5000, autoCompaction={"mode": "periodic", "retention": "2h"})
    assert {"--snapshot-count=5000", "--auto-compaction-mode=periodic", "--auto-compaction-retention=2h"} <= set(more)


def test_extra_arguments_come_last() -> None:
    assert arguments(extraArgs=["--max-txn-ops=256"])[-1] == "--max-txn-ops=256"


def test_no_certificate_flag_is_given_without_tls() -> None:
    assert not [name for name in names(arguments()) if "cert" in name or "key" in name or "-ca-" in name]


def test_peers_require_certificates_of_the_same_cluster() -> None:
    found = arguments(tls={"mode": "self"})
    assert "--peer-client-cert-auth=true" in found
    assert "--peer-cert-allowed-hostname=demo-0.demo.default.svc" in found
    assert "--peer-skip-client-san-verification=true" in found
    assert "--experimental-peer-skip-client-san-verification=true" in arguments(version="3.5.26", tls={"mode": "self"})


def test_client_certificates_are_required_only_if_the_spec_requires_them() -> None:
    assert "--client-cert-auth=true" in arguments(tls={"mode": "self"})
    open_to_all = names(arguments(tls={"mode": "self", "client": {"auth": "none"}}))
    assert "--client-cert-auth" not in open_to_all
    assert "--trusted-ca-file" not in open_to_all
    assert "--cert-file" in open_to_all


def test_go_runtime_gets_the_containers_limits() -> None:
    def environment(**spec: Any) -> dict[str, str]:
        return {found["name"]: found.get("value", "") for found in command_line.environment(cluster(**spec))}

    own = {"POD_NAME": "", "INITIAL_CLUSTER": "", "INITIAL_CLUSTER_STATE": ""}
    assert environment() == own
    limited = {"resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}
    assert environment(**limited) == own | {"GOMAXPROCS": "2", "GOMEMLIMIT": f"{int(2**30 * 0.9)}B"}
    given: Obj = {"env": [{"name": "GOMAXPROCS", "value": "8"}, {"name": "POD_NAME", "value": "x"}]}
    assert environment(**limited, **given)["GOMAXPROCS"] == "8"
    assert [found["name"] for found in command_line.environment(cluster(**given))] == [*own, "GOMAXPROCS"]


# Bootstrap of an empty data directory.


def members(*numbers: int) -> tuple[Member, ...]:
    return tuple(Member(100 + n, f"demo-{n}", (object_names.peer_url(cluster(), n),)) for n in numbers)


def state(begins: bootstrap.Start) -> str:
    return bootstrap.annotated(cluster(), begins)[bootstrap.INITIAL_STATE]


def listed(begins: bootstrap.Start) -> dict[str, list[str]]:
    """Return the URLs in --initial-cluster by member name."""
    found: dict[str, list[str]] = {}
    for entry in bootstrap.annotated(cluster(), begins)[bootstrap.INITIAL_CLUSTER].split(","):
        name, _, url = entry.partition("=")
        found.setdefault(name, []).append(url)
    return found


def test_only_the_seed_may_bootstrap() -> None:
    assert listed(New()) == {"demo-0": ["http://demo-0.demo.default.svc:2380"]}
    assert state(New()) == "new"


@given(st.sets(st.integers(0, 8), min_size=1), st.data())
def test_only_the_added_member_may_join_and_all_members_are_listed(numbers: set[int], data: st.DataObject) -> None:
    joining = data.draw(st.sampled_from(sorted(numbers)))
    begins = Joining(joining, members(*numbers))
    found = listed(begins)
    pods = {object_names.member_name(cluster(), n) for n in range(10)}
    assert found.keys() & pods == {f"demo-{joining}"}
    assert sorted(url for urls in found.values() for url in urls) == sorted(
        url for member in begins.members for url in member.peer_urls
    )
    assert state(begins) == "existing"


def test_no_pod_may_bootstrap_once_the_cluster_has_started() -> None:
    found = listed(Closed())
    assert len(found) == 1, "etcd replaces an empty list with the pod's own name"
    assert not [name for name in found if object_names.number_of(cluster(), name) is not None]
    assert state(Closed()) == "existing"


def test_member_with_two_peer_urls_is_listed_with_both() -> None:
    urls = ("http://demo-1.demo.default.svc:2380", "http://elsewhere:2380")
    found = listed(Joining(0, (*members(0), Member(7, "demo-1", urls))))
    assert found == {"demo-0": ["http://demo-0.demo.default.svc:2380"], "_0000000000000007": list(urls)}


def test_pod_without_a_member_may_not_join() -> None:
    assert not listed(Joining(2, members(0, 1))).keys() & {"demo-0", "demo-1", "demo-2"}


def test_cluster_token_is_the_uid_of_the_resource() -> None:
    assert "--initial-cluster-token=u-1" in bootstrap.flags(cluster())


def test_bootstrap_flags_are_read_from_annotations_at_each_container_start() -> None:
    """A pod's arguments are immutable, but the kubelet resolves their variables at every container start."""
    annotated = bootstrap.annotated(cluster(), Closed())
    read = {found["name"]: found["valueFrom"]["fieldRef"]["fieldPath"] for found in bootstrap.environment()}
    for flag, variable in (
        ("--initial-cluster", "INITIAL_CLUSTER"),
        ("--initial-cluster-state", "INITIAL_CLUSTER_STATE"),
    ):
        assert f"{flag}=$({variable})" in arguments()
        assert read[variable].removeprefix("metadata.annotations['").removesuffix("']") in annotated
