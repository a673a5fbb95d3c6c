"""An in-memory API server that behaves like a real one, for the tests of every operator."""

from shared.testing.api_server.actor import Actor
from shared.testing.api_server.kinds import Served
from shared.testing.api_server.request_log import Write
from shared.testing.api_server.server import ApiServer
from shared.testing.faults import Crash, reads, requests, writes
from shared.testing.kubelet.workloads import Workloads

__all__ = ["Actor", "ApiServer", "Crash", "Served", "Workloads", "Write", "reads", "requests", "writes"]
