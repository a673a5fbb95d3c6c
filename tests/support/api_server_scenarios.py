"""Request sequences that run against the in-memory API server and against a real one.

Each scenario is a list of requests by named field managers. `replay` sends them and returns the observable results: the
owner of each field, whether the version changed, and the errors. The results of a real kube-apiserver are recorded in
`tests/recorded/kubernetes/kube-apiserver.json`; the in-memory server must produce the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import (
    AUTOSCALER,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE,
    STATEFUL_SET,
    Kind,
    Obj,
)
from simulator.api_server.requests import value_at
from simulator.api_server.server_side_apply import read_records
from tests.harness import Actor

WIDGET = Kind("test.example.com", "v1", "Widget", "widgets")
"""A custom resource with a status subresource and a scale subresource for spec.size."""

WIDGET_CRD: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.test.example.com"},
    "spec": {
        "group": WIDGET.group,
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": WIDGET.version,
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"},
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer"},
                                    "names": {"type": "array", "items": {"type": "string"}},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}},
                            },
                        },
                    }
                },
            }
        ],
    },
}

Do = Callable[..., None]
Scenario = Callable[[Do], None]


def deployment(**container: Any) -> Obj:
    """Build a Deployment `it` without pods, as an operator applies it."""
    labels = {"app": "it"}
    only: Obj = {"name": "main", "image": "image:1"} | container
    template = {"metadata": {"labels": labels}, "spec": {"containers": [only]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "it"}, "spec": spec}


def config_map(values: Mapping[str, str], **metadata: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "it", **metadata}, "data": dict(values)}


def service(*ports: Obj) -> Obj:
    spec = {"clusterIP": "None", "selector": {"app": "it"}, "ports": list(ports)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "it"}, "spec": spec}


def widget(spec: Obj, **rest: Any) -> Obj:
    return {"apiVersion": WIDGET.api_version, "kind": "Widget", "metadata": {"name": "it"}, "spec": spec, **rest}


def apply_twice(do: Do) -> None:
    do(
        "op",
        "apply",
        DEPLOYMENT,
        deployment(ports=[{"containerPort": 80, "name": "web"}], env=[{"name": "A", "value": "1"}]),
    )
    do(
        "op",
        "apply",
        DEPLOYMENT,
        deployment(ports=[{"containerPort": 80, "name": "web"}], env=[{"name": "A", "value": "1"}]),
    )
    do("op", "apply", DEPLOYMENT, deployment())
    do("op", "apply", DEPLOYMENT, deployment())


def apply_of_less_takes_back(do: Do) -> None:
    more = deployment(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], args=["-v"])
    more["metadata"]["labels"] = {"a": "1", "b": "2"}
    more["spec"]["strategy"] = {"type": "Recreate"}
    do("op", "apply", DEPLOYMENT, more, see=["spec.strategy", "metadata.labels"])
    less = deployment(env=[{"name": "B", "value": "2"}])
    less["metadata"]["labels"] = {"b": "2"}
    do("op", "apply", DEPLOYMENT, less, see=["spec.strategy.type", "metadata.labels"])


def a_person_scales_and_the_operator_takes_it_back(do: Do) -> None:
    do("op", "apply", DEPLOYMENT, deployment())
    do("person", "merge", DEPLOYMENT, {"spec": {"paused": True, "minReadySeconds": 5}})
    applied = deployment()
    applied["spec"]["minReadySeconds"] = 3
    do("op", "apply", DEPLOYMENT, applied, see=["spec.minReadySeconds"])
    do("op", "apply", DEPLOYMENT, applied, force=True, see=["spec.minReadySeconds", "spec.paused"])
    do("person", "merge", DEPLOYMENT, {"spec": {"minReadySeconds": 5}})
    do("person", "merge", DEPLOYMENT, {"spec": {"minReadySeconds": 5}})


def two_appliers_share_a_value(do: Do) -> None:
    do("one", "apply", CONFIG_MAP, config_map({"a": "1", "b": "1"}))
    do("two", "apply", CONFIG_MAP, config_map({"a": "1"}))
    do("two", "apply", CONFIG_MAP, config_map({"a": "2"}))
    do("one", "apply", CONFIG_MAP, config_map({"b": "1"}), see=["data"])
    do("two", "apply", CONFIG_MAP, config_map({}), see=["data"])


def a_value_removed_by_a_person_comes_back(do: Do) -> None:
    do("op", "apply", CONFIG_MAP, config_map({"a": "1"}, labels={"x": "y"}))
    do(
        "person",
        "merge",
        CONFIG_MAP,
        {"metadata": {"labels": None}, "data": {"a": None, "c": "3"}},
        see=["metadata.labels"],
    )
    do("op", "apply", CONFIG_MAP, config_map({"a": "1"}, labels={"x": "y"}), see=["metadata.labels", "data"])


def another_managers_items_stay(do: Do) -> None:
    do("op", "apply", SERVICE, service({"port": 80, "name": "web"}), see=["spec.ports"])
    do(
        "mesh",
        "apply",
        SERVICE,
        {**service({"port": 81, "name": "mesh"}), "spec": {"ports": [{"port": 81, "name": "mesh"}]}},
    )
    do("op", "apply", SERVICE, service({"port": 82, "name": "late"}, {"port": 80, "name": "web"}))
    do("op", "apply", SERVICE, service({"port": 82, "name": "late"}))
    do("mesh", "merge", SERVICE, {"spec": {"selector": {"app": "other"}}})


def an_item_goes_with_what_others_set_in_it(do: Do) -> None:
    two = deployment()
    two["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "side:1"})
    do("op", "apply", DEPLOYMENT, two)
    containers = [{"name": "main", "image": "image:1"}, {"name": "side", "image": "side:2"}]
    do("person", "merge", DEPLOYMENT, {"spec": {"template": {"spec": {"containers": containers}}}})
    do("op", "apply", DEPLOYMENT, deployment(), see=["spec.template.spec.containers"])


def pins(do: Do) -> None:
    pinned = config_map({"a": "1"}, uid="00000000-0000-0000-0000-000000000001")
    do("op", "apply", CONFIG_MAP, pinned, force=True)
    do("op", "apply", CONFIG_MAP, config_map({"a": "1"}, resourceVersion="1"), force=True)
    do("op", "apply", CONFIG_MAP, config_map({"a": "2"}, resourceVersion="1"), force=True)
    do("op", "apply", CONFIG_MAP, pinned, force=True)
    do("op", "create", CONFIG_MAP, config_map({"a": "1"}))
    do("op", "merge", CONFIG_MAP, {"metadata": {"resourceVersion": "1"}, "data": {"a": "3"}})


def deletion(do: Do) -> None:
    do("op", "delete", CONFIG_MAP)
    do("op", "create", CONFIG_MAP, config_map({"a": "1"}, finalizers=["example.com/hold"]))
    do("op", "delete", CONFIG_MAP, preconditions={"uid": "00000000-0000-0000-0000-000000000001"})
    do("op", "delete", CONFIG_MAP, preconditions={"resourceVersion": "1"})
    do("op", "delete", CONFIG_MAP)
    do("op", "delete", CONFIG_MAP)
    do("op", "apply", CONFIG_MAP, config_map({"b": "1"}))
    do("op", "merge", CONFIG_MAP, {"metadata": {"finalizers": None}})
    do("op", "get", CONFIG_MAP)


def appliers_share_a_set(do: Do) -> None:
    do("one", "apply", CONFIG_MAP, config_map({}, finalizers=["example.com/one"]))
    do("two", "apply", CONFIG_MAP, config_map({}, finalizers=["example.com/two"]), see=["metadata.finalizers"])
    do("one", "apply", CONFIG_MAP, config_map({}), see=["metadata.finalizers"])
    do("two", "apply", CONFIG_MAP, config_map({}), see=["metadata.finalizers"])


def status_is_its_own(do: Do) -> None:
    do("person", "create", WIDGET, widget({"size": 1}, status={"phase": "Sent"}), see=["status"])
    do(
        "op",
        "merge",
        WIDGET,
        {"status": {"phase": "Up"}, "spec": {"size": 5}},
        subresource="status",
        see=["spec", "status"],
    )
    do("op", "merge", WIDGET, {"status": {"phase": "Up"}}, subresource="status")
    do("person", "merge", WIDGET, {"status": {"phase": "Down"}, "spec": {"size": 2}}, see=["spec", "status"])
    other = {"metadata": {"uid": "00000000-0000-0000-0000-000000000001"}}
    do("op", "merge", WIDGET, {**other, "status": {"phase": "Late"}}, subresource="status", see=["status"])
    do("op", "merge", WIDGET, {**other, "spec": {"size": 3}})
    late = {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Later"}}
    do("op", "merge", WIDGET, late, subresource="status")
    do("op", "apply", WIDGET, widget({"size": 9}, status={"phase": "Applied"}), subresource="status")
    do(
        "op",
        "apply",
        WIDGET,
        widget({"size": 9}, status={"phase": "Applied"}),
        subresource="status",
        force=True,
        see=["spec"],
    )


def scaling(do: Do) -> None:
    do("person", "apply", WIDGET, widget({"size": 1}))
    do("hpa", "merge", WIDGET, {"spec": {"replicas": 4}}, subresource="scale", see=["spec"])
    do("person", "get", WIDGET, see=["spec"])
    do("person", "apply", WIDGET, widget({"size": 1}))
    do("op", "apply", DEPLOYMENT, deployment())
    do("person", "merge", DEPLOYMENT, {"metadata": {"annotations": {"a": "b"}}})


def what_go_leaves_out(do: Do) -> None:
    empty = deployment(env=[{"name": "A", "value": ""}], args=[], resources={}, volumeMounts=[])
    empty["metadata"]["labels"] = {}
    empty["spec"]["minReadySeconds"] = 0
    empty["spec"]["template"]["spec"] |= {"hostNetwork": False, "nodeSelector": {}, "securityContext": {}}
    seen = [
        "metadata.labels",
        "spec.minReadySeconds",
        "spec.template.spec.hostNetwork",
        "spec.template.spec.nodeSelector",
    ]
    do("op", "apply", DEPLOYMENT, empty, see=[*seen, "spec.template.spec.containers"])
    do("op", "apply", DEPLOYMENT, empty)


def lists_without_keys(do: Do) -> None:
    do("op", "apply", DEPLOYMENT, deployment(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]))
    do("op", "apply", DEPLOYMENT, deployment(volumeMounts=[{"name": "data"}]))
    do("op", "apply", DEPLOYMENT, deployment(env=[{"value": "1"}]))


def what_cannot_change(do: Do) -> None:
    do("op", "apply", DEPLOYMENT, deployment())
    other = deployment()
    other["spec"]["selector"] = {"matchLabels": {"app": "it", "more": "1"}}
    other["spec"]["template"]["metadata"]["labels"] = {"app": "it", "more": "1"}
    do("op", "apply", DEPLOYMENT, other)
    unmatched = deployment()
    unmatched["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    do("op", "apply", DEPLOYMENT, unmatched)
    do("op", "apply", DEPLOYMENT, deployment(image=""))
    do("op", "merge", DEPLOYMENT, {"metadata": {"name": "other"}})


def updates(do: Do) -> None:
    do("person", "create", WIDGET, widget({"size": 1, "names": ["a"]}))
    do("person", "update", WIDGET, widget({"size": 2}))
    do("person", "merge", WIDGET, {"spec": {"names": ["a", "b"]}})
    do("other", "merge", WIDGET, {"spec": {"names": ["a"]}, "metadata": {"labels": {"x": "y"}}})
    do("other", "merge", WIDGET, {"metadata": {"labels": {"x": None}}}, see=["metadata.labels"])


def stateful_set(**spec: Any) -> Obj:
    """Build a StatefulSet `it` without pods."""
    built = deployment()
    given = {"serviceName": "it", "podManagementPolicy": "Parallel", "updateStrategy": {"type": "RollingUpdate"}}
    return {**built, "kind": "StatefulSet", "spec": {**built["spec"], **given, **spec}}


def a_stateful_set_with_volumes(do: Do) -> None:
    volumes = [
        {"name": "tls", "secret": {"secretName": "it", "defaultMode": 0o440, "items": [{"key": "a", "path": "a"}]}},
        {"name": "items", "emptyDir": {"medium": "Memory", "sizeLimit": "65Mi"}},
    ]
    mounts = [{"name": "tls", "mountPath": "/tls", "readOnly": True}, {"name": "items", "mountPath": "/items"}]
    built = stateful_set()
    container = built["spec"]["template"]["spec"]["containers"][0]
    built["spec"]["template"] = {
        **built["spec"]["template"],
        "spec": {"containers": [container | {"volumeMounts": mounts}], "volumes": volumes},
    }
    seen = ["spec.updateStrategy", "spec.persistentVolumeClaimRetentionPolicy", "spec.template.spec.volumes"]
    do("op", "apply", STATEFUL_SET, built, see=seen)
    do("op", "apply", STATEFUL_SET, built)
    do("person", "merge", STATEFUL_SET, {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}})
    do("op", "apply", STATEFUL_SET, built, see=seen[:1])
    do("op", "apply", STATEFUL_SET, stateful_set(), see=["spec.template.spec.volumes"])
    do("op", "apply", STATEFUL_SET, stateful_set(podManagementPolicy="OrderedReady"))
    do("op", "apply", STATEFUL_SET, stateful_set(serviceName="other"))
    do("op", "delete", STATEFUL_SET)


def claim(size: str = "1Gi", **spec: Any) -> Obj:
    """Build a PersistentVolumeClaim `it`, or a claim template."""
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "it"}, "spec": claim_spec}


def a_stateful_set_with_claims(do: Do) -> None:
    def built(template: Obj, **spec: Any) -> Obj:
        return stateful_set(updateStrategy={"type": "OnDelete"}, volumeClaimTemplates=[template], **spec)

    labelled = {**claim(), "metadata": {"name": "it", "labels": {"app": "it"}}}
    bare = {key: part for key, part in labelled.items() if key not in ("apiVersion", "kind")}
    seen = ["spec.updateStrategy", "spec.volumeClaimTemplates"]
    do("op", "apply", STATEFUL_SET, built(bare), see=seen)
    do("op", "apply", STATEFUL_SET, built(bare))
    do("op", "apply", STATEFUL_SET, built(claim("2Gi")))
    keeps = {"whenScaled": "Retain", "whenDeleted": "Delete"}
    policy = ["spec.persistentVolumeClaimRetentionPolicy"]
    do("op", "apply", STATEFUL_SET, built(bare, persistentVolumeClaimRetentionPolicy=keeps), see=policy)
    do("op", "apply", STATEFUL_SET, built(bare), see=policy)
    do("person", "merge", STATEFUL_SET, {"spec": {"volumeClaimTemplates": None}})
    do("op", "delete", STATEFUL_SET)


def a_claim(do: Do) -> None:
    do("op", "apply", PERSISTENT_VOLUME_CLAIM, claim(), see=["spec", "status", "metadata.finalizers"])
    do("op", "apply", PERSISTENT_VOLUME_CLAIM, claim("512Mi"))
    do("op", "apply", PERSISTENT_VOLUME_CLAIM, claim(storageClassName="other"))
    do("person", "merge", PERSISTENT_VOLUME_CLAIM, {"metadata": {"labels": {"a": "1"}}}, see=["metadata.labels"])
    bound = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    do("binder", "merge", PERSISTENT_VOLUME_CLAIM, {"spec": {"volumeName": "volume-1"}}, see=["spec"])
    do("binder", "merge", PERSISTENT_VOLUME_CLAIM, {"status": bound}, subresource="status", see=["status"])
    do("op", "apply", PERSISTENT_VOLUME_CLAIM, claim())
    do("op", "apply", PERSISTENT_VOLUME_CLAIM, claim("2Gi", storageClassName="other"))
    do("op", "delete", PERSISTENT_VOLUME_CLAIM)
    do("op", "delete", PERSISTENT_VOLUME_CLAIM)
    do("protector", "merge", PERSISTENT_VOLUME_CLAIM, {"metadata": {"finalizers": None}})
    do("person", "get", PERSISTENT_VOLUME_CLAIM)


def a_claim_with_another_class_of_attributes(do: Do) -> None:
    seen = ["spec", "status"]

    def requested(name: str | None, **annotations: str) -> None:
        change = {"metadata": {"annotations": annotations}, "spec": {"volumeAttributesClassName": name}}
        do("op", "merge", PERSISTENT_VOLUME_CLAIM, change, see=seen)

    do("op", "apply", PERSISTENT_VOLUME_CLAIM, claim(), see=seen)
    requested("fast", tried="before it is bound")
    do("binder", "merge", PERSISTENT_VOLUME_CLAIM, {"spec": {"volumeName": "volume-1"}}, see=["spec"])
    bound = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    do("binder", "merge", PERSISTENT_VOLUME_CLAIM, {"status": bound}, subresource="status", see=["status"])
    requested("fast", tried="1")
    requested(None)
    requested("fast")
    state = {"targetVolumeAttributesClassName": "fast", "status": "InProgress"}
    do("resizer", "merge", PERSISTENT_VOLUME_CLAIM, {"status": {"modifyVolumeStatus": state}}, subresource="status")
    done = {"currentVolumeAttributesClassName": "fast", "modifyVolumeStatus": None}
    do("resizer", "merge", PERSISTENT_VOLUME_CLAIM, {"status": done}, subresource="status", see=["status"])
    requested(None)
    requested("")
    requested("slow", tried="2")
    do("op", "delete", PERSISTENT_VOLUME_CLAIM)
    do("protector", "merge", PERSISTENT_VOLUME_CLAIM, {"metadata": {"finalizers": None}})


def a_pod_is_labelled(do: Do) -> None:
    pod: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "it", "labels": {"app": "it"}}}
    container = {"name": "main", "image": "image:1", "terminationMessagePolicy": "FallbackToLogsOnError"}
    seen = ["metadata.labels", "spec.containers", "status.phase"]
    running = {"automountServiceAccountToken": False, "containers": [container]}
    do("controller", "create", POD, {**pod, "spec": running}, see=seen)
    labels: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "it", "labels": {"serves": "clients"}}}
    do("op", "apply", POD, labels, see=seen)
    do("op", "apply", POD, labels)
    do("op", "apply", POD, {**labels, "metadata": {**labels["metadata"], "labels": {}}}, see=seen[:1])
    do(
        "op",
        "apply",
        POD,
        {**labels, "metadata": {**labels["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}},
    )
    do("op", "merge", POD, {"spec": {"containers": [{**container, "args": ["-v"]}]}})
    do("op", "delete", POD)
    do("op", "apply", POD, labels)


def a_disruption_budget(do: Do) -> None:
    def budget(**given: Any) -> Obj:
        spec = {"selector": {"matchLabels": {"app": "it"}}, "unhealthyPodEvictionPolicy": "AlwaysAllow", **given}
        return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "it"}, "spec": spec}

    do("op", "apply", DISRUPTION_BUDGET, budget(maxUnavailable=1), see=["spec"])
    do("op", "apply", DISRUPTION_BUDGET, budget(maxUnavailable=1))
    do("op", "apply", DISRUPTION_BUDGET, budget(minAvailable="50%"), see=["spec"])
    do("person", "merge", DISRUPTION_BUDGET, {"spec": {"selector": {"matchLabels": {"more": "theirs"}}}})
    do("op", "apply", DISRUPTION_BUDGET, budget(minAvailable="50%"), force=True, see=["spec.selector"])
    do("op", "delete", DISRUPTION_BUDGET)


def an_autoscaler(do: Do) -> None:
    def autoscaler(most: int, **given: Any) -> Obj:
        target = {"type": "Utilization", "averageUtilization": 80}
        cpu = {"name": "cpu", "container": "main", "target": target}
        spec = {
            "scaleTargetRef": {"apiVersion": WIDGET.api_version, "kind": "Widget", "name": "it"},
            "maxReplicas": most,
            "metrics": [{"type": "ContainerResource", "containerResource": cpu}],
            **given,
        }
        kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
        return {**kind, "metadata": {"name": "it"}, "spec": spec}

    do("op", "apply", AUTOSCALER, autoscaler(3), see=["spec.minReplicas", "spec.maxReplicas"])
    do("op", "apply", AUTOSCALER, autoscaler(3))
    do("op", "apply", AUTOSCALER, autoscaler(4, minReplicas=2), see=["spec.minReplicas", "spec.maxReplicas"])
    do("op", "apply", AUTOSCALER, autoscaler(1, minReplicas=2))
    do("person", "merge", AUTOSCALER, {"spec": {"maxReplicas": 9, "scaleTargetRef": {"name": "other"}}})
    do("op", "apply", AUTOSCALER, autoscaler(4, minReplicas=2), force=True, see=["spec.scaleTargetRef"])
    do("op", "delete", AUTOSCALER)


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        apply_twice,
        apply_of_less_takes_back,
        a_person_scales_and_the_operator_takes_it_back,
        two_appliers_share_a_value,
        a_value_removed_by_a_person_comes_back,
        another_managers_items_stay,
        an_item_goes_with_what_others_set_in_it,
        pins,
        deletion,
        appliers_share_a_set,
        status_is_its_own,
        scaling,
        what_go_leaves_out,
        lists_without_keys,
        what_cannot_change,
        updates,
        a_stateful_set_with_volumes,
        a_stateful_set_with_claims,
        a_claim,
        a_claim_with_another_class_of_attributes,
        a_pod_is_labelled,
        a_disruption_budget,
        an_autoscaler,
    )
}


def replay(scenario: Scenario, actors: Callable[[str], Actor], namespace: str) -> list[Obj]:
    """Send the requests of a scenario in a namespace without objects named `it`; return their observable results."""
    results: list[Obj] = []
    versions: dict[Kind, str] = {}

    def do(actor_name: str, verb: str, kind: Kind, *body: Obj, see: list[str] | None = None, **options: Any) -> None:
        actor, address = actors(actor_name), (namespace, "it")
        outcome: Obj = {"request": f"{actor_name} {verb} {kind}" + "".join(f" {key}" for key in options)}
        results.append(outcome)
        try:
            if verb in ("apply", "create", "update"):
                sent = {**body[0], "metadata": {**body[0]["metadata"], "namespace": namespace}}
                answer = getattr(actor, verb)(kind, sent, **options)
            else:
                answer = getattr(actor, verb)(kind, *address, *body, **options)
        except KubeError as error:
            outcome |= {"error": type(error).__name__, "status": error.status}
            return
        metadata = answer.get("metadata") or {}
        outcome["owned"] = _owned(answer)
        if "resourceVersion" in metadata:
            outcome["changed"] = versions.get(kind) != metadata["resourceVersion"]
            versions[kind] = metadata["resourceVersion"]
        outcome["generation"] = metadata.get("generation")
        outcome["deleting"] = "deletionTimestamp" in metadata
        outcome["seen"] = {path: _trimmed(value_at(answer, path)) for path in see or ()}

    scenario(do)
    return results


def _owned(obj: Obj) -> Obj:
    """Return the fields of each manager as text; maps only where empty, since Go structs always encode their maps."""
    owned = {}
    for manager, fields in read_records(obj).items():
        leaves = [path for path in fields if not any(other[: len(path)] == path and other != path for other in fields)]
        owned["/".join(filter(None, manager))] = sorted(" ".join(path) for path in leaves)
    return owned


def _trimmed(value: Any) -> Any:
    """Remove defaults that the in-memory server does not set."""
    unknown = ("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "rollingUpdate")
    if isinstance(value, list):
        return [_trimmed(item) for item in value]
    if isinstance(value, dict):
        return {key: _trimmed(part) for key, part in value.items() if key not in unknown}
    return value
