"""An in-memory API server that behaves like a real one, for the tests of every operator."""

from tests.harness.api_server.actor import Actor
from tests.harness.api_server.kinds import Served
from tests.harness.api_server.request_log import Write
from tests.harness.api_server.server import ApiServer
from tests.harness.faults import Crash, reads, requests, writes
from tests.harness.kubelet.workloads import Workloads

__all__ = ["Actor", "ApiServer", "Crash", "Served", "Workloads", "Write", "reads", "requests", "writes"]
