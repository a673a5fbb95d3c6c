"""What follows from etcd's list of members: layout, quorum, and Raft's log. Pure; no step of the plan."""
