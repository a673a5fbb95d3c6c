"""The errors of a request to a server of Redis or Valkey."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from operators.redis.client.responses import MALFORMED
from operators.redis.reasons import REASONS
from shared.runtime.errors import DatabaseError

P = ParamSpec("P")
T = TypeVar("T")


class RedisError(DatabaseError):
    """A request that a server did not fulfil.

    RedisError
    ├── Unreachable   no response: no connection, TLS refused, timeout, connection closed
    └── Refused       the server answered with an error; its first word is in `code`
        ├── Denied     NOAUTH, WRONGPASS, NOPERM: user, password or certificate are not accepted
        ├── Loading    LOADING, BUSY, MASTERDOWN: temporarily unavailable
        ├── ConfigRefused  a directive or the rules of a user have a value that the server does not accept
        ├── ForeignNodeMet  a node of another cluster was met, and forgotten again
        ├── SlotStuck  a slot cannot be moved further without manual action; clients find its keys until then
        │   └── TargetFull  the target has no memory left
        └── TargetNotReplicating  no replica of the target has the keys that it received

    After Unreachable the server may have executed the command all the same, so a retry inspects it first. After the
    others it has not.
    """

    reasons = REASONS


class Unreachable(RedisError):
    """No answer came.

    Attributes:
        distrusts: whether one side does not know the certificate authority of the other.
    """

    def __init__(self, message: str, *, distrusts: bool = False) -> None:
        super().__init__(message)
        self.distrusts = distrusts


class Refused(RedisError):
    """The server answered with an error.

    Attributes:
        code: first word of the answer: ERR, MOVED, CLUSTERDOWN, IOERR, BUSYKEY…; by default that of the message.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code or message.split(" ", 1)[0]


def sure(answer: Any) -> Any:
    """Return an answer, without which the work cannot continue.

    Raises:
        Refused: the answer is an error.
    """
    if isinstance(answer, Refused):
        raise answer
    return answer


def reads_replies(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Let a function that parses replies raise Unreachable for those that no node sends.

    Without TLS, another process may have got the address of a node since it was inspected. The function does nothing
    but send commands and parse their replies: an error of its own would be taken for one of the server.
    """

    @wraps(function)
    async def read(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        except MALFORMED as error:
            raise no_node(error) from None

    return read


def no_node(error: Exception) -> Unreachable:
    """Return the error about replies that are not those of a node, which may be of any length."""
    return Unreachable(f"The server at the address is not a Redis or Valkey cluster node: {repr(error)[:200]}.")


class Denied(Refused):
    """User, password or certificate are not accepted."""


class Loading(Refused):
    """The server is temporarily unavailable: it loads its data, or a script runs."""


class ForeignNodeMet(Refused):
    """A node of another cluster answered a handshake, because it has the address of a pod now."""


class ConfigRefused(Refused):
    """The server does not accept the value of a directive or the rules of a user, or uses another value."""


class SlotStuck(Refused):
    """A slot cannot be moved further; the message contains the remedy."""


class TargetFull(SlotStuck):
    """The target of a slot has no memory left for it."""


class TargetNotReplicating(Refused):
    """No replica of the target follows it closely enough to receive keys; the message contains the remedy."""
