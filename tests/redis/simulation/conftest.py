"""The simulated clock passes here as well while the operator waits for a handshake."""

from tests.redis.unit.conftest import handshakes_need_no_time

__all__ = ["handshakes_need_no_time"]
