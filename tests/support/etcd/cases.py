"""Specs that the EtcdCluster CRD accepts and refuses, one refused for every constraint.

The unit tests check them with the operator's own validation, `tests/platform/api` with a real API server.
"""

from __future__ import annotations

from typing import Any

from tests.support import extension_cases, network_cases, podspec_cases
from tests.support.cases import ADOPTION_REFUSED, Case, at_least, at_most, over
from tests.support.etcd.backup_cases import REFUSED_STORES, S3, VOLUME

VERSION = "3.6.16"
BASE: dict[str, Any] = {"size": 3, "version": VERSION}

NIGHTLY: dict[str, Any] = {"schedule": "30 2 * * *", "destination": {"volume": VOLUME}}
SECRETS: dict[str, Any] = {"mode": "secret", "peer": {"secretName": "a"}, "client": {"secretName": "b"}}
ISSUED: dict[str, Any] = {"mode": "certManager", "issuer": {"name": "ours"}}
FROM_BACKUP: dict[str, Any] = {"restore": {"from": {"backup": "monday"}}}

NAME_WORDS = "metadata.name is also the name of the StatefulSet"
ARGUMENT_WORDS = "is set by another field or by the operator"
SERIES_WORDS = "is not in a supported series. Set a version of 3.4, 3.5, 3.6 or 3.7"
MISSING_WORDS = "is missing, and the image has no tag that is a version"
SCHEDULE_WORDS = "should match '^[^\\s@]+( +[^\\s]+){4}$'"
GIB = 2**30


def with_image(image: str, **fields: Any) -> dict[str, Any]:
    return {"version": ..., "image": image, **fields}


def stored(**storage: Any) -> dict[str, Any]:
    return {"storage": storage}


ADOPTED: dict[str, Any] = {"adopt": {"fromUID": "0cee62a4-2b3c-4c3e-8a8f-1e2f3a4b5c6d"}}


def restored(**source: Any) -> dict[str, Any]:
    return {"restore": {"from": source}}


def backed_up(**changed: Any) -> dict[str, Any]:
    return {"backup": {**NIGHTLY, **changed}}


