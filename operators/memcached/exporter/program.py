"""Prometheus metrics of one memcached server: `python -m operators.memcached exporter --help`.

The exporter is a sidecar of the server. It serves the metrics of prometheus/memcached_exporter (metrics.py), which does
not support authentication:

    /metrics      current statistics of the server; only memcached_up 0 if the server does not respond
    /healthz      200 as long as the exporter responds, regardless of the server
    /readyz       200 while the server responds; with --watch
    /attestation  what the server runs (watch.py), as JSON: its version, the digest of the users file that it has
                  loaded, the certificate that it serves, and whether it responds; with --watch
    /             name of the metrics page

It adds memcached_exporter_build_info, as exporters in Go do, process_*, and memcached_exporter_errors_total{reason}, by
the classes in client/errors.py. With --watch, memcached_serving and memcached_users_loaded are what it attests.

With --reload-users, the sidecar also makes the server reload a changed users file (reload.py), and with --watch, it
ends a server that hangs (watch.py).

The exporter keeps one connection. It reads credentials and certificates for each new connection, so that a Secret may
change at any time without a restart.

The exporter runs in every pod: to save memory, it uses plain asyncio and none of the operator's dependencies.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import json
import logging
import os
import resource
import signal
import ssl
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

from operators.memcached.client import server as database
from operators.memcached.client.errors import MemcachedError, TimedOut
from operators.memcached.client.server import Server
from operators.memcached.exporter.metrics import exposition, family
from operators.memcached.exporter.reload import POLL_SECONDS, Reloader
from operators.memcached.exporter.watch import Watch, end_servers, keep_watching
from shared.kubernetes.addresses import host_port
from shared.observability import http_server, logs
from shared.observability.http_messages import Request, Response
from shared.observability.http_server import Limits, Route
from shared.observability.version import VERSION

log = logging.getLogger(__name__)

_STARTED = time.time()
_METRICS = "text/plain; version=0.0.4; charset=utf-8"

LIMITS = Limits(connections=32, body_bytes=0, header_seconds=5.0, idle_seconds=0.0)
"""Limits of the HTTP server. The memory limit of the container is small: each connection serves one request."""

WATCH_TIMEOUT_SECONDS = 5.0
"""Time limit of a response when the server is observed; longer than that of a scrape, so that a busy server serves."""

MAX_NONCE_LENGTH = 128


class FilesUnusable(MemcachedError):
    """Credentials or certificates cannot be read, or do not match."""


@dataclass(frozen=True, slots=True)
class ExporterOptions:
    """Options of the exporter.

    Attributes:
        address: host and port of the server.
        listen: address (None for all) and port of the exporter; None to serve no metrics.
        auth_file: path of memcached's users file (-Y); the exporter uses its first line, user:password.
        reload_users: whether to make the server reload the users file when it changes.
        watch: whether to observe the server, to serve what it runs, and to end it if it hangs.
        attestation_key: path of the key of the digest of the loaded users file; empty for no digest.
        no_metrics: whether to serve no metrics.
        tls: whether the server uses TLS.
        tls_ca: path of the trusted CA certificates; empty for the system's, or for no verification on loopback.
        tls_cert: path of the client certificate; empty for none.
        tls_key: path of the client certificate's key; empty for none.
        server_name: name in the server's certificate; empty for the host.
        timeout: time limit of a response, in seconds.
        log_level: lowest level that is logged.
        log_format: format of the log.
    """

    address: tuple[str | None, int]
    listen: tuple[str | None, int] | None
    auth_file: str
    reload_users: bool
    watch: bool
    attestation_key: str
    no_metrics: bool
    tls: bool
    tls_ca: str
    tls_cert: str
    tls_key: str
    server_name: str
    timeout: float
    log_level: str
    log_format: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT.

    Args:
        arguments: command line without the word `exporter`; None for the command line of the process.

    Returns:
        Exit code of the process.
    """
    options = parse_options(arguments)
    logs.configure(options.log_level, options.log_format)
    return asyncio.run(_run(options))


