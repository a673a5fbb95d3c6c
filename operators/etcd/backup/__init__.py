"""Snapshots of an EtcdCluster: taking, storing, pruning and restoring them.

Code that runs in pods (program.py and its imports) is independent of Kubernetes. Code that runs in the operator plans
an EtcdBackup (plan.py, observe.py) and builds the pods (pods.py). The steps of a cluster's plan that concern snapshots
are in steps/ (restore.py, backup_schedule.py).
"""
