"""Settings that connect pods to their surroundings: registries, identity, security, extra containers and volumes.

All kinds have these fields directly in their specs. Without them, a pod is as its operator builds it: a setting that
is not given adds nothing to a pod template, because a changed template restarts pods.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic.config import JsonDict

from shared.api.image import FORM as IMAGE
from shared.api.image import is_reference
from shared.api.podspec import OPAQUE, EnvVar, ListedResources, Quantity, distinct, one_of
from shared.api.spec import INT32, INT64, AtMost, Name, Rule, SpecModel, as_object
from shared.kubernetes.kinds import Obj

MAX_CONTAINERS, MAX_VOLUMES, MAX_MOUNTS, MAX_PORTS = 8, 16, 16, 8
_MAX_OPAQUE_CHARACTERS = 4096
_MAX_ID = 2147483647
"""Largest user or group ID that Kubernetes accepts."""

_PART = r"\.?[A-Za-z0-9_@-][A-Za-z0-9_@.-]*"
"""Part of a path that is neither `.` nor `..`."""

Label = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""A DNS label, which is what Kubernetes accepts as the name of a container or a volume."""

UserId = Annotated[int, Field(ge=1, le=_MAX_ID)]
GroupId = Annotated[int, Field(ge=0, le=_MAX_ID)]
Argument = Annotated[str, Field(max_length=4096)]
ReadOnly = Annotated[bool | None, AfterValidator(lambda given: given or None)]
"""Whether a volume is read-only. The API server drops false, the default, so that it is not sent."""