def parse_options(arguments: Sequence[str] | None = None) -> ExporterOptions:
    """Parse the flags.

    Raises:
        SystemExit: a flag is invalid; the message names the flag and the values that it accepts.
    """
    parser = argparse.ArgumentParser(
        prog="exporter", description="Prometheus metrics of one memcached server.", allow_abbrev=False
    )
    flag = parser.add_argument
    flag(
        "--address",
        default=("127.0.0.1", 11211),
        type=_address,
        metavar="HOST:PORT",
        help="address of the memcached server (default: 127.0.0.1:11211)",
    )
    flag(
        "--listen",
        default=(None, 9150),
        type=_listen_address,
        metavar="[HOST]:PORT",
        help="address to serve /metrics on; 0 to serve none (default: :9150)",
    )
    flag("--auth-file", default="", metavar="PATH", help="memcached's users file (-Y); the first user is used")
    flag(
        "--reload-users",
        action="store_true",
        help="make memcached reload --auth-file when it changes (SIGHUP); requires a common process namespace",
    )
    flag(
        "--watch",
        action="store_true",
        help="serve what the server runs at /attestation and /readyz, and end a server that hangs; requires a common "
        "process namespace",
    )
    flag("--attestation-key", default="", metavar="PATH", help="key of the digest of the loaded users file")
    flag("--no-metrics", action="store_true", help="serve no /metrics")
    flag("--tls", action="store_true", help="connect to the server with TLS")
    flag(
        "--tls-ca",
        default="",
        metavar="PATH",
        help="trusted CA certificates (default: the system's, or no verification for a loopback address)",
    )
    flag("--tls-cert", default="", metavar="PATH", help="client certificate, for a server that requires one")
    flag("--tls-key", default="", metavar="PATH", help="private key of --tls-cert")
    flag("--server-name", default="", metavar="NAME", help="name in the server's certificate (default: the host)")
    flag(
        "--timeout",
        default=2.0,
        type=_seconds,
        metavar="SECONDS",
        help="time limit of a response of the server (default: 2)",
    )
    flag("--log-level", default="info", choices=logs.LEVELS)
    flag("--log-format", default="json", choices=logs.FORMATS)
    options = ExporterOptions(**vars(parser.parse_args(arguments)))
    if options.address[0] is None:
        parser.error("--address requires a host, for example 127.0.0.1:11211")
    if options.reload_users and not options.auth_file:
        parser.error("--reload-users requires --auth-file")
    if bool(options.tls_cert) != bool(options.tls_key):
        parser.error("--tls-cert and --tls-key must be set together")
    if not options.tls and (options.tls_ca or options.tls_cert or options.server_name):
        parser.error("--tls-ca, --tls-cert and --server-name require --tls")
    return options


class Exporter:
    """Metrics of a server, which is queried on each scrape.

    Args:
        connect: opens a connection to the server; raises MemcachedError.
        watch: observation of the server; None without one.
    """

    def __init__(self, connect: Callable[[], Awaitable[Server]], watch: Watch | None = None) -> None:
        self._connect = connect
        self._watch = watch
        self._server: Server | None = None
        self._lock = asyncio.Lock()
        self._errors = Counter({kind.__name__: 0 for kind in _subclasses(MemcachedError)})  # a rate needs a first value
        self._last_error: type[MemcachedError | None] | None = None

    async def scrape(self) -> str:
        """Return all metrics as text; memcached_up shows whether the server responded."""
        async with self._lock:
            try:
                server_metrics, up = await self._server_metrics(), 1
                self._log_transition(None)
            except MemcachedError as error:
                server_metrics, up = "", 0
                self._errors[type(error).__name__] += 1
                self._log_transition(error)
        errors = [({"reason": reason}, count) for reason, count in self._errors.items()]
        return "".join(
            (
                family("memcached_up", "gauge", "1 if the server responds, 0 if not.", [({}, up)]),
                server_metrics,
                *(() if self._watch is None else _attested(self._watch)),
                _build_info(),
                family("memcached_exporter_errors_total", "counter", "Scrapes with memcached_up 0, by cause.", errors),
                *_process(),
            )
        )

    async def aclose(self) -> None:
        """Close the connection."""
        server, self._server = self._server, None
        if server is not None:
            await server.aclose()

    async def _server_metrics(self) -> str:
        """Query the server, over a new connection if the current one has been closed."""
        if self._server is not None:
            try:
                return await self._collect(self._server)
            except TimedOut:  # a new connection would only wait once more
                raise
            except MemcachedError:
                pass
        self._server = await self._connect()
        return await self._collect(self._server)

    async def _collect(self, server: Server) -> str:
        try:
            return exposition(
                server=await server.stats(),
                settings=await server.stats("settings"),
                slabs=await server.stats("slabs"),
                items=await server.stats("items"),
            )
        except BaseException:  # including cancellation: the rest of the response would be read as the next one
            await self.aclose()
            raise

    def _log_transition(self, error: MemcachedError | None) -> None:
        """Log only changes: a scrape happens every few seconds."""
        current = type(error)
        if current is self._last_error:
            return
        self._last_error = current
        if error is None:
            log.info("memcached_up is 1.")
        else:
            log.warning("memcached_up is 0: %s", error)


