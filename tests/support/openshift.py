"""OpenShift's SecurityContextConstraints `restricted-v2`, which every authenticated user may use.

Source: https://docs.redhat.com/en/documentation/openshift_container_platform/4.18/html/authentication_and_authorization/managing-pod-security-policies
"""

from __future__ import annotations

from collections.abc import Iterator

from shared.kubernetes.kinds import Obj

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
ASSIGNED = ("runAsUser", "fsGroup")
"""IDs that must be in the range of the namespace, which OpenShift assigns if they are not set."""


def violations(pod: Obj) -> Iterator[str]:
    """Yield what `restricted-v2` refuses in the spec of a pod."""
    yield from (f"{name} is true" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name))
    for volume in pod.get("volumes", ()):
        yield from (f"volume {volume['name']}: {kind}" for kind in volume.keys() - VOLUMES - {"name"})
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    contexts = {"pod": pod.get("securityContext", {})}
    contexts |= {each["name"]: each.get("securityContext", {}) for each in containers}
    for name, context in contexts.items():
        yield from (f"{name}: {field} is {context[field]}" for field in ASSIGNED if field in context)
        if context.get("seccompProfile", {"type": "RuntimeDefault"})["type"] != "RuntimeDefault":
            yield f"{name}: seccompProfile"
    for container in containers:
        context = container.get("securityContext", {})
        if context.get("privileged") or context.get("allowPrivilegeEscalation", True):
            yield f"{container['name']}: privileges"
        added = set(context.get("capabilities", {}).get("add", ())) - {"NET_BIND_SERVICE"}
        if added or context.get("capabilities", {}).get("drop") != ["ALL"]:
            yield f"{container['name']}: capabilities"
        yield from (f"{container['name']}: hostPort" for port in container.get("ports", ()) if port.get("hostPort"))
