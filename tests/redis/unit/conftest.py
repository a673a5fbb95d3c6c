"""The simulated clock passes while the operator waits for a handshake; tests do not wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from operators.redis.client import handshake


@pytest.fixture(scope="session", autouse=True)
def handshakes_need_no_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handshake, "POLL_INTERVAL_SECONDS", 0.0)
        yield
