"""Derived from etcd's list of members: layout, quorum, corruption and Raft's log. Pure; not steps of the plan."""
