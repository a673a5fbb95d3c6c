"""Specs that the Memcached CRD accepts, specs that it rejects (one for every constraint), and a change of each field.

The unit tests check them with the operator's own validation, and `tests/platform/api` with a real API server.
"""

from __future__ import annotations

from typing import Any

from tests.support import extension_cases, network_cases, podspec_cases
from tests.support.cases import Case, at_least, at_most


def limit(memory: str | int, **spec: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"memory": memory}}, **spec}


BIG = {"memoryMB": 1048576}
TLS = {"tls": {"secretName": "cache-tls"}}
ISSUED: dict[str, Any] = {"mode": "certManager", "issuer": {"name": "ours"}}
USERS = {"auth": {"secretName": "users"}}
OLD_WORDS = "1.5.17 does not support tls, auth and warmRestart, which need memcached 1.5.18"
LIMIT_WORDS = "memory is less than memoryMB, maxConnections and threads may need; use at least 147Mi"
ITEM_WORDS = "33 is more than half of memoryMB, the maximum that memcached accepts"
NAME_WORDS = "metadata.name is also the name of the Service"

ACCEPTED = (
    *network_cases.ACCEPTED,
    *podspec_cases.ACCEPTED,
    *extension_cases.ACCEPTED,
    Case("the seed manifest"),
    Case("no servers", {"size": 0}),
    Case("the maximum size", {"size": 1000}),
    Case("an image with a registry port and a digest", {"image": f"example.com:5000/a/b@sha256:{'0' * 64}"}),
    Case("an image in a registry with an IPv6 address", {"image": "[::1]:5000/memcached"}),
    *(
        Case(f"version {version}", {"version": version})
        for version in ("1.6.18-alpine", "1.6.38-alpine3.22", "1.6", "1-bookworm", "latest", "alpine")
    ),
    Case("an image with a private tag", {"image": "registry.example.com:5000/cache:prod-7"}),
    Case("an image with a digest", {"image": f"memcached@sha256:{'0' * 64}"}),
    Case("a version that is ignored because of the image", {"image": "memcached:edge", "version": "edge"}),
    Case("the minimum memory", {"memoryMB": 8, "maxItemSizeMB": 4}),
    Case("the maximum memory", {**BIG, "maxItemSizeMB": 1024}),
    Case("the maximum connections and threads", {"maxConnections": 1000000, "threads": 128}),
    Case("the minimum connections and threads", {"maxConnections": 16, "threads": 1}),
    Case("the lowest port", {"containerPort": 1024}),
    Case("the highest port", {"containerPort": 65535}),
    Case("the minimum memory limit", limit("147Mi")),
    Case("a memory limit as a number of bytes", limit(147 * 2**20)),
    Case("a memory limit with a decimal point", limit("0.15Gi")),
    Case(
        "additional arguments", {"extraArgs": ["-v", "--disable-evictions", "-o", "modern,no_lru_crawler", "-R", "40"]}
    ),
    Case(
        "flags with the prefix of a reserved flag",
        {"extraArgs": ["--protocol=ascii", "--memory-file=/x", "--lock-memory"]},
    ),
    *(
        Case(f"an argument that the exporter does not mind: {argument}", {"metrics": {}, "extraArgs": [argument]})
        for argument in ("-Bascii", "--protocol=auto")
    ),
    Case("SASL without metrics", {"metrics": {"enabled": False}, "extraArgs": ["-S", "-Bbinary"]}),
    Case("paused", {"paused": True}),
    Case("no connection Secret", {"connectionSecret": False}),
    Case("changes that wait for an approval", {"changes": "Approved"}),
    Case("the longest name", resource="a" * 63),
    Case("a StatefulSet", {"workload": "StatefulSet"}, resource="a" * 52),
    Case("an explicit Deployment", {"workload": "Deployment"}),
    Case("warm restart", {"warmRestart": True, "memoryMB": 64}),
    Case("users", {"auth": {"secretName": "users"}}),
    Case("generated users", {"auth": {}}),
    Case("TLS", {"tls": {"secretName": "cache.tls"}}),
    Case("TLS in mode secret", {"tls": {"mode": "secret", "secretName": "a"}}),
    Case("explicitly without TLS", {"tls": {"mode": "none"}}),
    Case("self-signed TLS", {"tls": {"mode": "self"}}),
    Case("self-signed TLS with client certificates", {"tls": {"mode": "self", "clientAuth": "required"}}),
    Case("TLS by cert-manager", {"tls": {**ISSUED, "issuer": {"name": "a", "kind": "ClusterIssuer"}}}),
    Case("an old version without TLS", {"version": "1.4.39", "tls": {"mode": "none"}}),
    Case("an argument that conflicts with TLS only", {"tls": {"mode": "none"}, "extraArgs": ["-Z"]}),
    Case("the minimum memory limit explicitly without TLS", limit("147Mi", tls={"mode": "none"})),
    Case("TLS with client certificates", {"tls": {"secretName": "a", "clientAuth": "required"}}),
    Case("TLS with additional options", {**TLS, "extraArgs": ["--extended=ssl_min_version=3,ssl_wbuf_size=16"]}),
    Case("an old version without unsupported features", {"version": "1.4.39"}),
    Case("an old image with TLS", {"image": "memcached:1.4.39", **TLS}),
    Case("the first version with all features", {"version": "1.5.18-alpine", **TLS, **USERS, "warmRestart": True}),
    Case("metrics", {"metrics": {}}),
    Case("no additional arguments", {"extraArgs": []}),
    Case("external storage", {"extstore": {"sizeMB": 512}, "maxItemSizeMB": 4}),
    Case("external storage on a volume", {"extstore": {"sizeMB": 512, "storageClassName": "fast"}}),
    Case(
        "arguments with values of their own or attached",
        {"extraArgs": ["-f1.25", "-n", "48", "--listen-backlog=2048", "-vvR40", "-oslab_automove=2,idle_timeout=60"]},
    ),
    Case("the longest pause", {"updateStrategy": {"pauseSeconds": 3600}}),
    Case("metrics at the lowest port", {"metrics": {"enabled": True, "port": 1024}}),
    Case("metrics at the highest port", {"metrics": {"enabled": False, "port": 65535}}),
    Case("autoscaling", {"autoscaling": {"maxReplicas": 1}}),
    Case(
        "autoscaling at its upper bounds",
        {"autoscaling": {"minReplicas": 1000, "maxReplicas": 1000, "targetCPUUtilization": 1000}},
    ),
    Case(
        "autoscaling at its lower bounds",
        {"autoscaling": {"minReplicas": 1, "maxReplicas": 2, "targetCPUUtilization": 1}},
    ),
    Case("all features", {**TLS, **USERS, "warmRestart": True, "workload": "StatefulSet", "metrics": {}}),
    Case("the minimum memory limit with TLS", limit("183Mi", **TLS)),
    Case("the minimum connections for four threads", {"threads": 4, "maxConnections": 31}),
)

