"""How a request to etcd fails."""

from __future__ import annotations

from shared.runtime.errors import DatabaseError


class EtcdError(DatabaseError):
    """A request that etcd did not fulfil.

    EtcdError
    ├── Unreachable          no answer: no connection, TLS refused, not in time, cut off, or not etcd's
    └── Refused              etcd's answer says why
        ├── Unhealthy        the cluster is not healthy enough for a change of members
        ├── NotInSync        the learner has not caught up with the leader
        ├── NoLeader         there is no leader, or no quorum answers
        ├── NoSuchMember     the member is not of the cluster (any more)
        ├── NoSpace          the quota is used up
        ├── Unsupported      this version of etcd does not know the request
        └── Denied           user, password or certificate are not accepted
            └── Unauthenticated  a user and a password are asked for

    After Unreachable and NoLeader, a change may have come about nevertheless, now or in a moment: who repeats it looks
    first. After every other one it has not.
    """


class Unreachable(EtcdError):
    """No answer came, or none that can be read."""


class Refused(EtcdError):
    """etcd says no."""


class Unhealthy(Refused):
    """`etcdserver: unhealthy cluster`, `re-configuration failed due to not enough started members`."""


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
    """`authentication failed`, `permission denied`; or the certificate bears a common name, see `gateway`."""


class Unauthenticated(Denied):
    """`user name is empty`, `invalid auth token`: nobody was named, and this server names users."""
