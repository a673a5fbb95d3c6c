"""Snapshots of an EtcdCluster: taken, kept, counted and restored.

What runs in pods (program.py and what it imports) knows nothing of Kubernetes; what runs in the operator decides which
pods there are (plan.py, schedule.py, restore.py) and builds them (pods.py).
"""
