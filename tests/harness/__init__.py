"""An in-memory API server that behaves like a real one, for the tests of every operator."""

from simulator.api_server.actor import Actor
from simulator.api_server.kinds import Served
from simulator.api_server.request_log import Write
from simulator.api_server.server import ApiServer
from simulator.faults import Crash, reads, requests, writes
from simulator.kubelet.workloads import Workloads

__all__ = ["Actor", "ApiServer", "Crash", "Served", "Workloads", "Write", "reads", "requests", "writes"]