def _by(field: str) -> JsonDict:
    """Return the schema of a list with at most one item for each value of a field."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [field]}


def _bounded(given: Obj) -> Obj:
    if len(json.dumps(given)) > _MAX_OPAQUE_CHARACTERS:
        raise ValueError(f"it has more than {_MAX_OPAQUE_CHARACTERS} characters as JSON; use a smaller one")
    return given


Opaque = Annotated[dict[str, Any], AtMost(16), Field(json_schema_extra=OPAQUE), AfterValidator(_bounded)]


class PullSecret(SpecModel):
    """A Secret with the credentials of a registry."""

    name: Name = Field(description="Name of a Secret of type kubernetes.io/dockerconfigjson in the same namespace.")


class SeccompProfile(SpecModel):
    """System calls that the containers may use."""

    type: Literal["RuntimeDefault", "Localhost"] = Field(
        description="RuntimeDefault: the profile of the container runtime. Localhost: a file on the node."
    )
    localhost_profile: Annotated[str, Field(max_length=512, pattern=f"^{_PART}(/{_PART})*$")] | None = Field(
        None, description="Path of the profile below the kubelet's directory of profiles; only with Localhost."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.type != 'Localhost' || has(self.localhostProfile)",
            lambda given: given.type != "Localhost" or given.localhost_profile is not None,
            "localhostProfile is required with type Localhost; set it, or use RuntimeDefault.",
        ),
    )


class SELinuxOptions(SpecModel):
    """SELinux labels of the containers."""

    level: Annotated[str, Field(max_length=128, pattern=r"^s[0-9]+(-s[0-9]+)?(:c[0-9,.c]+)?$")] = Field(
        description="Level of the containers, such as s0:c123,c456."
    )


class PodSecurityContext(SpecModel):
    """Identity of the containers, which never run as root."""

    run_as: Literal["Operator", "Platform"] = Field(
        "Operator",
        description="Source of the user, group and volume group. Operator: fixed IDs of the operator. Platform: none "
        "is set, and the Kubernetes platform assigns them, as OpenShift does with restricted-v2. Elsewhere the image "
        "must then name a numeric user other than root.",
    )
    run_as_user: UserId | None = Field(
        None, description="User ID of the containers; default: that of runAs.", json_schema_extra=INT64
    )
    run_as_group: GroupId | None = Field(
        None, description="Group ID of the containers; default: that of runAs.", json_schema_extra=INT64
    )
    fs_group: GroupId | None = Field(
        None, description="Group ID that owns the files of volumes; default: that of runAs.", json_schema_extra=INT64
    )
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = Field(
        None, description="When the kubelet changes the group of the files of a volume, as in a pod."
    )
    supplemental_groups: Annotated[list[GroupId], Field(max_length=16)] = Field(
        default_factory=list, description="Further group IDs of the containers."
    )
    se_linux_options: SELinuxOptions | None = Field(
        None, description="SELinux labels of the containers; default: those of the container runtime."
    )
    seccomp_profile: SeccompProfile | None = Field(
        None, description="System calls that the containers may use; default: RuntimeDefault."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.runAs != 'Platform' || !has(self.runAsUser) && !has(self.runAsGroup) && !has(self.fsGroup)",
            lambda given: (
                given.run_as != "Platform" or {given.run_as_user, given.run_as_group, given.fs_group} == {None}
            ),
            "with Platform, the platform assigns runAsUser, runAsGroup and fsGroup; remove these, or use Operator.",
            at="runAs",
        ),
    )

    def override(self, present: Obj) -> Obj:
        """Return the security context of a pod with these settings."""
        if self.run_as == "Platform":
            present = {name: value for name, value in present.items() if name not in _IDENTITY}
        given = as_object(self)
        if self.seccomp_profile is not None and self.seccomp_profile.type != "Localhost":
            given["seccompProfile"] = {"type": self.seccomp_profile.type}
        return present | {name: value for name, value in given.items() if name != "runAs" and value != []}


_IDENTITY = ("runAsUser", "runAsGroup", "fsGroup")


class ContainerSecurityContext(SpecModel):
    """Security settings of a container, which always runs without privileges and capabilities."""

    read_only_root_filesystem: bool | None = Field(
        None,
        description="Whether the container cannot write to its own file system, but only to volumes; true by default.",
    )


class ExtraSecurityContext(ContainerSecurityContext):
    """Security settings of an extra container, which always runs without privileges and capabilities."""

    run_as_user: UserId | None = Field(
        None, description="User ID of the container; default: that of the pod.", json_schema_extra=INT64
    )
    run_as_group: GroupId | None = Field(
        None, description="Group ID of the container; default: that of the pod.", json_schema_extra=INT64
    )


class VolumeMount(SpecModel):
    """A volume of extraVolumes in a container."""

    name: Label = Field(description="Name of a volume in extraVolumes.")
    mount_path: Annotated[str, Field(max_length=512, pattern=f"^(/{_PART})+$")] = Field(
        description="Directory in the container."
    )
    sub_path: Annotated[str, Field(max_length=512, pattern=f"^{_PART}(/{_PART})*$")] | None = Field(
        None, description="Path in the volume; the whole volume by default."
    )
    read_only: ReadOnly = Field(None, description="Whether the container cannot write to the volume.")


Mounts = Annotated[list[VolumeMount], Field(max_length=MAX_MOUNTS), distinct("mount_path")]


class _Container(SpecModel):
    """Common fields of extra containers and extra init containers."""

    name: Label = Field(description="Name of the container; names of the operator's containers are reserved.")
    image: Annotated[str, Field(max_length=512)] = Field(description="Image of the container, with a tag or a digest.")
    command: Annotated[list[Argument], Field(max_length=16)] = Field(
        default_factory=list, description="Program; default: the entrypoint of the image."
    )
    args: Annotated[list[Argument], Field(max_length=64)] = Field(
        default_factory=list, description="Arguments of the program."
    )
    env: Annotated[list[EnvVar], Field(max_length=32), distinct("name")] = Field(
        default_factory=list, description="Environment variables.", json_schema_extra=_by("name")
    )
    resources: ListedResources = Field(
        default_factory=ListedResources, description="CPU and memory; a request is at most its limit."
    )
    volume_mounts: Mounts = Field(
        default_factory=list,
        description="Volumes of extraVolumes in the container; those of the operator cannot be mounted.",
        json_schema_extra=_by("mountPath"),
    )
    security_context: ExtraSecurityContext | None = Field(None, description="Security settings of the container.")

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.image.matches({json.dumps(IMAGE)})",
            lambda given: is_reference(given.image),
            "'{}' is not a valid image; use a lower-case reference such as registry.example.com/log-shipper:1.0.",
            at="image",
            value=("self.image", lambda given: given.image),
        ),
    )

    def container(self, safe: Obj) -> Obj:
        """Return the container.

        Args:
            safe: security context that the settings of this container change.
        """
        given = as_object(self)
        given["resources"] = {name: amounts for name, amounts in given["resources"].items() if amounts}
        given = {name: value for name, value in given.items() if value not in ([], {})}
        for port in given.get("ports", ()):
            port["protocol"] = "TCP"
        return given | {"securityContext": safe | given.get("securityContext", {})}


class ContainerPort(SpecModel):
    """A TCP port of an extra container."""

    container_port: Annotated[int, Field(ge=1, le=65535)] = Field(
        description="Number of the port; ports of the operator's containers are reserved.", json_schema_extra=INT32
    )
    name: Annotated[str, Field(max_length=15, pattern=r"^[a-z]([a-z0-9]|-[a-z0-9])*$")] | None = Field(
        None,
        description="Name of the port, such as logs, for a PodMonitor; names of the operator's ports are reserved.",
    )


class ExtraContainer(_Container):
    """A further container of each pod.

    It has no probes: a pod serves its clients although a container next to the database fails.
    """

    ports: Annotated[list[ContainerPort], Field(max_length=MAX_PORTS), distinct("container_port")] = Field(
        default_factory=list,
        description="TCP ports on which the container listens.",
        json_schema_extra=_by("containerPort"),
    )


class ExtraInitContainer(_Container):
    """A container that runs before the database starts."""

    restart_policy: Literal["Always"] | None = Field(
        None,
        description="Always: the container starts before the database and runs next to it (a sidecar). Default: it "
        "must end before the database starts.",
    )


class EmptyDir(SpecModel):
    """A directory that is created and deleted with the pod."""

    medium: Literal["", "Memory"] | None = Field(
        None, description="Memory: in the memory of the node, which counts as memory of the containers. Default: disk."
    )
    size_limit: Quantity | None = Field(None, description="Maximum size; default: that of the node.")


class ConfigMapVolume(SpecModel):
    """The keys of a ConfigMap as files."""

    name: Name = Field(description="Name of a ConfigMap in the same namespace.")


class SecretVolume(SpecModel):
    """The keys of a Secret as files."""

    secret_name: Name = Field(description="Name of a Secret in the same namespace.")


class ClaimVolume(SpecModel):
    """A PersistentVolumeClaim that all pods share."""

    claim_name: Name = Field(description="Name of a PersistentVolumeClaim in the same namespace.")
    read_only: ReadOnly = Field(None, description="Whether the volume is mounted read-only.")


class ExtraVolume(SpecModel):
    """A further volume of each pod. Volumes of the node (hostPath) are not possible."""

    name: Label = Field(description="Name of the volume; names of the operator's volumes are reserved.")
    empty_dir: EmptyDir | None = Field(
        None, description="A directory that is created and deleted with the pod; {} for the defaults."
    )
    config_map: ConfigMapVolume | None = Field(None, description="The keys of a ConfigMap as files.")
    secret: SecretVolume | None = Field(None, description="The keys of a Secret as files.")
    persistent_volume_claim: ClaimVolume | None = Field(
        None, description="A PersistentVolumeClaim that all pods share."
    )
    projected: Opaque | None = Field(
        None, description="Several sources in one directory, as in a pod, for example the token of a service account."
    )
    csi: Opaque | None = Field(None, description="A volume of a CSI driver that lives with the pod, as in a pod.")

    RULES: ClassVar[tuple[Rule, ...]] = (
        one_of(
            ("emptyDir", "configMap", "secret", "persistentVolumeClaim", "projected", "csi"),
            "other sources, such as hostPath, are not possible.",
        ),
    )


class PodExtensions(SpecModel):
    """Settings of pods that connect them to their surroundings, directly in the spec."""

    image_pull_secrets: Annotated[list[PullSecret], Field(max_length=16), distinct("name")] = Field(
        default_factory=list,
        description="Secrets with credentials for the registries of the images.",
        json_schema_extra=_by("name"),
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None,
        description="When the kubelet pulls the images of all containers. Default: that of Kubernetes (IfNotPresent, "
        "except for the tag latest).",
    )
    service_account_name: Name | None = Field(
        None,
        description="ServiceAccount of the pods. Default: default. No token is mounted; a container gets one "
        "from a projected volume in extraVolumes.",
    )
    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=86400)] | None = Field(
        None,
        description="Seconds between the signal to stop and the end of a pod. Default: what an orderly stop needs.",
        json_schema_extra=INT64,
    )
    pod_security_context: PodSecurityContext | None = Field(
        None, description="Identity of the containers; within the Pod Security level restricted."
    )
    container_security_context: ContainerSecurityContext | None = Field(
        None, description="Security settings of the main container; within the Pod Security level restricted."
    )
    extra_containers: Annotated[list[ExtraContainer], Field(max_length=MAX_CONTAINERS), distinct("name")] = Field(
        default_factory=list,
        description="Further containers of each pod, such as a log shipper. A change replaces the pods one by one.",
        json_schema_extra=_by("name"),
    )
    extra_init_containers: Annotated[list[ExtraInitContainer], Field(max_length=MAX_CONTAINERS), distinct("name")] = (
        Field(
            default_factory=list,
            description="Containers that run before the database starts, after those of the operator. A change "
            "replaces the pods one by one.",
            json_schema_extra=_by("name"),
        )
    )
    extra_volumes: Annotated[list[ExtraVolume], Field(max_length=MAX_VOLUMES), distinct("name")] = Field(
        default_factory=list,
        description="Further volumes of each pod, for extraVolumeMounts and the extra containers.",
        json_schema_extra=_by("name"),
    )
    extra_volume_mounts: Mounts = Field(
        default_factory=list,
        description="Volumes of extraVolumes in the main container.",
        json_schema_extra=_by("mountPath"),
    )

    @property
    def extra_images(self) -> dict[str, str]:
        """Images of the extra containers, by field."""
        given: dict[str, Sequence[_Container]] = {
            "extraContainers": self.extra_containers,
            "extraInitContainers": self.extra_init_containers,
        }
        return {
            f"spec.{field}[{number}].image": container.image
            for field, containers in given.items()
            for number, container in enumerate(containers)
        }

    @property
    def extra_ports(self) -> tuple[int, ...]:
        """Ports of the extra containers."""
        return tuple(port.container_port for each in self.extra_containers for port in each.ports)

    def with_access(self, pod: Obj) -> Obj:
        """Return a pod's spec with the settings that any pod needs to start: registries and identity."""
        given: Obj = {}
        if self.image_pull_secrets:
            given["imagePullSecrets"] = [as_object(each) for each in self.image_pull_secrets]
        if self.service_account_name is not None:
            # Without the deprecated field, the API server restores a name that is no longer applied.
            given |= dict.fromkeys(("serviceAccountName", "serviceAccount"), self.service_account_name)
        if self.pod_security_context is not None:
            given["securityContext"] = self.pod_security_context.override(pod["securityContext"])
        if self.image_pull_policy is not None:
            policy = {"imagePullPolicy": self.image_pull_policy}
            names = [name for name in ("initContainers", "containers") if name in pod]
            given |= {name: [container | policy for container in pod[name]] for name in names}
        return pod | given

    def extended(self, pod: Obj) -> Obj:
        """Return the spec of a database's pod with all of these settings; its first container is the main one."""
        main, *others = pod["containers"]
        safe = main["securityContext"]
        if self.container_security_context is not None:
            main = main | {"securityContext": safe | as_object(self.container_security_context)}
        if self.extra_volume_mounts:
            mounts = [as_object(mount) for mount in self.extra_volume_mounts]
            main = main | {"volumeMounts": [*main.get("volumeMounts", ()), *mounts]}
        more = {
            "containers": [main, *others, *(each.container(safe) for each in self.extra_containers)],
            "initContainers": [
                *pod.get("initContainers", ()),
                *(each.container(safe) for each in self.extra_init_containers),
            ],
            "volumes": [*pod.get("volumes", ()), *(as_object(each) for each in self.extra_volumes)],
        }
        given: Obj = {name: items for name, items in more.items() if items or name in pod}
        if self.termination_grace_period_seconds is not None:
            given["terminationGracePeriodSeconds"] = self.termination_grace_period_seconds
        return self.with_access(pod | given)

    def short_stop(self, needed: int, consequence: str) -> Iterator[str]:
        """Yield a warning if the pods may be killed before an orderly stop has ended.

        Args:
            needed: seconds that an orderly stop may take.
            consequence: effect of a shorter stop, as the end of a sentence.
        """
        given = self.termination_grace_period_seconds
        if given is not None and given < needed:
            yield (
                f"spec.terminationGracePeriodSeconds: an orderly stop may take {needed} seconds; after {given} the "
                f"kubelet kills the server, and {consequence}. Use {needed} or more."
            )
