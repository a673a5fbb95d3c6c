"""The redis operator: its packages and modules in layers. A module imports lower layers only.

| module | contains |
|---|---|
| __main__, operator | the program; the registry entry |
| plan, check | the steps in order; the check of `helm test` |
| status, observer | the status that is reported; the observation: Kubernetes from the cache, nodes live |
| steps | each step of the plan, by subject; in the same layer migration_status |
| assessment | facts that follow from the spec and the observed cluster, computed once for each reconcile |
| observe | the observed cluster, as one frozen value |
| security | Secrets, users and certificates |
| instance | an instance: its pod, its volume, and the report of its server |
| topology | the cluster view, merged from the reports of all nodes, and its conflicts |
| migration | the moves of slots between primaries |
| objects | one file for each Kubernetes object, and their names |
| client | the protocol, the responses and the commands of one server |
| api | the resource: spec, rules, admission, status, engine versions |
| slots | sets of hash slots, moves, placement |
| lifecycles | the legal transitions of nodes and slots |
"""