async def connect(
    options: ExporterOptions,
    *,
    user: tuple[str, str] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> Server:
    """Connect with the current contents of the files in the options.

    Args:
        user: user and password; None for the first user of the file in the options.
        timeout: time limit of a response in seconds; None for that of the options.

    Raises:
        MemcachedError: FilesUnusable, or an error of `server.connect`.
    """
    host, port = options.address
    try:
        tls = _tls_context(options) if options.tls else None
        auth = user or (_credentials(options.auth_file) if options.auth_file else None)
    except ssl.SSLError as error:
        raise FilesUnusable(
            f"--tls-ca, --tls-cert or --tls-key is invalid, or certificate and key do not match: "
            f"{error.reason or error}. Provide the certificates and the key of --tls-cert in PEM format."
        ) from None
    except OSError as error:
        files = filter(None, (options.auth_file, options.tls_ca, options.tls_cert, options.tls_key))
        named = error.filename or f"one of {', '.join(files)}"  # ssl does not name the file
        raise FilesUnusable(
            f"{named} cannot be read: {error.strerror}. Mount the file so that this user can read it."
        ) from None
    return await database.connect(
        host or "",
        port,
        tls=tls,
        server_name=options.server_name or None,
        auth=auth,
        timeout=timeout or options.timeout,
    )


def _tls_context(options: ExporterOptions) -> ssl.SSLContext:
    """Return a TLS context from the current files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if options.tls_ca:
        context.load_verify_locations(options.tls_ca)
    elif _is_loopback(options.address[0] or ""):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context.load_default_certs()
    if options.tls_cert:
        # With an empty password, OpenSSL fails on an encrypted key instead of prompting.
        context.load_cert_chain(options.tls_cert, options.tls_key, password="")
    return context


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _credentials(path: str) -> tuple[str, str]:
    user, colon, password = Path(path).read_text(errors="replace").partition("\n")[0].rstrip("\r").partition(":")
    if not (user and colon and password):
        raise FilesUnusable(
            f"{path}: the first line is not user:password, the format of memcached -Y. Correct the file."
        )
    return user, password


async def _run(options: ExporterOptions) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    reloader = Reloader(Path(options.auth_file)) if options.reload_users else None
    watch = _watch(options, reloader) if options.watch else None
    if watch is not None:
        work = asyncio.create_task(keep_watching(watch, WATCH_TIMEOUT_SECONDS))
    elif reloader is not None:
        work = asyncio.create_task(_keep_reloaded(reloader))
    else:
        return await _serve(options, None, stop)
    try:
        return await _serve(options, watch, stop)
    finally:
        work.cancel()


def _watch(options: ExporterOptions, reloader: Reloader | None) -> Watch:
    without_files = replace(options, auth_file="", tls_cert="", tls_key="")

    async def connected(user: tuple[str, str] | None) -> Server:
        try:
            return await connect(options, user=user, timeout=WATCH_TIMEOUT_SECONDS)
        except FilesUnusable:
            if user is not None:
                raise
        return await connect(without_files, timeout=WATCH_TIMEOUT_SECONDS)  # a refusal shows that the server serves

    ending = partial(end_servers, options.address[1], processes=Path("/proc"), send=os.kill)
    return Watch(connected, reloader, ending)


async def _keep_reloaded(reloader: Reloader) -> None:
    """Check the users file repeatedly, until the task is cancelled."""
    while True:
        reloader.check()
        await asyncio.sleep(POLL_SECONDS)


def _attest(watch: Watch, key_file: str, nonce: str) -> Response:
    """Return what the server runs. The digest is valid for this nonce only, so that no response can be replayed."""
    try:
        key = Path(key_file).read_bytes() if key_file else b""
    except OSError as error:
        log.warning("%s cannot be read: %s", key_file, error)
        key = b""
    attestation = {
        "serves": watch.serves,
        "version": watch.version,
        "certificate": watch.certificate,
        "users": watch.users(key, nonce) if key and nonce else "",
        "error": watch.error,
    }
    return Response(body=json.dumps(attestation).encode(), content_type="application/json")


async def _serve(options: ExporterOptions, watch: Watch | None, stop: asyncio.Event) -> int:
    """Serve metrics, and what the server runs, until the event is set."""
    if options.listen is None:
        await stop.wait()
        return 0
    exporter = Exporter(partial(connect, options), watch)

    async def metrics(_: Request) -> Response:
        return Response(body=(await exporter.scrape()).encode(), content_type=_METRICS)

    async def health(_: Request) -> Response:
        return Response.text("ok\n")

    async def index(_: Request) -> Response:
        return Response.text("Metrics of memcached: /metrics\n")

    routes = [Route("GET", "/healthz", health), Route("GET", "/", index)]
    if not options.no_metrics:
        routes.append(Route("GET", "/metrics", metrics))
    if watch is not None:
        watched = watch

        async def ready(_: Request) -> Response:
            if watched.serves:
                return Response.text("ok\n")
            return Response.text(f"{watched.error or 'not observed yet'}\n", HTTPStatus.SERVICE_UNAVAILABLE)

        async def attestation(request: Request) -> Response:
            nonce = parse_qs(request.query).get("nonce", [""])[0]
            return _attest(watched, options.attestation_key, nonce[:MAX_NONCE_LENGTH])

        routes += [Route("GET", "/readyz", ready), Route("GET", "/attestation", attestation)]
    try:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(exporter.aclose)
            port = await http_server.serve(stack, host_port(*options.listen), routes, limits=LIMITS)
            where = host_port(options.listen[0], port)
            log.info("Serving metrics of %s on %s, /metrics.", host_port(*options.address), where)
            await stop.wait()
    except OSError as error:
        log.error("%s", error)
        return 1
    return 0


def _attested(watch: Watch) -> Iterator[str]:
    """Yield what the sidecar attests to the operator, and to the kubelet's readiness probe."""
    yield family("memcached_serving", "gauge", "1 if the server has responded lately, 0 if not.", [({}, +watch.serves)])
    if watch.reloads_users:
        help_text = "1 if it is proven that the server has loaded the users file, 0 if not."
        yield family("memcached_users_loaded", "gauge", help_text, [({}, +(watch.loaded_users is not None))])


def _build_info() -> str:
    """Return the version of the exporter, with the labels of Go's client library; facts about Go are unknown.

    Source: prometheus/collectors/version/version.go in prometheus/client_golang.
    """
    machine = os.uname().machine
    labels = {
        "branch": "",
        "goarch": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine),
        "goos": sys.platform,
        "goversion": "unknown",
        "revision": "unknown",
        "tags": "unknown",
        "version": VERSION,
    }
    return family("memcached_exporter_build_info", "gauge", "1, labeled by the version of the exporter.", [(labels, 1)])


