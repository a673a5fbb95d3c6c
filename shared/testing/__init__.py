"""An in-memory API server for tests of every operator: what it does is what a real one does, without one."""

from shared.testing.actor import Actor
from shared.testing.apiserver import ApiServer
from shared.testing.faults import Crash, reads, requests, writes
from shared.testing.requestlog import Write
from shared.testing.served import Served
from shared.testing.workloads import Workloads

__all__ = ["Actor", "ApiServer", "Crash", "Served", "Workloads", "Write", "reads", "requests", "writes"]
