"""Pod settings that every CRD accepts or rejects."""

from __future__ import annotations

from typing import Any

from tests.support.cases import Case

OTHER_NAMESPACES: dict[str, dict[str, Any]] = {
    "names": {"namespaces": ["other"]},
    "all": {"namespaceSelector": {}},
    "labels": {"namespaceSelector": {"matchLabels": {"team": "other"}}},
}


def apart(term: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(term)]}}


def together(term: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term({}), _term(term)]}}


def preferred(term: dict[str, Any]) -> dict[str, Any]:
    weighted = {"weight": 1, "podAffinityTerm": _term(term)}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}


def _term(term: dict[str, Any]) -> dict[str, Any]:
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}} | term


RESERVED_LABEL_MESSAGE = "is a label that the operator sets; remove it."

ACCEPTED = (
    Case("a limit of CPU alone", {"resources": {"limits": {"cpu": 2}, "requests": {"cpu": "100m", "memory": "96Mi"}}}),
    Case("a request as large as its limit", {"resources": {"limits": {"cpu": 1}, "requests": {"cpu": "1000m"}}}),
    Case("a memory request above the default", {"resources": {"requests": {"memory": "1Gi"}}}),
    Case(
        "labels, annotations and variables", {"labels": {"a": "b"}, "annotations": {"c": "d"}, "env": [{"name": "E"}]}
    ),
    Case(
        "a variable from a field", {"env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}
    ),
    Case(
        "placement",
        {
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
            "affinity": {"podAntiAffinity": {}},
            "topologySpread": [{"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}],
            "priorityClassName": "high",
        },
    ),
    Case(
        "confined containers",
        {"annotations": {"container.apparmor.security.beta.kubernetes.io/it": "runtime/default", "note": "unconfined"}},
    ),
    Case("an affinity to pods of the namespace", {"affinity": apart({"namespaces": [], "namespaceSelector": None})}),
    Case("a toleration of everything", {"tolerations": [{"operator": "Exists"}]}),
    Case("a toleration of a value", {"tolerations": [{"key": "a", "value": "b"}]}),
    Case(
        "a variable with an empty value and a source",
        {"env": [{"name": "E", "value": "", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    ),
    Case("a disruption budget", {"podDisruptionBudget": {}}),
    Case("a disruption budget in pods", {"podDisruptionBudget": {"minAvailable": 0}}),
    Case("a disruption budget in percent", {"podDisruptionBudget": {"maxUnavailable": "100%"}}),
)

REFUSED = (
    *(
        Case(
            f"{key}: {value}",
            {"annotations": {key: value}},
            operator_error=f"spec.annotations: {key} must keep a profile, such as runtime/default",
        )
        for key in (
            "container.apparmor.security.beta.kubernetes.io/it",
            "container.seccomp.security.alpha.kubernetes.io/it",
            "seccomp.security.alpha.kubernetes.io/pod",
        )
        for value in ("unconfined", "Unconfined", "", "complain")
    ),
    *(
        Case(
            f"an affinity to pods of other namespaces: {name} {number}",
            {"affinity": affinity},
            operator_error="spec.affinity: a term with namespaces or namespaceSelector selects pods of other",
        )
        for name, given in OTHER_NAMESPACES.items()
        for number, affinity in enumerate((apart(given), preferred(given), together(given)))
    ),
    Case(
        "a request above its limit",
        {"resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": 1}}},
        "a request is above its limit",
        "spec.resources.requests: a request is above its limit",
    ),
    Case(
        "a negative number", {"resources": {"limits": {"cpu": -1}}}, "greater than or equal to 0", "cannot be negative"
    ),
    Case("a negative whole request", {"resources": {"requests": {"cpu": -1}}}, "or equal to 0", "cannot be negative"),
    Case("a negative request", {"resources": {"requests": {"cpu": "-1"}}}, "should match", "cannot be negative"),
    Case(
        "a limit with too many digits",
        {"resources": {"limits": {"cpu": "0" * 33}}},
        "may not be more than 32",
        "at most 32",
    ),
    Case(
        "a request with too many digits",
        {"resources": {"requests": {"cpu": "0" * 33}}},
        "may not be more than 32",
        "at most 32",
    ),
    Case("a malformed limit", {"resources": {"limits": {"cpu": "1 core"}}}, "should match", "is not a quantity"),
    Case("a limit of 101 digits", {"resources": {"limits": {"cpu": "1e100"}}}, "should match", "at most two digits"),
    Case("a signed request", {"resources": {"requests": {"cpu": "+1"}}}, "should match", "no sign"),
    Case("a malformed request", {"resources": {"requests": {"cpu": "much"}}}, "should match", "is not a quantity"),
    Case(
        "too many limits",
        {"resources": {"limits": {f"example.com/{number}": 1 for number in range(9)}}},
        "must have at most 8",
        "at most 8",
    ),
    Case(
        "too many requests",
        {"resources": {"requests": {f"example.com/{number}": 1 for number in range(9)}}},
        "must have at most 8",
        "at most 8",
    ),
    *(
        Case(
            f"a reserved label: {name}",
            {"labels": {"a": "b", f"app.kubernetes.io/{name}": "x"}},
            f"app.kubernetes.io/{name} {RESERVED_LABEL_MESSAGE}",
            f"spec.labels: app.kubernetes.io/{name} {RESERVED_LABEL_MESSAGE}",
        )
        for name in ("name", "instance", "managed-by", "part-of", "component")
    ),
    Case(
        "a label value that is too long",
        {"labels": {"a": "b" * 64}},
        "may not be more than 63",
        "at most 63 characters",
    ),
    Case("a malformed label value", {"labels": {"a": "b c"}}, "should match", 'spec.labels.a: "b c" does not match'),
    Case("too many labels", {"labels": {f"l{n}": "" for n in range(33)}}, "must have at most 32", "at most 32"),
    Case(
        "too many annotations", {"annotations": {f"a{n}": "" for n in range(65)}}, "must have at most 64", "at most 64"
    ),
    Case(
        "too many node labels", {"nodeSelector": {f"n{n}": "" for n in range(33)}}, "must have at most 32", "at most 32"
    ),
    Case(
        "a node label value that is too long",
        {"nodeSelector": {"a": "b" * 64}},
        "may not be more than 63",
        "at most 63",
    ),
    Case("a malformed node label value", {"nodeSelector": {"a": "-"}}, "should match", "does not match"),
    Case(
        "a priority class that is too long", {"priorityClassName": "a" * 254}, "may not be more than 253", "at most 253"
    ),
    Case("a malformed priority class", {"priorityClassName": "High"}, "should match", "does not match"),
    Case(
        "too many variables", {"env": [{"name": f"E{n}"} for n in range(129)]}, "must have at most 128", "at most 128"
    ),
    Case("a variable without a name", {"env": [{"value": "x"}]}, "name: Required value", "name: is required"),
    Case("a variable with an empty name", {"env": [{"name": ""}]}, "should match", "does not match"),
    Case("a variable name with '='", {"env": [{"name": "A=B"}]}, "should match", "does not match"),
    Case("a variable name that is too long", {"env": [{"name": "E" * 257}]}, "may not be more than 256", "at most 256"),
    Case(
        "a variable value that is too long",
        {"env": [{"name": "E", "value": "v" * 32769}]},
        "may not be more than 32768",
        "at most 32768",
    ),
    Case(
        "a variable with a value and a source",
        {"env": [{"name": "E", "value": "v", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]},
        "value and valueFrom are mutually exclusive; remove one.",
        "spec.env[0]: value and valueFrom are mutually exclusive; remove one.",
    ),
    Case(
        "a variable without a source",
        {"env": [{"name": "E", "valueFrom": {}}]},
        "set exactly one of secretKeyRef, configMapKeyRef, fieldRef, resourceFieldRef",
        "spec.env[0].valueFrom: set exactly one of secretKeyRef",
    ),
    Case(
        "a variable with two sources",
        {
            "env": [
                {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}, "secretKeyRef": {"key": "k"}}}
            ]
        },
        "set exactly one of secretKeyRef, configMapKeyRef, fieldRef, resourceFieldRef",
        "spec.env[0].valueFrom: set exactly one of secretKeyRef",
    ),
    Case(
        "a variable given twice",
        {"env": [{"name": "E"}, {"name": "E"}]},
        "Duplicate value",
        "E is listed more than once",
    ),
    Case("too many tolerations", {"tolerations": [{}] * 65}, "must have at most 64", "at most 64"),
    Case("an unknown effect", {"tolerations": [{"effect": "Never"}]}, "Unsupported value", "use 'NoSchedule'"),
    Case("an unknown operator", {"tolerations": [{"operator": "Like"}]}, "Unsupported value", "use 'Exists'"),
    Case(
        "a toleration value with operator Exists",
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        "operator Exists ignores the value",
        "spec.tolerations[0].value: operator Exists ignores the value",
    ),
    Case(
        "a toleration without a key",
        {"tolerations": [{"operator": "Exists"}, {"effect": "NoSchedule"}]},
        "a toleration without a key requires operator Exists",
        "spec.tolerations[1]: a toleration without a key requires operator Exists",
    ),
    Case(
        "toleration seconds without effect NoExecute",
        {"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]},
        "tolerationSeconds requires effect NoExecute",
        "tolerationSeconds requires effect NoExecute",
    ),
    Case(
        "a taint key that is too long", {"tolerations": [{"key": "a" * 318}]}, "may not be more than 317", "at most 317"
    ),
    Case(
        "a taint value that is too long",
        {"tolerations": [{"key": "a", "value": "b" * 64}]},
        "may not be more than 63",
        "at most 63",
    ),
    Case(
        "too many spread constraints",
        {"topologySpread": [{"topologyKey": "z"}] * 17},
        "must have at most 16",
        "at most 16",
    ),
    Case(
        "a spread constraint without a key",
        {"topologySpread": [{"maxSkew": 1}]},
        "Required value",
        "topologyKey: is required",
    ),
    Case(
        "a spread constraint with an empty key",
        {"topologySpread": [{"topologyKey": ""}]},
        "at least 1 chars",
        "too short",
    ),
    Case(
        "a spread constraint with a key that is too long",
        {"topologySpread": [{"topologyKey": "z" * 318}]},
        "more than 317",
        "at most 317",
    ),
    Case(
        "a skew of zero",
        {"topologySpread": [{"topologyKey": "z", "maxSkew": 0}]},
        "should be greater than or equal to 1",
        "too small; use at least 1",
    ),
    Case(
        "a skew that is too large",
        {"topologySpread": [{"topologyKey": "z", "maxSkew": 1001}]},
        "should be less than or equal to 1000",
        "too large; use at most 1000",
    ),
    Case(
        "an unknown whenUnsatisfiable",
        {"topologySpread": [{"topologyKey": "z", "whenUnsatisfiable": "Panic"}]},
        "Unsupported value",
        "use 'DoNotSchedule'",
    ),
    Case("resources of the wrong type", {"resources": "64Mi"}, "must be of type object", "is not an object"),
    Case(
        "a disruption budget with two limits",
        {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}},
        "minAvailable and maxUnavailable are mutually exclusive; remove one.",
        "spec.podDisruptionBudget: minAvailable and maxUnavailable are mutually exclusive; remove one.",
    ),
    *(
        Case(
            f"a disruption budget with {name} of {value!r}",
            {"podDisruptionBudget": {name: value}},
            words,
            f"{name}: {shown} is invalid",
        )
        for name in ("minAvailable", "maxUnavailable")
        for value, shown, words in (
            (-1, "-1", "greater than or equal to 0"),
            ("101%", '"101%"', "should match"),
            ("00100%", '"00100%"', "may not be more than 4"),
        )
    ),
)
