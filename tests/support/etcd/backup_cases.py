"""Specs that the EtcdBackup CRD accepts and refuses, one refused for every constraint, and changes of specs."""

from __future__ import annotations

from typing import Any

from tests.support.cases import Case, Change, over

S3: dict[str, Any] = {"bucket": "snapshots", "credentialsSecret": "s3-keys"}
VOLUME: dict[str, Any] = {"claimName": "snapshots"}
REFUSED_STORES: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("no claim", {"volume": {}}, "claimName: Required value", "claimName: is required"),
    ("an invalid claim name", {"volume": {"claimName": "A"}}, "should match", "does not match"),
    ("a claim name that is too long", {"volume": {"claimName": "a" * 254}}, "more than 253", "at most 253"),
    ("a directory outside of the volume", {"volume": {**VOLUME, "path": "a/../b"}}, "should match", "does not match"),
    ("a directory that is too long", {"volume": {**VOLUME, "path": "a" * 513}}, "more than 512", "at most 512"),
    ("no bucket", {"s3": {"credentialsSecret": "a"}}, "bucket: Required value", "bucket: is required"),
    ("a bucket name that is too short", {"s3": {**S3, "bucket": "ab"}}, "at least 3 chars", "at least 3 characters"),
    ("a bucket name that is too long", {"s3": {**S3, "bucket": "a" * 64}}, "more than 63", "at most 63"),
    ("no credentials", {"s3": {"bucket": "abc"}}, "credentialsSecret: Required", "credentialsSecret: is required"),
    ("an invalid Secret name", {"s3": {**S3, "credentialsSecret": "A"}}, "should match", "does not match"),
    ("a Secret name that is too long", {"s3": {**S3, "credentialsSecret": "a" * 254}}, "more than 253", "at most 253"),
    ("an invalid endpoint", {"s3": {**S3, "endpoint": "minio:9000"}}, "should match", "does not match"),
    ("an endpoint that is too long", {"s3": {**S3, "endpoint": "http://" + "a" * 506}}, "more than 512", "at most 512"),
    ("an empty region", {"s3": {**S3, "region": ""}}, "at least 1 chars", "at least 1 characters"),
    ("a region that is too long", {"s3": {**S3, "region": "a" * 65}}, "more than 64", "at most 64"),
    ("an absolute prefix", {"s3": {**S3, "prefix": "/a"}}, "should match", "does not match"),
    ("a prefix that is too long", {"s3": {**S3, "prefix": "a" * 513}}, "more than 512", "at most 512"),
)
"""Refused snapshot stores in any field: title, store, and texts of the API server's and the operator's refusal."""

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
        Case("no cluster", {"clusterName": ...}, "clusterName: Required value", "spec.clusterName: is required"),
        Case("an invalid cluster name", {"clusterName": "a/b"}, "should match", "does not match"),
        Case("a cluster name that is too long", {"clusterName": "a" * 254}, "more than 253", "at most 253"),
        Case("no destination", {"destination": ...}, "destination: Required value", "destination: is required"),
        *(
            Case(
                f"destination with {words}",
                {"destination": destination},
                "exactly one destination is required",
                "spec.destination: exactly one destination",
            )
            for words, destination in (("no store", {}), ("two stores", {"volume": VOLUME, "s3": S3}))
        ),
        *(
            Case(words, {"destination": store}, api_refusal, refusal)
            for words, store, api_refusal, refusal in REFUSED_STORES
        ),
        Case(
            "a name with a dot",
            {},
            "metadata.name is also used as a label value",
            "metadata.name is also used as a label value",
            resource="a.b",
        ),
        Case(
            "a name that is too long",
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
        ("store", {"destination": {"s3": S3}}),
        ("directory", {"destination": {"volume": {**VOLUME, "path": "a"}}}),
    )
)
