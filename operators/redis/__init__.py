"""The redis operator: its packages and modules in layers. A module imports lower layers only.

| module | contains |
|---|---|
| __main__, operator | the program; the registry entry |
| observe | reads the state of a cluster: Kubernetes from the cache, nodes live |
| plan, check | the steps in order; the check of `helm test` |
| report | the status that is reported, health and metrics |
| steps | each step of the plan, by subject |
| facts | facts that follow from the spec and the observed cluster, computed once per reconcile; legal transitions |
| state | the observed cluster, as one frozen value: its instances, with pod, volume and the report of the server |
| security | Secrets, users and certificates |
| topology | the cluster view, merged from the reports of all nodes, and its conflicts |
| migration | the moves of slots between primaries |
| objects | one file for each Kubernetes object, and their names |
| client | the protocol, the responses and the commands of one server |
| api | the resource: spec, rules, admission, status, engine versions |
| slots | sets of hash slots, moves, placement |
"""
