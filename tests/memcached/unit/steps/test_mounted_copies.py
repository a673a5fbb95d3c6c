"""Reports on the copies of Secrets that servers mount."""

from __future__ import annotations

import pytest

from operators.memcached.steps import mounted_copies
from operators.memcached.steps.mounted_copies import copy_secrets
from shared.kubernetes.kinds import SECRET
from shared.runtime.plan import WriteSecret
from shared.status.reasons import Severity
from simulator.memcached.fake_servers import secret
from tests.memcached.unit.world import EMPTY, assess, resource


def test_copy_that_the_operator_may_write_needs_no_action_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reconcile may be late, and another step writes the copy."""
    due = [WriteSecret(secret("cache-users-mounted") | {"kind": SECRET.name}, None)]
    monkeypatch.setattr(mounted_copies, "_renewals", lambda _: due)
    step = copy_secrets(assess(resource(auth={"secretName": "users"}), EMPTY))
    assert step.reason is not None
    assert step.message == "Copying Secrets that have changed."
    assert step.reason.severity != Severity.ACTION
