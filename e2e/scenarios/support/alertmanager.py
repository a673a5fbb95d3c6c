"""A real Alertmanager for tests, with the recommended configuration, and the receiver of its notifications."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from e2e.scenarios.support.commands import ROOT
from tools.local import debian
from tools.local.machine import processes
from tools.local.machine.network import free_ports

RECOMMENDED = ROOT / "docs/how-to/alertmanager.yml"
"""The configuration that docs/how-to/dashboards-and-alerts.md recommends."""

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Obj = dict[str, Any]


@dataclass(frozen=True)
class Notification:
    """A notification of one alert.

    Attributes:
        at: time of the notification, in seconds of the monotonic clock.
        receiver: name of the receiver, such as page.
        resolved: whether it reports the end of the alert.
        labels: labels of the alert.
    """

    at: float
    receiver: str
    resolved: bool
    labels: Mapping[str, str]


class Alertmanager:
    """A running Alertmanager.

    Attributes:
        address: host and port of its API, to which Prometheus sends alerts.
        notifications: all notifications of its receivers, in order.
    """

    def __init__(self, address: str, notifications: Sequence[Notification]) -> None:
        self.address = address
        self.notifications = notifications

    @classmethod
    @contextmanager
    def running(cls, directory: Path, *, factor: float) -> Iterator[Alertmanager]:
        """Run Alertmanager with the recommended configuration on the loopback interface until the end of the context.

        Args:
            directory: directory for its files; it is created.
            factor: divisor of the configuration's durations.
        """
        program = debian.program("prometheus-alertmanager", "prometheus-alertmanager")
        directory.mkdir()
        with _receiving() as (url, notifications):
            configuration = directory / "alertmanager.json"  # JSON is YAML
            configuration.write_text(json.dumps(adapted(yaml.safe_load(RECOMMENDED.read_text()), url, factor)))
            [port] = free_ports(1)
            address = f"127.0.0.1:{port}"
            command = [
                *_with_templates(program),
                f"--config.file={configuration}",
                f"--storage.path={directory / 'data'}",
                f"--web.listen-address={address}",
                "--cluster.listen-address=",  # a single replica, which needs no port for others
            ]
            process = processes.start("alertmanager", command, log=directory / "alertmanager.log", dies_with_us=True)
            try:
                processes.wait_until(lambda: _is_ready(address), "Alertmanager", needs=[process], timeout=30)
                yield cls(address, notifications)
            finally:
                processes.stop([process])


def adapted(configuration: Obj, url: str, factor: float) -> Obj:
    """Return the configuration with shortened durations and with receivers that send everything to `url`. Pure."""

    def shortened(route: Obj) -> Obj:
        timed = {name: _divided(value, factor) for name, value in route.items() if name in TIMES}
        return {**route, **timed, "routes": [shortened(inner) for inner in route.get("routes", ())]}

    webhooks = [{"url": url, "send_resolved": True}]
    receivers = [
        {"name": receiver["name"], **({"webhook_configs": webhooks} if len(receiver) > 1 else {})}
        for receiver in configuration["receivers"]
    ]
    return {**configuration, "route": shortened(configuration["route"]), "receivers": receivers}


TIMES = ("group_wait", "group_interval", "repeat_interval")


def _divided(duration: str, factor: float) -> str:
    """Divide a duration; repeated notifications would only add noise, so that the longest ones stay long enough."""
    return f"{max(1, round(1000 * float(duration[:-1]) * UNITS[duration[-1]] / factor))}ms"


def _with_templates(program: Path) -> list[str | Path]:
    """Return the command of a program of a Debian package that finds its templates, also if it is only unpacked.

    Debian compiles the path of the templates into the program, so they are mounted there, visible to it alone.
    """
    share = program.parents[1] / "share"
    if TEMPLATES.exists():
        return [program]
    mount = f'mount -t overlay overlay -o "lowerdir={share}:/usr/share" /usr/share && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, "sh", program]


TEMPLATES = Path("/usr/share/prometheus/alertmanager/default.tmpl")


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@contextmanager
def _receiving() -> Iterator[tuple[str, list[Notification]]]:
    """Receive webhooks on the loopback interface until the end of the context; yield the URL and the notifications."""
    received: list[Notification] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in content["alerts"]:
                resolved = alert["status"] == "resolved"
                received.append(Notification(time.monotonic(), content["receiver"], resolved, alert["labels"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
