"""Metrics of one memcached for Prometheus: `python -m operators.memcached exporter --help`.

It stands beside the server, in its pod, and shows what prometheus/memcached_exporter does (metrics.py), which cannot
authenticate. It answers

    /metrics   what the server counts at this moment; memcached_up 0, and nothing else of it, if it does not say
    /healthz   200 as long as the exporter itself answers, whatever becomes of the server
    /          where to look

and of its own shows memcached_exporter_errors_total{reason}, by the errors of database.py, and process_*. It keeps one
connection. Files of credentials and certificates are read at each new one, and what is connected stays so: a Secret may
change at any time, before or after the server took it up, and nothing restarts.

A sidecar's memory is paid in every pod: this is plain asyncio, and imports none of what an operator needs.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import logging
import resource
import signal
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from operators.memcached.client import server as database
from operators.memcached.client.errors import MemcachedError, TimedOut
from operators.memcached.client.server import Server
from operators.memcached.exporter.http import Page, serving
from operators.memcached.exporter.metrics import exposition, family
from shared.observability import logs

log = logging.getLogger(__name__)

_STARTED = time.time()
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class FilesUnusable(MemcachedError):
    """Credentials or certificates cannot be read, or do not belong together."""


@dataclass(frozen=True, slots=True)
class ExporterOptions:
    """How an exporter runs.

    Attributes:
        address: host and port of the server.
        listen: address to answer on, None for every one, and port.
        auth_file: memcached's own (-Y), of which the first line is taken: user:password.
        tls: whether the server speaks TLS.
        tls_ca: certificates of those who may sign the server's; empty for the system's, or on loopback for anybody.
        tls_cert, tls_key: the client's certificate and key.
        server_name: the name that the server's certificate bears; empty for the host.
        timeout: seconds for an answer of the server.
    """

    address: tuple[str | None, int]
    listen: tuple[str | None, int]
    auth_file: str
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
        arguments: the command line, without the word `exporter`; None takes the process's.

    Returns:
        The process's exit code.
    """
    options = parse_options(arguments)
    logs.configure(options.log_level, options.log_format)
    return asyncio.run(_run(options))


def parse_options(arguments: Sequence[str] | None = None) -> ExporterOptions:
    """Read the flags.

    Raises:
        SystemExit: one is wrong; the message says which and what it takes.
    """
    parser = argparse.ArgumentParser(prog="exporter", description="Metrics of one memcached.", allow_abbrev=False)
    flag = parser.add_argument
    flag("--address", default=("127.0.0.1", 11211), type=_address, metavar="HOST:PORT", help="the server")
    flag("--listen", default=(None, 9150), type=_address, metavar="[HOST]:PORT", help="where /metrics is answered")
    flag("--auth-file", default="", metavar="PATH", help="memcached's own (-Y); its first line is taken")
    flag("--tls", action="store_true", help="the server speaks TLS")
    flag(
        "--tls-ca",
        default="",
        metavar="PATH",
        help="who may sign the server's certificate; none means the system's, and for a loopback address anybody",
    )
    flag("--tls-cert", default="", metavar="PATH", help="the client's certificate, for a server that wants one")
    flag("--tls-key", default="", metavar="PATH", help="its key")
    flag("--server-name", default="", metavar="NAME", help="the name in the server's certificate, if not its host")
    flag("--timeout", default=2.0, type=_seconds, metavar="SECONDS", help="for an answer of the server (default: 2)")
    flag("--log-level", default="info", choices=logs.LEVELS)
    flag("--log-format", default="json", choices=logs.FORMATS)
    options = ExporterOptions(**vars(parser.parse_args(arguments)))
    if options.address[0] is None:
        parser.error("--address needs a host, such as 127.0.0.1:11211")
    if bool(options.tls_cert) != bool(options.tls_key):
        parser.error("--tls-cert and --tls-key belong together: give both, or neither")
    if not options.tls and (options.tls_ca or options.tls_cert or options.server_name):
        parser.error("--tls-ca, --tls-cert and --server-name mean nothing without --tls: give it, too")
    return options