def _process() -> Iterator[str]:
    """Yield metrics of the exporter's process, with the names of Prometheus's client libraries."""
    yield family(
        "process_cpu_seconds_total",
        "counter",
        "CPU time of the exporter in seconds.",
        [({}, round(time.process_time(), 3))],
    )
    yield family(
        "process_start_time_seconds", "gauge", "Start time of the exporter, in Unix time.", [({}, round(_STARTED, 3))]
    )
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield family("process_max_fds", "gauge", "Maximum number of open file descriptors of the exporter.", [({}, limit)])
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
    except OSError:  # not Linux
        return
    size = pages * resource.getpagesize()
    yield family("process_resident_memory_bytes", "gauge", "Resident memory of the exporter in bytes.", [({}, size)])
    yield family("process_open_fds", "gauge", "Number of open file descriptors of the exporter.", [({}, descriptors)])


def _subclasses(error: type[MemcachedError]) -> Iterator[type[MemcachedError]]:
    for kind in error.__subclasses__():
        yield kind
        yield from _subclasses(kind)


def _address(text: str) -> tuple[str | None, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and port.isdecimal() and int(port) < 65536) or (":" in host and not host.startswith("[")):
        raise argparse.ArgumentTypeError(f"{text!r} is not an address: use host:port, or [host]:port for IPv6")
    return host.strip("[]") or None, int(port)


def _listen_address(text: str) -> tuple[str | None, int] | None:
    return None if text == "0" else _address(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds greater than 0")
    return seconds
