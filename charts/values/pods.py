"""Parts of a pod that the charts' users may set: probes, security contexts, volumes.

Source: https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#podspec-v1-core
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from charts.values.base import Values
from charts.values.kubernetes import Text

Id = Annotated[int, Field(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Field(ge=1)]


class Probe(Values):
    """Timing of a probe; the chart sets what it requests."""

    initial_delay_seconds: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Time between the start of the container and the first request, in seconds."
    )
    period_seconds: Positive = Field(description="Time between two requests, in seconds.")
    timeout_seconds: Positive = Field(description="Time allowed for a response, in seconds.")
    success_threshold: Positive | None = Field(
        None, description="Number of successful requests after which the probe has succeeded."
    )
    failure_threshold: Positive = Field(description="Number of failed requests after which the probe has failed.")


class Profile(Values):
    """A seccomp or AppArmor profile."""

    type: Literal["RuntimeDefault", "Localhost", "Unconfined"] = Field(description="Kind of the profile.")
    localhost_profile: Text | None = Field(None, description="Name of the profile on the node, for type Localhost.")


class SELinuxOptions(Values):
    """SELinux label of the processes."""

    level: str | None = Field(None, description="Level.")
    role: str | None = Field(None, description="Role.")
    type: str | None = Field(None, description="Type.")
    user: str | None = Field(None, description="User.")


class SecurityContextBase(Values):
    """Settings that both a pod and a container have."""

    run_as_non_root: bool | None = Field(None, description="Refuse to start a container as root.")
    run_as_user: Id | None = Field(None, description="User ID of the processes; null for that of the image.")
    run_as_group: Id | None = Field(None, description="Group ID of the processes; null for that of the image.")
    seccomp_profile: Profile | None = Field(None, description="Seccomp profile of the processes.")
    app_armor_profile: Profile | None = Field(None, description="AppArmor profile of the processes.")
    se_linux_options: SELinuxOptions | None = Field(
        None, alias="seLinuxOptions", description="SELinux label of the processes."
    )


class PodSecurityContext(SecurityContextBase):
    """Security context of the operator's pods."""

    fs_group: Id | None = Field(None, description="Group that owns the mounted volumes.")
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = Field(
        None, description="When the group of a volume is changed."
    )
    supplemental_groups: list[Id] | None = Field(None, description="Further group IDs of the processes.")
    supplemental_groups_policy: Literal["Merge", "Strict"] | None = Field(
        None, description="Whether the groups of the image's user apply too."
    )


class Capabilities(Values):
    """Linux capabilities of a container."""

    add: list[Text] | None = Field(None, description="Capabilities added to those of the container runtime.")
    drop: list[Text] | None = Field(None, description="Capabilities removed from those of the container runtime.")


class ContainerSecurityContext(SecurityContextBase):
    """Security context of the operator's container."""

    allow_privilege_escalation: bool | None = Field(
        None, description="Whether a process may get more privileges than its parent."
    )
    read_only_root_filesystem: bool | None = Field(None, description="Mount the root file system read-only.")
    privileged: bool | None = Field(None, description="Run the container with the rights of root on the node.")
    capabilities: Capabilities | None = Field(None, description="Linux capabilities of the container.")


class Volume(BaseModel):
    """A volume of a pod. Kubernetes validates its source."""

    model_config = ConfigDict(extra="allow")

    name: Text


class VolumeMount(Values):
    """Mount of a volume into a container."""

    name: Text
    mount_path: Text
    sub_path: str | None = None
    sub_path_expr: str | None = None
    read_only: bool | None = None
    recursive_read_only: Literal["Disabled", "IfPossible", "Enabled"] | None = None
    mount_propagation: Literal["None", "HostToContainer", "Bidirectional"] | None = None