ACCEPTED = over(
    BASE,
    (
        *network_cases.ACCEPTED,
        *podspec_cases.ACCEPTED,
        *extension_cases.ACCEPTED,
        Case("three members"),
        Case("one member", {"size": 1}),
        Case("the most members", {"size": 9}),
        Case("the image of the first release", with_image("cnych/etcd:v3.4.13")),
        Case("a version in the image tag after a port", with_image("example.com:5000/a/etcd:3.5.35-0")),
        Case("a version in the image tag before a digest", with_image(f"etcd:v3.6.16@sha256:{'0' * 64}")),
        Case("an image tag without a version, with the version", {"image": "etcd:stable", "version": "3.6.16"}),
        Case("a private image tag, with the version", {"image": "registry.example.com/etcd:prod-7"}),
        Case("a release candidate, by its image", with_image("etcd:v3.7.0-rc.0")),
        Case("an image digest, with the version", {"image": f"etcd@sha256:{'0' * 64}"}),
        Case("an image tag that matches the version", {"image": "etcd:3.6.16-debian-12"}),
        Case("a version with a leading v", {"version": "v3.7.3"}),
        *(Case(f"version {version}", {"version": version}) for version in ("3.4.0", "3.5.35", "3.6.16-0", "3.7.3")),
        Case("the smallest volumes", stored(size="256Mi")),
        Case("volumes in bytes", stored(size=GIB)),
        Case("volumes with a class of attributes", stored(volumeAttributesClassName="fast")),
        Case(
            "volumes of a class, deleted with the resource", stored(size="1Ti", storageClassName="fast", retain=False)
        ),
        Case("memory", stored(medium="Memory", size="64Mi")),
        Case("the least quota", {"quotaBackendBytes": 16777216}),
        Case("the largest quota", {"quotaBackendBytes": 17179869184, **stored(size="40Gi")}),
        Case("a quota just below its volume", {"quotaBackendBytes": GIB - 1, **stored(size="1Gi")}),
        Case("compaction", {"autoCompaction": {}}),
        Case("compaction by time", {"autoCompaction": {"mode": "periodic", "retention": "30m"}}),
        Case("compaction by number", {"autoCompaction": {"mode": "revision", "retention": "1000"}}),
        Case("defragmentation", {"defragmentation": {"schedule": "0 3 * * SUN"}}),
        Case("defragmentation of little", {"defragmentation": {"schedule": "*/5 1-3 1,15 JAN *", "threshold": 1}}),
        Case("defragmentation of nearly all", {"defragmentation": {"schedule": "0 0 L * *", "threshold": 99}}),
        Case("the fewest changes between snapshots", {"snapshotCount": 100}),
        Case("the most changes between snapshots", {"snapshotCount": 10000000}),
        Case("quick elections", {"heartbeatInterval": 10, "electionTimeout": 50}),
        Case("slow elections", {"heartbeatInterval": 10000, "electionTimeout": 50000}),
        Case(
            "further arguments",
            {"extraArgs": ["--max-txn-ops=256", "--log-level=debug", "--socket-reuse-port", "--metrics=extensive"]},
        ),
        Case(
            "a feature gate that the operator does not set",
            {"extraArgs": ["--feature-gates=StopGRPCServiceOnDefrag=true"]},
        ),
        Case(
            "an experimental flag that 3.6 accepts",
            {"extraArgs": ["--experimental-txn-mode-write-with-shared-buffer=false"]},
        ),
        Case(
            "tuning arguments",
            {
                "extraArgs": [
                    *(
                        "--backend-batch-interval=100ms",
                        "--grpc-keepalive-min-time=1h30m",
                        "--max-request-bytes=10485760",
                    ),
                    *("--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "--tls-min-version=TLS1.2"),
                    *("--cors=https://a.example:443,http://b:80", "--initial-election-tick-advance=false"),
                    *("--log-format=console", "--max-wals=3", "--bcrypt-cost=12", "--corrupt-check-time=0s"),
                    *("--enable-distributed-tracing", "--distributed-tracing-address=otel.example:4317"),
                ]
            },
        ),
        *(
            Case(f"an argument of a series: {argument}", {"version": version, "extraArgs": [argument]})
            for version, argument in (
                ("3.4.13", "--experimental-compaction-batch-limit=1000"),
                ("3.5.35", "--experimental-memory-mlock"),
                ("3.7.3", "--memory-mlock=true"),
            )
        ),
        Case("TLS explicitly disabled", {"tls": {"mode": "none"}}),
        Case("TLS with self-signed certificates", {"tls": {"mode": "self", "client": {"auth": "none"}}}),
        Case("TLS with certificates from Secrets", {"tls": SECRETS}),
        Case(
            "TLS with cert-manager",
            {"tls": {"mode": "certManager", "issuer": {"name": "a", "kind": "ClusterIssuer"}}},
        ),
        Case("authentication", {"auth": {"rootSecretName": "root"}}),
        Case("authentication disabled", {"auth": {"enabled": False, "rootSecretName": "root"}}),
        Case("snapshots to a volume", {"backup": NIGHTLY}),
        Case("snapshots to a directory", backed_up(destination={"volume": {**VOLUME, "path": "etcd/orders"}})),
        Case("the fewest snapshots kept", backed_up(retention=1)),
        Case("the most snapshots kept", backed_up(retention=1000)),
        Case(
            "snapshots to a bucket",
            backed_up(destination={"s3": {**S3, "endpoint": "https://minio:9000", "region": "eu", "prefix": "a/b"}}),
        ),
        Case("a restore from an EtcdBackup", FROM_BACKUP),
        Case("a restore from a volume", restored(volume=VOLUME, file="2026/monday.db")),
        Case("a restore from a bucket", restored(s3=S3, file="monday.db")),
        Case("volumes of a deleted resource", ADOPTED),
        Case("protection from deletion", {"deletionProtection": True}),
        Case("no connection Secret", {"connectionSecret": False}),
        Case("changes that wait for an approval", {"changes": "Approved"}),
        Case("a generated password", {"auth": {}}),
        Case("a recovery without a token", {"recovery": {}}),
        Case("applications that manage users", {"auth": {"connectAs": "root"}}),
        Case("a released recovery", {"recovery": {"confirm": "a1b2c3", "release": "a1b2c3"}}),
        Case("a release without a confirmation", {"recovery": {"release": "a1b2c3"}}),
        Case("a confirmed recovery", {"recovery": {"confirm": "a1b2c3"}}),
        Case("no metrics", {"metrics": {"enabled": False}}),
        Case("paused", {"paused": True}),
        Case("hibernation", {"hibernate": True}),
        Case("no hibernation in memory", {"hibernate": False, **stored(medium="Memory")}),
        Case("the longest name", resource="a" * 52),
    ),
)

REFUSED = over(
    BASE,
    (
        *network_cases.REFUSED,
        *podspec_cases.REFUSED,
        *extension_cases.REFUSED,
        *extension_cases.reserved(
            containers="etcd", volume="data", path="/var/lib/etcd", port=2380, port_name="client"
        ),
        Case("no size", {"size": ...}, "spec.size: Required value", "spec.size: is required"),
        at_least("size", 0, 1),
        at_most("size", 10, 9),
        Case(
            "an image with capital letters",
            {"image": "a/B:1"},
            "'a/B:1' is not a valid image",
            "spec.image: 'a/B:1' is not a valid image",
        ),
        Case(
            "an image that is too long",
            {"image": "a" * 513},
            "Too long: may not be more than 512",
            "at most 512 characters",
        ),
        Case(
            "an invalid version",
            {"version": "three"},
            "'three' is not a version",
            "spec.version: 'three' is not a version",
        ),
        *(
            Case(
                f"a version with a suffix: {version}",
                {"version": version},
                f"'{version}' is not a version of etcd",
                f"spec.version: '{version}' is not a version of etcd. Set a version of 3.4, 3.5, 3.6 or 3.7",
            )
            for version in ("3.6.0-foo", "3.7.0-rc.0", "3.6.16-debian-12")
        ),
        Case(
            "a version without a patch",
            {"version": "3.6"},
            "'3.6' is not a version",
            "spec.version: '3.6' is not a version",
        ),
        Case(
            "a version that is too long",
            {"version": "3.6.16-" + "1" * 122},
            "may not be more than 128",
            "at most 128 characters",
        ),
        *(
            Case(
                f"version {version}",
                {"version": version},
                f"{version} {SERIES_WORDS}",
                f"spec.version: {version} {SERIES_WORDS}",
            )
            for version in ("3.3.27", "3.8.0", "4.0.0", "2.3.8", "13.6.1", "99.1.0")
        ),
        Case(
            "an image of an unknown version",
            with_image("etcd:v3.3.27"),
            SERIES_WORDS,
            f"spec.version: etcd:v3.3.27 {SERIES_WORDS}",
        ),
        Case("an image without a tag", with_image("etcd"), MISSING_WORDS, f"spec.version: {MISSING_WORDS}"),
        Case(
            "an image tag without a version", with_image("etcd:latest"), MISSING_WORDS, f"spec.version: {MISSING_WORDS}"
        ),
        Case(
            "a registry port instead of a tag",
            with_image("example.com:5000/etcd"),
            MISSING_WORDS,
            f"spec.version: {MISSING_WORDS}",
        ),
        Case(
            "volumes too small for a log",
            stored(size="255Mi"),
            "255Mi is too small",
            "spec.storage.size: 255Mi is too small",
        ),
        Case("volumes of a negative size", stored(size=-1), "greater than or equal to 0", "cannot be negative"),
        Case("an invalid volume size", stored(size="much"), "should match", "is not a quantity"),
        Case("a volume size that is too long", stored(size="1" * 33), "may not be more than 32", "at most 32"),
        Case("an invalid storage class", stored(storageClassName="Fast"), "should match", "does not match"),
        Case(
            "a storage class that is too long",
            stored(storageClassName="a" * 254),
            "may not be more than 253",
            "at most 253",
        ),
        Case(
            "an invalid class of attributes", stored(volumeAttributesClassName="Fast"), "should match", "does not match"
        ),
        Case(
            "a class of attributes that is too long",
            stored(volumeAttributesClassName="a" * 254),
            "may not be more than 253",
            "at most 253",
        ),
        Case("an unknown medium", stored(medium="Paper"), "Unsupported value", "use 'Volume' or 'Memory'"),
        at_least("quotaBackendBytes", 16777215, 16777216),
        at_most("quotaBackendBytes", 17179869185, 17179869184),
        Case(
            "a quota as large as its volume",
            {"quotaBackendBytes": GIB, **stored(size="1Gi")},
            "1073741824 is not below storage.size",
            "spec.quotaBackendBytes: 1073741824 is not below storage.size",
        ),
        Case(
            "compaction of an unknown kind",
            {"autoCompaction": {"mode": "daily"}},
            "Unsupported value",
            "use 'periodic'",
        ),
        Case(
            "an invalid retention",
            {"autoCompaction": {"retention": "an hour"}},
            "spec.autoCompaction.retention in body should match",
            "does not match",
        ),
        Case(
            "a periodic retention without a unit",
            {"autoCompaction": {"retention": "5"}},
            "'5' is not a duration, which mode periodic requires",
            "spec.autoCompaction.retention: '5' is not a duration",
        ),
        Case(
            "a duration as a number of revisions",
            {"autoCompaction": {"mode": "revision"}},
            "'1h' is not a number of revisions",
            "spec.autoCompaction.retention: '1h' is not a number of revisions",
        ),
        Case(
            "defragmentation without a schedule",
            {"defragmentation": {}},
            "schedule: Required value",
            "schedule: is required",
        ),
        Case(
            "a schedule macro",
            {"defragmentation": {"schedule": "@daily"}},
            SCHEDULE_WORDS,
            "does not have the five fields of cron",
        ),
        Case(
            "a schedule that is too long",
            {"defragmentation": {"schedule": f"{','.join('0' * 65)} 0 * * *"}},
            "may not be more than 128",
            "at most 128",
        ),
        at_least("defragmentation.threshold", 0, 1, schedule="0 3 * * *"),
        at_most("defragmentation.threshold", 100, 99, schedule="0 3 * * *"),
        at_least("snapshotCount", 99, 100),
        at_most("snapshotCount", 10000001, 10000000),
        at_least("heartbeatInterval", 9, 10),
        Case(
            "heartbeats too far apart",
            {"heartbeatInterval": 10001, "electionTimeout": 50000},
            "should be less than or equal to 10000",
            "too large; use at most 10000",
        ),
        at_least("electionTimeout", 49, 50),
        at_most("electionTimeout", 50001, 50000),
        Case(
            "an election timeout below five heartbeats",
            {"heartbeatInterval": 201},
            "one late heartbeat would trigger an election. Set at least 1005",
            "spec.electionTimeout: must be at least five times heartbeatInterval",
        ),
        *(
            Case(
                f"an argument that the operator sets: {argument}",
                {"extraArgs": ["--log-level=debug", argument]},
                f"'{argument}' {ARGUMENT_WORDS}",
                f"spec.extraArgs: '{argument}' {ARGUMENT_WORDS}",
            )
            for argument in (
                *(
                    "--name=a",
                    "--data-dir=/x",
                    "--wal-dir=/x",
                    "--listen-client-urls=http://0.0.0.0:1",
                    "--force-new-cluster",
                ),
                *(
                    "--listen-peer-urls=a",
                    "--listen-metrics-urls=a",
                    "--listen-client-http-urls=a",
                    "--advertise-client-urls=a",
                ),
                *(
                    "--initial-advertise-peer-urls=a",
                    "--initial-cluster=a",
                    "--initial-cluster-state=new",
                    "--config-file=/x",
                ),
                *(
                    "--initial-cluster-token=a",
                    "--cert-file=/x",
                    "--key-file=/x",
                    "--trusted-ca-file=/x",
                    "--client-cert-auth",
                ),
                *(
                    "--client-cert-file=/x",
                    "--client-key-file=/x",
                    "--peer-cert-file=/x",
                    "--peer-key-file=/x",
                    "--auto-tls",
                ),
                *(
                    "--peer-trusted-ca-file=/x",
                    "--peer-client-cert-auth=false",
                    "--peer-client-cert-file=/x",
                    "--peer-auto-tls",
                ),
                *(
                    "--quota-backend-bytes=0",
                    "--auto-compaction-mode=revision",
                    "--auto-compaction-retention=1",
                    "--auth-token=jwt",
                ),
                *(
                    "--snapshot-count=5",
                    "--heartbeat-interval=5",
                    "--election-timeout=5",
                    "--strict-reconfig-check=false",
                ),
                *("--unsafe-no-fsync", "--enable-v2", "--enable-grpc-gateway=false", "--experimental-enable-v2v3=/x"),
                *("--experimental-initial-corrupt-check=false", "--experimental-compact-hash-check-enabled=false"),
                *("--feature-gates=A=true,InitialCorruptCheck=false", "--feature-gates=CompactHashCheck=false"),
                *("--discovery=http://a", "--discovery-srv=a", "--proxy=on", "--logger=capnslog", "--log-outputs=/x"),
                *(
                    "--peer-cert-allowed-cn=a",
                    "--peer-cert-allowed-hostname=a",
                    "--peer-skip-client-san-verification=false",
                ),
                *("--experimental-peer-skip-client-san-verification=false",),
                *("--host-whitelist=a", "--version", "--help", "--enable-log-rotation", "--pre-vote=false"),
                *("--v2-deprecation=write-only-drop-data", "--client-cert-allowed-hostname=a", "--peer-crl-file=/x"),
            )
        ),
        *(
            Case(
                f"an invalid flag: {argument}",
                {"extraArgs": [argument]},
                f"'{argument}' is not a flag with its value",
                f"'{argument}' is not a flag",
            )
            for argument in (
                *("256", "-v", "--", "--Log-Level=debug", "--log-level debug", "--log-level", "--foo=1", "--foo"),
                *(
                    "--max-txn-ops=many",
                    "--max-txn-ops=-1",
                    "--backend-batch-limit=010",
                    "--max-request-bytes=1",
                    "--log-level=fatal",
                ),
                *("--max-concurrent-streams=1", "--max-wals=0", "--bcrypt-cost=31", "--socket-reuse-port=yes"),
                *("--cipher-suites=TLS_FOO", "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
                *("--tls-min-version=TLS1.1", "--cors=a.example", "--compact-hash-check-time=0s"),
                *("--feature-gates=Foo=true", "--feature-gates=LeaseCheckpointPersist=true"),
            )
        ),
        *(
            Case(
                f"an argument that Kubernetes rewrites: {argument}",
                {"extraArgs": [argument]},
                "which Kubernetes replaces by a variable",
                f"spec.extraArgs: '{argument}' contains $(NAME)",
            )
            for argument in ("--max-txn-ops=$(N)", "--feature-gates=$(GATES)")
        ),
        Case("an empty argument", {"extraArgs": [""]}, "should be at least 1 chars", "too short"),
        Case(
            "an argument that is too long",
            {"extraArgs": ["--a" * 86]},
            "may not be more than 256",
            "at most 256 characters",
        ),
        Case(
            "too many arguments",
            {"extraArgs": ["--socket-reuse-port"] * 33},
            "must have at most 32 items",
            "at most 32",
        ),
        *(
            Case(
                f"a flag that {version} lacks: {argument}",
                {**given, "extraArgs": [argument]},
                f"'{argument}' does not exist in etcd {version}",
                f"spec.extraArgs: '{argument}' does not exist in etcd {version}",
            )
            for version, argument, given in (
                ("3.7", "--experimental-compaction-batch-limit=1", {"version": "3.7.3"}),
                ("3.7", "--experimental-memory-mlock", with_image("example.com:5000/etcd:v3.7.3")),
                ("3.5", "--feature-gates=AllBeta=true", {"version": "3.5.35"}),
                ("3.4", "--socket-reuse-port", {"version": "3.4.13"}),
            )
        ),
        Case(
            "a flag as an environment variable",
            {"env": [{"name": "ETCD_NAME"}]},
            "that begin with ETCD_",
            "spec.env: variables that begin with ETCD_",
        ),
        *(
            Case(
                f"{field} with the operator's prefix",
                {field: {"a": "b", "etcd.ydzs.io/serves": "clients"}},
                "keys that begin with etcd.ydzs.io/ are reserved for the operator",
                f"spec.{field}: keys that begin with etcd.ydzs.io/ are reserved for the operator",
            )
            for field in ("labels", "annotations")
        ),
        Case(
            "an unknown way to apply changes",
            {"changes": "Manual"},
            "Unsupported value",
            "use 'Automatic' or 'Approved'",
        ),
        Case("an unknown TLS mode", {"tls": {"mode": "rot13"}}, "Unsupported value", "use 'none', 'self'"),
        *(
            Case(
                f"mode secret with a missing Secret: {sorted(lacking)}",
                {"tls": lacking},
                "mode secret requires your own certificates",
                "spec.tls.mode: mode secret requires your own certificates",
            )
            for lacking in (
                {"mode": "secret"},
                {**SECRETS, "peer": {}},
                {"mode": "secret", "peer": {"secretName": "a"}},
            )
        ),
        *(
            Case(
                f"certificates from Secrets in mode {given['mode']}",
                {"tls": given},
                f"mode {given['mode']} does not use your own certificates",
                f"spec.tls.mode: mode {given['mode']} does not use your own certificates",
            )
            for given in (
                {**SECRETS, "mode": "none"},
                {**SECRETS, "mode": "self"},
                {**ISSUED, "client": {"secretName": "b"}},
            )
        ),
        Case(
            "cert-manager without an issuer",
            {"tls": {"mode": "certManager"}},
            "is required in mode certManager",
            "spec.tls.issuer: is required in mode certManager",
        ),
        Case(
            "an issuer in another mode",
            {"tls": {**ISSUED, "mode": "self"}},
            "is used only in mode certManager",
            "spec.tls.issuer: is used only in mode certManager",
        ),
        Case(
            "an issuer without a name", {"tls": {**ISSUED, "issuer": {}}}, "name: Required value", "name: is required"
        ),
        Case("an invalid issuer name", {"tls": {**ISSUED, "issuer": {"name": "A"}}}, "should match", "does not match"),
        Case(
            "an issuer name that is too long",
            {"tls": {**ISSUED, "issuer": {"name": "a" * 254}}},
            "more than 253",
            "at most 253",
        ),
        Case(
            "an issuer of an unknown kind",
            {"tls": {**ISSUED, "issuer": {"name": "a", "kind": "Notary"}}},
            "Unsupported value",
            "use 'Issuer' or 'ClusterIssuer'",
        ),
        *(
            Case(
                f"{part} Secret with {words}",
                {"tls": {**SECRETS, part: {"secretName": name}}},
                api_refusal,
                operator_error,
            )
            for part in ("peer", "client")
            for name, words, api_refusal, operator_error in (
                ("a/b", "a namespace", "should match", "does not match"),
                ("a" * 254, "a name that is too long", "may not be more than 253", "at most 253"),
            )
        ),
        Case(
            "an unknown mode of client authentication",
            {"tls": {"mode": "self", "client": {"auth": "maybe"}}},
            "Unsupported value",
            "use 'none' or 'required'",
        ),
        Case(
            "authentication with an invalid Secret name",
            {"auth": {"rootSecretName": "A"}},
            "should match",
            "does not match",
        ),
        Case(
            "authentication with a Secret name that is too long",
            {"auth": {"rootSecretName": "a" * 254}},
            "more than 253",
            "at most 253",
        ),
        Case(
            "an unknown user for applications",
            {"auth": {"connectAs": "app"}},
            "Unsupported value",
            "use 'client' or 'root'",
        ),
        Case(
            "snapshots without a schedule",
            {"backup": {"destination": NIGHTLY["destination"]}},
            "schedule: Required value",
            "schedule: is required",
        ),
        Case(
            "snapshots without a destination",
            {"backup": {"schedule": "0 0 * * *"}},
            "destination: Required value",
            "destination: is required",
        ),
        Case(
            "a schedule of six fields",
            backed_up(schedule="0 0 2 * * *"),
            SCHEDULE_WORDS,
            "does not have the five fields of cron",
        ),
        Case(
            "snapshots on a schedule that is too long",
            backed_up(schedule=f"{','.join('0' * 65)} 0 * * *"),
            "more than 128",
            "at most 128",
        ),
        at_least("backup.retention", 0, 1, **NIGHTLY),
        at_most("backup.retention", 1001, 1000, **NIGHTLY),
        *(
            Case(
                f"snapshots to {words}",
                backed_up(destination=destination),
                "exactly one destination is required. Set either volume or s3",
                "spec.backup.destination: exactly one destination is required",
            )
            for words, destination in (("no store", {}), ("two stores", {"volume": VOLUME, "s3": S3}))
        ),
        *(
            Case(f"snapshots to a store with {words}", backed_up(destination=store), api_refusal, refusal)
            for words, store, api_refusal, refusal in REFUSED_STORES
        ),
        Case("a restore without a source", {"restore": {}}, "from: Required value", "from: is required"),
        *(
            Case(
                f"a restore from {words}",
                restored(**source),
                "exactly one source is required. Set one of backup, volume and s3",
                "spec.restore.from: exactly one source is required",
            )
            for words, source in (
                ("no store", {"file": "a"}),
                ("a backup and a volume", {"backup": "a", "volume": VOLUME}),
                ("a volume and a bucket", {"volume": VOLUME, "s3": S3, "file": "a"}),
            )
        ),
        Case(
            "a restore without a file",
            restored(volume=VOLUME),
            "is missing: a volume or bucket may have many snapshots",
            "spec.restore.from.file: is missing: a volume or bucket may have many snapshots",
        ),
        Case(
            "a restore from a backup with a file",
            restored(backup="monday", file="a"),
            "must not be set with backup",
            "spec.restore.from.file: must not be set with backup",
        ),
        *(
            Case(f"restore from a store with {words}", restored(**store, file="a"), api_refusal, refusal)
            for words, store, api_refusal, refusal in REFUSED_STORES
        ),
        *(
            Case(f"a restore with {words}", restored(**source), api_refusal, operator_error)
            for words, source, api_refusal, operator_error in (
                ("an invalid backup name", {"backup": "A"}, "should match", "does not match"),
                ("a backup name that is too long", {"backup": "a" * 254}, "more than 253", "at most 253"),
                ("an absolute file", {"volume": VOLUME, "file": "/etc/passwd"}, "should match", "does not match"),
                ("a file outside of the volume", {"volume": VOLUME, "file": "../a"}, "should match", "does not match"),
                ("a file name that is too long", {"volume": VOLUME, "file": "a" * 513}, "more than 512", "at most 512"),
            )
        ),
        Case(
            "a restore into memory",
            {**FROM_BACKUP, **stored(medium="Memory")},
            "a restore needs a volume",
            "spec.restore: a restore needs a volume",
        ),
        Case(
            "hibernation in memory",
            {"hibernate": True, **stored(medium="Memory")},
            "members in memory would lose all data with their pods",
            "spec.hibernate: members in memory would lose all data with their pods",
        ),
        Case(
            "adoption into memory",
            {**ADOPTED, **stored(medium="Memory")},
            "members in memory have no volumes that could be adopted",
            "spec.adopt: members in memory have no volumes that could be adopted",
        ),
        Case(
            "adoption and a restore",
            {**ADOPTED, **FROM_BACKUP},
            "either with adopted volumes or with a snapshot",
            "spec.adopt: a cluster starts either with adopted volumes or with a snapshot",
        ),
        *ADOPTION_REFUSED,
        Case(
            "a released token that is too long",
            {"recovery": {"confirm": "a", "release": "a" * 65}},
            "more than 64",
            "at most 64",
        ),
        Case("a token that is too long", {"recovery": {"confirm": "a" * 65}}, "more than 64", "at most 64"),
        Case("a name that starts with a digit", {}, NAME_WORDS, NAME_WORDS, resource="1cache"),
        Case("a name with a dot", {}, NAME_WORDS, NAME_WORDS, resource="a.b"),
        Case("a name too long for a StatefulSet's pods", {}, NAME_WORDS, NAME_WORDS, resource="a" * 53),
    ),
)

ONLY_HERE = over(
    BASE,
    (
        Case("minute 60", backed_up(schedule="60 2 * * *"), operator_error="bad minute"),
        Case("a day that does not exist", backed_up(schedule="0 0 30 2 *"), operator_error="bad day-of-month"),
        Case(
            "an image tag with another version",
            {"image": "etcd:v3.5.9"},
            operator_error="spec.version: is 3.6.16, but the image's tag is 3.5.9",
        ),
    ),
)
"""Specs that no schema can refuse: the operator's own validation does, at admission and in the reconcile."""
