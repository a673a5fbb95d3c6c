"""The kinds whose changes can be planned, and the options with which their operators run."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Mapping

from shared.cli.options import parse_options
from shared.kubernetes.kinds import Obj
from shared.runtime.options import Options
from simulator.plan import Subject, Unmodelled

CONTAINER = "operator"
"""Container of an operator in its Deployment."""


def subject(operator: str) -> Subject:
    """Return what plans the changes of a kind, by the name of its operator. Only its code is imported."""
    found: Subject = importlib.import_module(f"simulator.{operator}.seed").SUBJECT
    return found


def options(planned: Subject, deployment: Obj) -> Options:
    """Return the options of an operator from its Deployment.

    Raises:
        Unmodelled: the operator of the version of this plan does not accept them.
    """
    [container] = [each for each in deployment["spec"]["template"]["spec"]["containers"] if each["name"] == CONTAINER]
    environment: Mapping[str, str] = {
        each["name"]: each["value"] for each in container.get("env") or () if "value" in each
    }
    operator, errors = planned.operator, io.StringIO()
    namespace = f"--leader-elect-namespace={deployment['metadata']['namespace']}"  # in a pod, it is that of the pod
    try:
        with contextlib.redirect_stderr(errors):
            return parse_options(
                operator.process_name,
                operator.image_repository,
                [namespace, *(container.get("args") or ())],
                environment,
                flags=operator.flags,
            )
    except SystemExit:
        raise Unmodelled(f"The options of the operator are not known: {errors.getvalue().strip()[-300:]}") from None
