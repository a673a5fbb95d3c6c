"""Reasons of conditions and events that every operator may give; each operator declares its own in operator.py."""

COMMON = frozenset(
    [
        "ApiUnavailable",
        "CreateTimeout",
        "Creating",
        "Degraded",
        "GrowingVolumes",
        "InvalidSpec",
        "IssuingCertificates",
        "NotOurs",
        "Paused",
        "Restoring",
        "Scaling",
        "SecretInvalid",
        "SecretMissing",
        "TokenRefused",
        "Updating",
        "UpgradeTimeout",
        "Upgrading",
        "VolumesCannotGrow",
    ]
)