CHANGES: dict[str, dict[str, Any]] = {
    "size": {"size": 2},
    "image": {"image": "example.com/memcached:1"},
    "version": {"version": "1.6.18"},
    "workload": {"workload": "Deployment"},
    "memoryMB": {"memoryMB": 128},
    "maxConnections": {"maxConnections": 512},
    "threads": {"threads": 2},
    "maxItemSizeMB": {"maxItemSizeMB": 2},
    "extraArgs[]": {"extraArgs": ["-v"]},
    "containerPort": {"containerPort": 11311},
    "warmRestart": {"warmRestart": True},
    "auth.secretName": {"auth": {"secretName": "users"}},
    "tls.secretName": TLS,
    "tls.mode": {"tls": {"mode": "self"}},
    "tls.issuer.name": {"tls": ISSUED},
    "tls.issuer.kind": {"tls": {**ISSUED, "issuer": {"name": "ours", "kind": "ClusterIssuer"}}},
    "tls.clientAuth": {"tls": {"secretName": "cache-tls", "clientAuth": "required"}},
    "metrics.enabled": {"metrics": {"enabled": True}},
    "metrics.port": {"metrics": {"port": 9151}},
    "extstore.sizeMB": {"extstore": {"sizeMB": 512}},
    "extstore.storageClassName": {"extstore": {"sizeMB": 512, "storageClassName": "fast"}},
    "updateStrategy.pauseSeconds": {"updateStrategy": {"pauseSeconds": 60}},
    "metrics.image": {"metrics": {"image": "example.com/exporter:1"}},
    "autoscaling.minReplicas": {"autoscaling": {"minReplicas": 2, "maxReplicas": 3}},
    "autoscaling.maxReplicas": {"autoscaling": {"maxReplicas": 4}},
    "autoscaling.targetCPUUtilization": {"autoscaling": {"maxReplicas": 3, "targetCPUUtilization": 50}},
    "network.enabled": {"network": {"enabled": False}},
    **{
        f"network.{clients}[].{path}": {**more, "network": {clients: [peer]}}
        for clients, more in (("allowFrom", {}), ("metricsFrom", {"metrics": {"port": 9152}}))
        for path, peer in network_cases.PEERS.items()
    },
    "podDisruptionBudget": {"podDisruptionBudget": {}},
    "podDisruptionBudget.minAvailable": {"podDisruptionBudget": {"minAvailable": 1}},
    "podDisruptionBudget.maxUnavailable": {"podDisruptionBudget": {"maxUnavailable": "50%"}},
    "resources.limits[]": {"resources": {"limits": {"memory": "1Gi"}}},
    "resources.requests[]": {"resources": {"requests": {"cpu": "20m"}}},
    "nodeSelector[]": {"nodeSelector": {"disk": "fast"}},
    "tolerations[].key": {"tolerations": [{"key": "a"}]},
    "tolerations[].operator": {"tolerations": [{"operator": "Exists"}]},
    "tolerations[].value": {"tolerations": [{"key": "a", "value": "b"}]},
    "tolerations[].effect": {"tolerations": [{"key": "a", "effect": "NoExecute"}]},
    "tolerations[].tolerationSeconds": {"tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 5}]},
    "affinity": {
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "rack"}}
                ]
            }
        }
    },
    "topologySpread[].topologyKey": {"topologySpread": [{"topologyKey": "zone"}]},
    "topologySpread[].maxSkew": {"topologySpread": [{"topologyKey": "zone", "maxSkew": 2}]},
    "topologySpread[].whenUnsatisfiable": {
        "topologySpread": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    },
    "priorityClassName": {"priorityClassName": "high"},
    "labels[]": {"labels": {"team": "shop"}},
    "annotations[]": {"annotations": {"example.com/contact": "shop"}},
    **extension_cases.VARIABLES,
    **extension_cases.CHANGES,
    "connectionSecret": {"connectionSecret": False},
    "paused": {"paused": True},
}
"""A change for each leaf of the spec; each change gives different objects."""


