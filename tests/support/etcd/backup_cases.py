"""Specs that the EtcdBackup CRD takes and refuses, a refused one for every constraint it has; and changes of them."""

from __future__ import annotations

from typing import Any

from tests.support.cases import Case, Change, over

S3: dict[str, Any] = {"bucket": "snapshots", "credentialsSecret": "s3-keys"}
VOLUME: dict[str, Any] = {"claimName": "snapshots"}
PLACES: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("no claim", {"volume": {}}, "claimName: Required value", "claimName: is missing"),
    ("a claim that is no name", {"volume": {"claimName": "A"}}, "should match", "does not match"),
    ("an endless claim", {"volume": {"claimName": "a" * 254}}, "more than 253", "at most 253"),
    ("a directory above", {"volume": {**VOLUME, "path": "a/../b"}}, "should match", "does not match"),
    ("an endless directory", {"volume": {**VOLUME, "path": "a" * 513}}, "more than 512", "at most 512"),
    ("no bucket", {"s3": {"credentialsSecret": "a"}}, "bucket: Required value", "bucket: is missing"),
    ("a short bucket", {"s3": {**S3, "bucket": "ab"}}, "at least 3 chars", "at least 3 characters"),
    ("an endless bucket", {"s3": {**S3, "bucket": "a" * 64}}, "more than 63", "at most 63"),
    ("no keys", {"s3": {"bucket": "abc"}}, "credentialsSecret: Required", "credentialsSecret: is missing"),
    ("keys that are no name", {"s3": {**S3, "credentialsSecret": "A"}}, "should match", "does not match"),
    ("endless keys", {"s3": {**S3, "credentialsSecret": "a" * 254}}, "more than 253", "at most 253"),
    ("a store that is no address", {"s3": {**S3, "endpoint": "minio:9000"}}, "should match", "does not match"),
    ("an endless store", {"s3": {**S3, "endpoint": "http://" + "a" * 506}}, "more than 512", "at most 512"),
    ("an empty region", {"s3": {**S3, "region": ""}}, "at least 1 chars", "at least 1 characters"),
    ("an endless region", {"s3": {**S3, "region": "a" * 65}}, "more than 64", "at most 64"),
    ("a prefix from the root", {"s3": {**S3, "prefix": "/a"}}, "should match", "does not match"),
    ("an endless prefix", {"s3": {**S3, "prefix": "a" * 513}}, "more than 512", "at most 512"),
)
"""Places of snapshots that are refused, wherever they stand: what it shows, the place, and words of both refusals."""

BASE: dict[str, Any] = {"clusterName": "demo", "destination": {"volume": VOLUME}}

ACCEPTED = over(
    BASE,
    (
        Case("to a volume"),
        Case("to a bucket", {"destination": {"s3": {**S3, "endpoint": "http://minio:9000/"}}}),
        Case("to a directory", {"destination": {"volume": {**VOLUME, "path": "etcd"}}}),
        Case("the longest name", resource="9" * 63),
    ),
)

REFUSED = over(
    BASE,
    (
        Case("of no cluster", {"clusterName": ...}, "clusterName: Required value", "spec.clusterName: is missing"),
        Case("of a cluster that is no name", {"clusterName": "a/b"}, "should match", "does not match"),
        Case("of an endless cluster", {"clusterName": "a" * 254}, "more than 253", "at most 253"),
        Case("to nowhere", {"destination": ...}, "destination: Required value", "destination: is missing"),
        *(
            Case(
                f"to {words}",
                {"destination": destination},
                "exactly one destination is required",
                "spec.destination: exactly one destination",
            )
            for words, destination in (("no place", {}), ("two places", {"volume": VOLUME, "s3": S3}))
        ),
        *(Case(words, {"destination": place}, says, why) for words, place, says, why in PLACES),
        Case(
            "a name with a dot",
            {},
            "metadata.name is also used as a label value",
            "metadata.name is also used as a label value",
            resource="a.b",
        ),
        Case(
            "an endless name",
            {},
            "metadata.name is also used as a label value",
            "metadata.name is also used as a label value",
            resource="a" * 64,
        ),
    ),
)


def backup(**spec: Any) -> Case:
    return Case("", spec, base=BASE)


REFUSED_CHANGES = tuple(
    Change(
        f"another {words}",
        backup(),
        backup(**spec),
        "the spec of an EtcdBackup cannot be changed",
        "spec: the spec of an EtcdBackup cannot be changed",
    )
    for words, spec in (
        ("cluster", {"clusterName": "other"}),
        ("place", {"destination": {"s3": S3}}),
        ("directory", {"destination": {"volume": {**VOLUME, "path": "a"}}}),
    )
)
