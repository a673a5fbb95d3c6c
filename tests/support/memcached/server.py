"""Fake memcached for `operators.memcached.check`, in a correct and two faulty variants."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Keeping(socketserver.StreamRequestHandler):
    """Server of the commands set, get and quit."""

    def handle(self) -> None:
        items: dict[bytes, bytes] = {}
        while (words := self.rfile.readline().split()) and words[0] != b"quit":
            if words[0] == b"set":
                items[words[1]] = self.rfile.read(int(words[4]) + 2)[:-2]
                self.wfile.write(b"STORED\r\n")
            else:
                value = items[words[1]]
                self.wfile.write(b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (words[1], len(value), value))


class Forgetting(socketserver.StreamRequestHandler):
    """Server that accepts items and loses them."""

    def handle(self) -> None:
        while (line := self.rfile.readline()) and line != b"quit\r\n":
            pass
        self.wfile.write(b"STORED\r\nEND\r\n")


class Unresponsive(socketserver.StreamRequestHandler):
    """Server that never responds."""

    def handle(self) -> None:
        self.rfile.read()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def serving(
    behaviour: type[socketserver.BaseRequestHandler] = Keeping, host: str = "127.0.0.1", port: int = 0
) -> Iterator[str]:
    """Run a server and yield its address (host:port); port 0 means any free port."""
    with _Server((host, port), behaviour) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield f"{host}:{server.server_address[1]}"
        server.shutdown()
        thread.join()