class Exporter:
    """Asks a server whenever somebody asks for its metrics.

    Args:
        connect: how the server is reached; raises MemcachedError.
    """

    def __init__(self, connect: Callable[[], Awaitable[Server]]) -> None:
        self._connect = connect
        self._server: Server | None = None
        self._lock = asyncio.Lock()
        self._errors = Counter({kind.__name__: 0 for kind in _subclasses(MemcachedError)})  # a rate needs a first value
        self._last_error: type[MemcachedError | None] | None = None

    async def scrape(self) -> str:
        """All metrics, as text; memcached_up says whether the server answered."""
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
                family("memcached_up", "gauge", "1 if the server answers, 0 if not.", [({}, up)]),
                server_metrics,
                family("memcached_exporter_errors_total", "counter", "Scrapes with memcached_up 0, by cause.", errors),
                *_process(),
            )
        )

    async def aclose(self) -> None:
        """End the connection."""
        server, self._server = self._server, None
        if server is not None:
            await server.aclose()

    async def _server_metrics(self) -> str:
        """What the server says; over another connection where the kept one has ended meanwhile."""
        if self._server is not None:
            try:
                return await self._collect(self._server)
            except TimedOut:  # it would but be waited for once more
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
        except BaseException:  # cancelled, too: an answer half read would be taken for the next
            await self.aclose()
            raise

    def _log_transition(self, error: MemcachedError | None) -> None:
        """Log turns for better or worse: a scrape comes every few seconds."""
        current = type(error)
        if current is self._last_error:
            return
        self._last_error = current
        if error is None:
            log.info("memcached_up is 1.")
        else:
            log.warning("memcached_up is 0: %s", error)


async def connect(options: ExporterOptions) -> Server:
    """Connect as the options say, with what their files hold at this moment.

    Raises:
        MemcachedError: FilesUnusable, or what `server.connect` raises.
    """
    host, port = options.address
    try:
        tls = _tls_context(options) if options.tls else None
        auth = _credentials(options.auth_file) if options.auth_file else None
    except ssl.SSLError as error:
        raise FilesUnusable(
            f"--tls-ca, --tls-cert or --tls-key is not what it should be, or they do not belong together: "
            f"{error.reason or error}. Give certificates, and the key of --tls-cert, as PEM."
        ) from None
    except OSError as error:
        files = filter(None, (options.auth_file, options.tls_ca, options.tls_cert, options.tls_key))
        named = error.filename or f"one of {', '.join(files)}"  # ssl names none
        raise FilesUnusable(f"{named} cannot be read: {error.strerror}. Mount it, readable by this user.") from None
    return await database.connect(
        host or "", port, tls=tls, server_name=options.server_name or None, auth=auth, timeout=options.timeout
    )


def _tls_context(options: ExporterOptions) -> ssl.SSLContext:
    """A context of today's files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if options.tls_ca:
        context.load_verify_locations(options.tls_ca)
    elif _is_loopback(options.address[0] or ""):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context.load_default_certs()
    if options.tls_cert:
        # The password keeps OpenSSL from asking for one at the terminal where a key is encrypted.
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
        raise FilesUnusable(f"{path} does not begin with a line user:password, as memcached -Y reads it: mend it.")
    return user, password


async def _run(options: ExporterOptions) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    exporter = Exporter(partial(connect, options))

    async def metrics() -> Page:
        return Page(await exporter.scrape(), _METRICS)

    async def health() -> Page:
        return Page("ok\n")

    async def index() -> Page:
        return Page("Metrics of memcached: /metrics\n")

    try:
        async with serving(*options.listen, {"/metrics": metrics, "/healthz": health, "/": index}) as (host, port):
            log.info(
                "Metrics of %s are at %s, /metrics.", _format_address(*options.address), _format_address(host, port)
            )
            await stop.wait()
    except OSError as error:
        where = _format_address(*options.listen)
        log.error("Cannot listen on %s: %s. Give another --listen.", where, error.strerror or error)
        return 1
    finally:
        await exporter.aclose()
    return 0


def _process() -> Iterator[str]:
    """The exporter's own process, under the names of Prometheus's client libraries."""
    yield family(
        "process_cpu_seconds_total", "counter", "CPU time of the exporter.", [({}, round(time.process_time(), 3))]
    )
    yield family(
        "process_start_time_seconds", "gauge", "When the exporter started, in Unix time.", [({}, round(_STARTED, 3))]
    )
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield family("process_max_fds", "gauge", "File descriptors that the exporter may have.", [({}, limit)])
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
    except OSError:  # not Linux
        return
    size = pages * resource.getpagesize()
    yield family("process_resident_memory_bytes", "gauge", "Memory of the exporter.", [({}, size)])
    yield family("process_open_fds", "gauge", "File descriptors that the exporter has.", [({}, descriptors)])


def _subclasses(error: type[MemcachedError]) -> Iterator[type[MemcachedError]]:
    for kind in error.__subclasses__():
        yield kind
        yield from _subclasses(kind)


def _format_address(host: str | None, port: int) -> str:
    return f"[{host}]:{port}" if host and ":" in host else f"{host or ''}:{port}"


def _address(text: str) -> tuple[str | None, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and port.isdecimal() and int(port) < 65536) or (":" in host and not host.startswith("[")):
        raise argparse.ArgumentTypeError(f"{text!r} is no address: write host:port, or [host]:port for IPv6")
    return host.strip("[]") or None, int(port)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds
