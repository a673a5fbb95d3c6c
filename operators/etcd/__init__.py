"""The etcd operator: its rooms in layers. A room imports rooms further down only.

__main__, operator  what the operator is made of, and running it
observer            reads a cluster: Kubernetes from the cache, etcd live
plan, check         the chain of steps; what `helm test` runs
status              what is reported of a cluster
steps               each step of the plan, in the file of its subject
assessment          facts that several steps need, computed once a round
lifecycles          legal transitions of a member and of a restore
membership          quorum arithmetic, the layout that follows from the members, Raft's log, differing data
observe             what is observed of a cluster, as one frozen value
backup              snapshots: their pods, their stores, the plan of an EtcdBackup
security            Secrets and certificates
objects             one file for each Kubernetes object, and their names
client              etcd's API
settings, api       options; the resources: specs, rules, warnings, versions
"""
