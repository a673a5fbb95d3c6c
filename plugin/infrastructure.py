"""Checks of what the platform needs from the cluster: storage, DNS, admission, versions and clocks. Pure."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from plugin import version
from plugin.databases import ALL, Database
from plugin.health import BAD, GOOD, MAX_SKEW_SECONDS, UNKNOWN, WARNING, Finding
from plugin.overview import duration, since
from plugin.session import REQUEST_RIGHT
from shared.kubernetes import accessors
from shared.kubernetes.errors import Forbidden, KubeError, NotFound
from shared.kubernetes.kinds import Obj
from shared.pki import certs

DEFAULT = "storageclass.kubernetes.io/is-default-class"
SERVICE_NAME = "kubernetes.io/service-name"
"""Label of an EndpointSlice: name of its Service."""

REFUSED, FAILED = "denied the request", "failed calling webhook"
"""Words of the API server about a webhook that answered, and about one that did not."""

WEBHOOK_PAGE = "docs/runbook/README.md#applying-a-resource-fails-failed-calling-webhook"


def storage_classes(classes: Iterable[Obj], zones: Collection[str] | None, target: Sequence[str]) -> Iterator[Finding]:
    """Check whether volumes of the default StorageClasses can grow, and are created where their pods run.

    Args:
        zones: zones of the Kubernetes nodes; None if they are not known.
        target: flags for the cluster, in commands that a user may copy.
    """
    default = [each for each in classes if accessors.annotation(each, DEFAULT) == "true"]
    if len(default) > 1:
        names = ", ".join(each["metadata"]["name"] for each in default)
        fix = f"remove the annotation {DEFAULT} from all but one"
        yield Finding("storage default", WARNING, f"{names} are all the default: Kubernetes uses the newest.", fix)
    for each in default:
        name, driver = each["metadata"]["name"], each.get("provisioner") or "unknown"
        check = f"storage class {name}"
        if each.get("allowVolumeExpansion"):
            yield Finding(f"{check} expansion", GOOD, f"Its volumes can grow ({driver}).")
        else:
            text = f"Its volumes cannot grow, so that a larger storage.size is refused ({driver})."
            command = ["kubectl", "patch", "storageclass", name, *target, "--patch", '{"allowVolumeExpansion": true}']
            yield Finding(f"{check} expansion", WARNING, text, f"if its driver can expand: {shlex.join(command)}")
        binding = f"{check} binding"
        if each.get("volumeBindingMode") == "WaitForFirstConsumer":
            yield Finding(binding, GOOD, "A volume is created where its pod is scheduled.")
        elif zones is not None and len(zones) < 2:
            yield Finding(binding, GOOD, "A volume is created before its pod is scheduled; all nodes are in one zone.")
        else:
            reach = (
                "may be where its pod cannot run" if zones else "may be where its pod cannot run, if there are zones"
            )
            text = f"Its volumeBindingMode is Immediate: a volume is created before its pod is scheduled, and {reach}."
            fix = "use a StorageClass with volumeBindingMode: WaitForFirstConsumer; it cannot be changed in this one"
            yield Finding(binding, WARNING, text, fix)


def dns(services: Sequence[Obj], slices: Sequence[Obj], target: Sequence[str]) -> Finding:
    """Check that the DNS of the cluster has servers: members, replicas and clients find each other by names.

    Args:
        services: Services of kube-system with the label k8s-app=kube-dns.
        slices: EndpointSlices of kube-system.
        target: flags for the cluster, in commands that a user may copy.
    """
    if not services:
        text = "kube-system has no Service with the label k8s-app=kube-dns, as other DNS servers have it."
        fix = "check that a pod resolves kubernetes.default.svc"
        return Finding("DNS", UNKNOWN, text, fix)
    names = [str(each["metadata"]["name"]) for each in services]
    count = sum(ready(slices, name) for name in names)
    if not count:
        where = shlex.join(["kubectl", "get", "pods", *target, "--namespace", "kube-system", "-l", "k8s-app=kube-dns"])
        text = f"Service kube-system/{', '.join(names)} has no ready endpoint: servers do not find each other."
        return Finding("DNS", BAD, text, where)
    return Finding("DNS", GOOD, f"Service kube-system/{', '.join(names)} has {count} ready endpoints.")


def ready(slices: Iterable[Obj], service: str) -> int:
    """Return the number of ready endpoints of a Service."""
    return sum(
        (endpoint.get("conditions") or {}).get("ready") is not False  # unknown counts as ready, as in Kubernetes
        for each in slices
        if accessors.label(each, SERVICE_NAME) == service
        for endpoint in each.get("endpoints") or ()
    )


def authorities(configurations: Iterable[Obj], now: datetime) -> Iterator[Finding]:
    """Check that the authorities of webhooks are valid; those that are missing are found by `health.webhooks`."""
    for configuration in configurations:
        hooks = configuration.get("webhooks") or ()
        bundles = {str((each.get("clientConfig") or {}).get("caBundle") or "") for each in hooks}
        for bundle in sorted(bundles - {""}):
            yield _authority(str(configuration["metadata"]["name"]), bundle, now)


def _authority(name: str, bundle: str, now: datetime) -> Finding:
    check = f"webhook {name} CA"
    try:
        found = certs.read(base64.b64decode(bundle, validate=True).decode())
    except (ValueError, binascii.Error):
        return Finding(check, BAD, "Its caBundle has no certificate that can be read.", WEBHOOK_PAGE)
    current = [each for each in found if each.begins <= now < each.ends]
    if not current:
        ended = max(each.ends for each in found)
        when = f"ended {duration((now - ended).total_seconds())} ago" if ended <= now else "is not valid yet"
        return Finding(check, BAD, f"Its authority {when}: every change of a resource is refused.", WEBHOOK_PAGE)
    left = max(each.ends for each in current) - now
    return Finding(check, GOOD, f"Its authority is valid for {duration(left.total_seconds())}.")


def endpoints(
    services: Mapping[tuple[str, str], bool], slices: Mapping[str, Sequence[Obj]], target: Sequence[str]
) -> Iterator[Finding]:
    """Check that pods serve the webhooks.

    Args:
        services: whether changes are refused without each Service, by namespace and name.
        slices: EndpointSlices of each namespace.
        target: flags for the cluster, in commands that a user may copy.
    """
    for (namespace, name), refuses in sorted(services.items()):
        check, count = f"webhook service {namespace}/{name}", ready(slices.get(namespace, ()), name)
        if count:
            yield Finding(check, GOOD, f"It has {count} ready endpoints.")
            continue
        state, effect = (BAD, "refused") if refuses else (WARNING, "not checked")
        where = shlex.join(["kubectl", "describe", "service", name, *target, "--namespace", namespace])
        yield Finding(check, state, f"It has no ready endpoint, so that changes of resources are {effect}.", where)


def trial(database: Database, namespace: str, error: KubeError | None, *, is_strict: bool) -> Finding:
    """Judge a creation in a dry run, for which the API server calls the webhooks: it verifies their certificates.

    Args:
        error: how it failed; None if it succeeded.
        is_strict: whether a webhook that does not answer refuses the creation.
    """
    check, kind = f"admission {database.kind.name}", database.kind.name
    message = str(error)
    if isinstance(error, Forbidden) and REFUSED not in message:
        return Finding(check, UNKNOWN, f"You may not create a {kind} in {namespace}: {message}", REQUEST_RIGHT)
    if isinstance(error, NotFound):
        return Finding(
            check, UNKNOWN, f"No dry run is possible in {namespace}: {message}", "choose another --namespace"
        )
    if error is not None and FAILED in message:
        cause = "the certificate does not fit the caBundle" if "x509" in message else "it does not answer"
        return Finding(check, BAD, f"The API server cannot use a webhook: {cause}. {message}", WEBHOOK_PAGE)
    if not is_strict:
        text = "The failurePolicy is Ignore, so that a creation does not show whether the webhook answers."
        return Finding(check, UNKNOWN, text, "its Service and CA are checked alone; the operator checks specs, too")
    if error is None or REFUSED in message or error.status == 422:
        return Finding(check, GOOD, f"The API server called the webhooks for a {kind} in a dry run.")
    return Finding(check, UNKNOWN, f"The dry run failed for another reason: {message}", "repeat the command")


def versions(deployments: Iterable[Obj]) -> Iterator[Finding]:
    """Check that operators have the version of this plugin.

    Args:
        deployments: Deployments of operators.
    """
    own = version.own()
    for each in deployments:
        running, check = version.of_operator(each), f"version {each['metadata']['name']}"
        if not running:
            text = f"Neither its image nor its label {version.VERSION_LABEL} names a version; this plugin is {own}."
            yield Finding(check, UNKNOWN, text, "set the label, or the tag of the image, to the version")
        elif running != own:
            fix = f"install the plugin of version {running}, or upgrade the operator: docs/how-to/upgrade.md"
            yield Finding(check, WARNING, f"The operator has version {running}, and this plugin {own}.", fix)
        else:
            yield Finding(check, GOOD, f"The operator and this plugin have version {own}.")


def crds(found: Mapping[str, Obj | None], operators: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the CRDs are of the version of their operator.

    Args:
        found: CRDs by kind; None if one does not exist.
        operators: version of each operator that runs, by its name.
    """
    for database in ALL:
        crd, check = found.get(database.kind.name), f"version CRD {database.kind.name}"
        label, running = accessors.label(crd, version.VERSION_LABEL), operators.get(database.operator, "")
        if crd is None or not running:
            continue
        if not label:
            yield Finding(check, UNKNOWN, "The CRD does not name its version, as one without the chart.", "")
        elif label != running:
            text = f"The CRD has version {label}, and its operator {running}: fields may be missing."
            yield Finding(check, WARNING, text, "upgrade the chart with its CRDs: docs/how-to/upgrade.md")
        else:
            yield Finding(check, GOOD, f"The CRD and its operator have version {running}.")


def clocks(leases: Iterable[Obj], now: datetime) -> Iterator[Finding]:
    """Check that the clocks of the operators' nodes are not ahead of the API server's.

    Args:
        leases: Leases of the operators.
        now: time of the API server.
    """
    for lease in leases:
        spec = lease.get("spec") or {}
        ahead = since(spec.get("renewTime"), now)
        if ahead is not None and -ahead > MAX_SKEW_SECONDS:
            holder = spec.get("holderIdentity") or "the holder"
            text = f"The clock of {holder} is {duration(-ahead)} ahead of that of the API server."
            fix = "synchronize the clocks of the nodes: Leases and certificates are judged by them"
            yield Finding(f"time of {lease['metadata']['name']}", WARNING, text, fix)
