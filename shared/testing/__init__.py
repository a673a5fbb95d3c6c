"""An in-memory API server for tests of every operator: what it does is what a real one does, without one."""

from shared.testing.api_server.actor import Actor
from shared.testing.api_server.kinds import Served
from shared.testing.api_server.request_log import Write
from shared.testing.api_server.server import ApiServer
from shared.testing.faults import Crash, reads, requests, writes
from shared.testing.kubelet.workloads import Workloads

__all__ = ["Actor", "ApiServer", "Crash", "Served", "Workloads", "Write", "reads", "requests", "writes"]
