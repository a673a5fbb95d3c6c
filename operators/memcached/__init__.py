"""The memcached operator: its packages and modules in layers. Each imports only those below it.

- `__main__`, `operator`: entry point, and composition of the controller
- `observe`: reads the state of a Memcached, Kubernetes from the cache and servers live
- `plan`, `check`: the chain of steps; the program of `helm test`
- `report`: the reported status, health and metrics
- `steps`: steps of the plan, one module per subject
- `facts`: facts that several steps need, computed once per reconcile
- `state`: observed state of a Memcached, as one frozen value
- `traffic`, `replica_sets`: gets of running servers; the ReplicaSets of a Deployment
- `security`: Secrets, users and certificates
- `exporter`: the sidecar: metrics, and what its server runs
- `objects`: one module per Kubernetes object, and their names
- `client`: memcached's protocol, and the sidecar's
- `api`: the resource with its spec, rules, warnings and versions
"""
