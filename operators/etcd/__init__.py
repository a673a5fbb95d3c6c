"""The etcd operator: its packages and modules in layers. Each imports only those below it.

- `__main__`, `operator`: entry point, and composition of the controllers
- `observe`: reads the state of a cluster, Kubernetes from the cache and etcd live
- `plan`, `check`: the chain of steps; the program of `helm test`
- `report`: the reported status of a cluster, its health and metrics
- `steps`: steps of the plan, one module per subject
- `facts`: facts that several steps need, computed once per reconcile; legal transitions of a member and of a restore
- `membership`: quorum arithmetic, layout of the StatefulSet, Raft's log, corruption
- `state`: observed state of a cluster, as one frozen value
- `backup`: snapshots, with their pods, their stores, and the plan of an EtcdBackup
- `security`: Secrets and certificates
- `objects`: one module per Kubernetes object, and their names
- `client`: etcd's API
- `api`: the resources with their specs, rules, warnings and versions
"""
