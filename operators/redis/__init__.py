"""The redis operator: its rooms in layers. A room imports rooms further down only.

__main__, operator   runs the operator; its registry entry
plan, check          the chain of steps; what `helm test` runs
status, observer     what is reported of a cluster; reads it: Kubernetes from the cache, nodes live
steps                each step of the plan, in the file of its subject; beside it migration_status
assessment           what follows from the spec and the observed cluster, computed once a round
observe              what is observed of a cluster, as one frozen value
security             Secrets, users and certificates
instance             one node's place: its pod, its volume, and what its server reported
topology             the cluster view, merged from what all nodes report, and its conflicts
migration            moves slots between primaries
objects              one file for each Kubernetes object, and their names
client               the protocol, the responses and the commands of one server
api                  the resource: spec, rules, admission, status, engine versions
slots                sets of hash slots, moves, placement
lifecycles           the legal transitions of nodes and slots
"""
