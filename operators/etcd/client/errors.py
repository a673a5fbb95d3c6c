"""Errors of requests to etcd."""

from __future__ import annotations

from operators.etcd.reasons import REASONS
from shared.runtime.errors import DatabaseError


class EtcdError(DatabaseError):
    """A request that etcd did not fulfil.

        EtcdError
        ├── Unreachable          no response: no connection, TLS failure, timeout, interrupted, or not from etcd
        └── Refused              etcd's response has the reason
            ├── Unhealthy        the cluster is not healthy enough for a change of members
            ├── NotInSync        the learner has not caught up with the leader
            ├── NoLeader         there is no leader, or no quorum answers
            ├── NoSuchMember     the member is not part of the cluster (any more)
            ├── NoSpace          the quota is used up
            ├── Unsupported      this version of etcd does not support the request
            └── Denied           user, password or certificate are rejected
                └── Unauthenticated  a user and a password are required

    After Unreachable and NoLeader, a change may have been executed nevertheless, or may be shortly. A caller that
    repeats it must check first. After every other error it has not been executed.
    """

    reasons = REASONS


class Unreachable(EtcdError):
    """No response, or an unreadable one."""


class Refused(EtcdError):
    """etcd rejected the request."""


class Unhealthy(Refused):
    """`etcdserver: unhealthy cluster`, `re-configuration failed due to not enough started members`.

    It is expected for some seconds after each change of members: the next one waits until all voters have been
    connected for five seconds (etcd's HealthInterval). With back-off, eight failures take 13 seconds.
    """

    failures_reported = 8


class NotInSync(Refused):
    """`can only promote a learner member which is in sync with leader`."""


class NoLeader(Refused):
    """`etcdserver: no leader`, or a request timed out inside etcd."""


class NoSuchMember(Refused):
    """`etcdserver: member not found`."""


class NoSpace(Refused):
    """`etcdserver: mvcc: database space exceeded`."""


class Unsupported(Refused):
    """The gateway answers 404, or the server `Unimplemented`."""


class Denied(Refused):
    """`authentication failed`, `permission denied`; or the certificate has a common name, see `gateway`."""


class Unauthenticated(Denied):
    """`user name is empty`, `invalid auth token`: the request named no user, and the server requires one."""