REFUSED = (
    *network_cases.REFUSED,
    *podspec_cases.REFUSED,
    *extension_cases.REFUSED,
    *extension_cases.reserved(
        containers="exporter", volume="items", path="/var/cache/memcached", port=11211, port_name="metrics"
    ),
    Case("a missing size", {"size": ...}, "spec.size: Required value", "spec.size: is required"),
    Case(
        "a size that is not a number",
        {"size": "three"},
        "must be of type integer",
        "is not an integer; use an integer without quotes",
    ),
    at_least("size", -1, 0),
    at_most("size", 1001, 1000),
    Case("an empty image", {"image": ""}, "'' is not a valid image", "spec.image: '' is not a valid image"),
    Case(
        "an image with capital letters",
        {"image": "a/B:1"},
        "'a/B:1' is not a valid image",
        "'a/B:1' is not a valid image",
    ),
    Case("a too long image", {"image": "a" * 513}, "Too long: may not be more than 512", "at most 512 characters"),
    *(
        Case(
            f"a version that memcached does not have: {version}",
            {"version": version},
            f"'{version}' is not a version of memcached 1.4 to 1.6",
            f"spec.version: '{version}' is not a version of memcached 1.4 to 1.6",
        )
        for version in ("1.6 38", "99.1.0", "1.7.0", "2.0.1", "junk", "v1.6.38", "1.6.38.1", "1.66.38")
    ),
    Case("a too long version", {"version": "1" * 129}, "may not be more than 128", "at most 128 characters"),
    at_least("memoryMB", 7, 8),
    at_most("memoryMB", 1048577, 1048576),
    at_least("maxConnections", 15, 16),
    at_most("maxConnections", 1000001, 1000000),
    at_least("threads", 0, 1),
    at_most("threads", 129, 128),
    at_least("maxItemSizeMB", 0, 1),
    Case(
        "items above the maximum of memcached",
        {**BIG, "maxItemSizeMB": 1025},
        "should be less than or equal to 1024",
        "too large; use at most 1024",
    ),
    at_least("containerPort", 1023, 1024),
    at_most("containerPort", 65536, 65535),
    Case("items larger than half of the memory", {"memoryMB": 64, "maxItemSizeMB": 33}, ITEM_WORDS, ITEM_WORDS),
    Case("a too low memory limit", limit("146Mi"), LIMIT_WORDS, LIMIT_WORDS),
    Case("a too low memory limit in bytes", limit(147 * 2**20 - 1), LIMIT_WORDS, LIMIT_WORDS),
    Case(
        "a too low memory limit for more connections",
        limit("147Mi", maxConnections=4096),
        "use at least 211Mi",
        "use at least 211Mi",
    ),
    *(
        Case(
            f"a reserved argument: {argument}",
            {"extraArgs": ["-v", argument]},
            f"'{argument}' is not allowed",
            f"spec.extraArgs: '{argument}' is not allowed",
        )
        for argument in (
            *("-m", "-m64", "-p", "-c", "-t", "-I", "-d", "-u", "-l", "-U", "-P", "-a", "-s", "-h", "-i", "-V"),
            *("-vd", "-vvm5", "-vAZrt2", "--port", "--port=1", "--po", "--m=5", "--memory-limit=9", "--conn-limit"),
            *("--threads", "--max-item-size=2m", "--max-i=2m", "--daemon", "--user=root", "--listen", "--udp-port=1"),
            *("--pidfile", "--unix-socket", "--unix-mask", "--help", "--license", "--version"),
        )
    ),
    Case("an empty argument", {"extraArgs": [""]}, "should be at least 1 chars", "too short"),
    Case("a too long argument", {"extraArgs": ["-v" * 129]}, "may not be more than 256", "at most 256 characters"),
    Case("too many arguments", {"extraArgs": ["-v"] * 33}, "must have at most 32 items", "at most 32"),
    Case("paused as a string", {"paused": "perhaps"}, "must be of type boolean", "is not a boolean; use true or false"),
    Case("arguments that are not a list", {"extraArgs": "-v"}, "must be of type array", "is not a list; use a list"),
    Case("a version that is a number", {"version": 1.6}, "must be of type string", "put it in quotes"),
    Case(
        "an unknown way to apply changes", {"changes": "Manual"}, "Unsupported value", "use 'Automatic' or 'Approved'"
    ),
    Case("an unknown workload", {"workload": "DaemonSet"}, "Unsupported value", "use 'Deployment'"),
    Case(
        "a name too long for a StatefulSet",
        {"workload": "StatefulSet"},
        "which may have at most 52 characters",
        "which may have at most 52 characters",
        resource="a" * 53,
    ),
    Case("warm restart as a string", {"warmRestart": "yes"}, "must be of type boolean", "is not a boolean"),
    Case(
        "warm restart with too little memory",
        {"warmRestart": True, "memoryMB": 63},
        "63 is too small for warmRestart",
        "spec.memoryMB: 63 is too small for warmRestart",
    ),
    *(
        Case(
            f"an argument that conflicts with warm restart: {argument}",
            {"warmRestart": True, "extraArgs": ["-v", argument]},
            f"'{argument}' conflicts with spec.warmRestart",
            f"spec.extraArgs: '{argument}' conflicts with spec.warmRestart",
        )
        for argument in (
            "-e",
            "-e/x",
            "-ve",
            "--memory-file=/x",
            "--memory-f",
            "-L",
            "--enable-l",
        )
    ),
    *(
        Case(
            f"an argument that sets up external storage: {argument}",
            {"extraArgs": ["-v", argument]},
            f"'{argument}' sets up external storage",
            f"spec.extraArgs: '{argument}' sets up external storage",
        )
        for argument in ("ext_path=/x:1G", "-oext_path=/x", "--extended=modern,ext_path=/x:1G,ext_threads=2")
    ),
    *(
        Case(
            f"an argument that Kubernetes rewrites: {argument!r}",
            {"extraArgs": [argument]},
            "write the value itself",
            "write the value itself",
        )
        for argument in ("$(FLAG)", "-R$(N)", "-v\n-m5")
    ),
    *(
        Case(
            f"arguments that memcached does not accept: {' '.join(arguments)}",
            {"extraArgs": arguments},
            "that memcached would not accept",
            "that memcached would not accept",
        )
        for arguments in (
            *(["junk"], ["-v", "junk"], ["--junk"], ["-j"], ["-f"], ["-f1"], ["-f", "x"], ["-n0"], ["-R", "0"], ["--"]),
            *(["-o"], ["-o", "junk"], ["-o", "hot_lru_pct=80"], ["-o", "tail_repair_time=1"], ["-o", "modern,"]),
            *(["-o", "slab_automove_window=322800712"], ["-o", "slab_automove=3"], ["-v -F"], ["--disable-ev"], ["-D"]),
        )
    ),
    at_least("extstore.sizeMB", 511, 512),
    at_most("extstore.sizeMB", 16777217, 16777216),
    Case("extstore without a size", {"extstore": {}}, "Required value", "required"),
    Case(
        "extstore with a storage class that is not a name",
        {"extstore": {"sizeMB": 512, "storageClassName": "A b"}},
        "should match",
        "does not match",
    ),
    Case(
        "extstore with a too long storage class",
        {"extstore": {"sizeMB": 512, "storageClassName": "a" * 254}},
        "may not be more than 253",
        "at most 253",
    ),
    Case(
        "extstore with an empty storage class",
        {"extstore": {"sizeMB": 512, "storageClassName": ""}},
        "spec.extstore.storageClassName",
        "spec.extstore.storageClassName",
    ),
    Case(
        "extstore with warm restart",
        {"extstore": {"sizeMB": 512}, "warmRestart": True},
        "conflicts with warmRestart",
        "spec.extstore: conflicts with warmRestart",
    ),
    Case(
        "extstore with larger items than a write buffer",
        {"extstore": {"sizeMB": 512}, "maxItemSizeMB": 5},
        "5 is more than a write buffer",
        "spec.maxItemSizeMB: 5 is more than a write buffer",
    ),
    *(
        Case(
            f"an argument that conflicts with TLS: {argument}",
            {**TLS, "extraArgs": [argument]},
            f"'{argument}' conflicts with spec.tls",
            f"spec.extraArgs: '{argument}' conflicts with spec.tls",
        )
        for argument in (
            "-Z",
            "-vZ",
            "--enable-ssl",
            "--enable-s",
            "ssl_verify_mode=0",
            *(
                "-ossl_key=/x",
                "--extended=ssl_chain_cert=/x",
                "ssl_ca_cert=/x",
                "ssl_keyformat=2",
                "a,ssl_verify_mode=1",
            ),
        )
    ),
    *(
        Case(
            f"an argument that conflicts with users: {argument}",
            {**USERS, "extraArgs": [argument]},
            f"'{argument}' conflicts with spec.auth",
            f"spec.extraArgs: '{argument}' conflicts with spec.auth",
        )
        for argument in ("-Y/x", "--auth-file=/x", "-S", "-vS", "--enable-sasl", "-B", "--protocol=binary")
    ),
    *(
        Case(
            f"an argument that conflicts with metrics: {argument}",
            {"metrics": {}, "extraArgs": [argument]},
            f"'{argument}' conflicts with spec.metrics",
            f"spec.extraArgs: '{argument}' conflicts with spec.metrics",
        )
        for argument in ("-S", "-vS", "--enable-sasl", "-Bbinary", "-B", "-vBbinary", "--protocol=binary", "--proto")
    ),
    *(
        Case(f"an old version with {name}", {"version": "1.5.17", **given}, OLD_WORDS, f"spec.version: {OLD_WORDS}")
        for name, given in (("TLS", TLS), ("users", USERS), ("warm restart", {"warmRestart": True}))
    ),
    Case(
        "users with a too long Secret name",
        {"auth": {"secretName": "a" * 254}},
        "may not be more than 253",
        "at most 253",
    ),
    Case("users with an invalid Secret name", {"auth": {"secretName": "A"}}, "should match", "does not match"),
    Case(
        "TLS without a Secret",
        {"tls": {}},
        "is required with mode secret",
        "spec.tls.secretName: is required with mode secret",
    ),
    *(
        Case(
            f"a Secret name in TLS mode {given['mode']}",
            {"tls": {**given, "secretName": "a"}},
            f"is not allowed with mode {given['mode']}",
            f"spec.tls.secretName: is not allowed with mode {given['mode']}",
        )
        for given in ({"mode": "none"}, {"mode": "self"}, ISSUED)
    ),
    Case("an unknown TLS mode", {"tls": {"mode": "rot13"}}, "Unsupported value", "use 'none', 'self'"),
    Case(
        "cert-manager without an issuer",
        {"tls": {"mode": "certManager"}},
        "is required in mode certManager",
        "spec.tls.issuer: is required in mode certManager",
    ),
    Case(
        "an issuer in another TLS mode",
        {"tls": {**ISSUED, "mode": "self"}},
        "is used only in mode certManager",
        "spec.tls.issuer: is used only in mode certManager",
    ),
    Case("an issuer without a name", {"tls": {**ISSUED, "issuer": {}}}, "name: Required value", "name: is required"),
    Case("an invalid issuer name", {"tls": {**ISSUED, "issuer": {"name": "A"}}}, "should match", "does not match"),
    Case(
        "a too long issuer name",
        {"tls": {**ISSUED, "issuer": {"name": "a" * 254}}},
        "may not be more than 253",
        "at most 253",
    ),
    Case(
        "an unknown kind of issuer",
        {"tls": {**ISSUED, "issuer": {"name": "a", "kind": "Vault"}}},
        "Unsupported value",
        "use 'Issuer' or 'ClusterIssuer'",
    ),
    Case(
        "self-signed TLS with an old version",
        {"version": "1.5.17", "tls": {"mode": "self"}},
        OLD_WORDS,
        f"spec.version: {OLD_WORDS}",
    ),
    Case(
        "TLS with a too long Secret name", {"tls": {"secretName": "a" * 254}}, "may not be more than 253", "at most 253"
    ),
    Case("TLS with a Secret of another namespace", {"tls": {"secretName": "a/b"}}, "should match", "does not match"),
    Case(
        "an unknown clientAuth",
        {"tls": {"secretName": "a", "clientAuth": "maybe"}},
        "Unsupported value",
        "use 'none' or 'required'",
    ),
    at_least("updateStrategy.pauseSeconds", -1, 0),
    at_most("updateStrategy.pauseSeconds", 3601, 3600),
    at_least("metrics.port", 1023, 1024),
    at_most("metrics.port", 65536, 65535),
    Case(
        "an exporter image with a space",
        {"metrics": {"image": "a b"}},
        "'a b' is not a valid image",
        "spec.metrics.image: 'a b' is not a valid image",
    ),
    Case(
        "a too long exporter image",
        {"metrics": {"image": "a" * 513}},
        "Too long: may not be more than 512",
        "at most 512 characters",
    ),
    Case("metrics enabled by a string", {"metrics": {"enabled": "on"}}, "must be of type boolean", "is not a boolean"),
    Case(
        "metrics at the servers' port",
        {"metrics": {"port": 11211}},
        "11211 is also containerPort",
        "spec.metrics.port: 11211 is also containerPort",
    ),
    Case(
        "autoscaling without a maximum", {"autoscaling": {}}, "maxReplicas: Required value", "maxReplicas: is required"
    ),
    at_least("autoscaling.minReplicas", 0, 1, maxReplicas=2),
    at_most("autoscaling.minReplicas", 1001, 1000, maxReplicas=2),
    at_least("autoscaling.maxReplicas", 0, 1),
    at_most("autoscaling.maxReplicas", 1001, 1000),
    at_least("autoscaling.targetCPUUtilization", 0, 1, maxReplicas=2),
    at_most("autoscaling.targetCPUUtilization", 1001, 1000, maxReplicas=2),
    Case(
        "autoscaling with a minimum above the maximum",
        {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}},
        "3 is greater than maxReplicas",
        "spec.autoscaling.minReplicas: 3 is greater than maxReplicas",
    ),
    Case(
        "too few connections for the threads",
        {"threads": 8, "maxConnections": 50},
        "would not start; use at least 51",
        "spec.maxConnections: too small: memcached reserves connections for its threads",
    ),
    Case("a too low memory limit for TLS", limit("182Mi", **TLS), "use at least 183Mi", "use at least 183Mi"),
    Case("a name that starts with a digit", {}, NAME_WORDS, NAME_WORDS, resource="1cache"),
    Case("a name with a dot", {}, NAME_WORDS, NAME_WORDS, resource="a.b"),
    Case("a name too long for a Service", {}, NAME_WORDS, NAME_WORDS, resource="a" * 64),
)
