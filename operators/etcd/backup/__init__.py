"""Snapshots of an EtcdCluster: taken, kept, counted, and made a member's data.

What runs in pods (program.py and what it imports) knows nothing of Kubernetes. What runs in the operator plans an
EtcdBackup (plan.py, observe.py) and builds the pods (pods.py); the steps of a cluster's plan that concern snapshots are
in steps/ (restore.py, backup_schedule.py).
"""
