"""Program that works on snapshots in pods of the operator's image: `python -m operators.etcd snapshot --help`.

    snapshot   takes a snapshot from a member, stores it, and prunes older ones
    fetch      brings a snapshot, or the member's own data, to where etcdutl reads it
    seal       turns what etcdutl restored into the member's data
    clean      deletes former data

The termination message has the result as JSON: {"reason": …, "message": …} after a failure. The program imports nothing
that only the operator needs, to keep the pods of backups small.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from operators.etcd.backup import work
from operators.etcd.backup.store import AccessDenied, BackupError, SnapshotStore
from operators.etcd.backup.volume import Volume
from operators.etcd.client.errors import EtcdError
from operators.etcd.client.server import Access, Connect, Endpoint
from operators.etcd.reasons import FILE_UNUSABLE, INTERRUPTED
from shared.observability import logs
from shared.pki.certs import Pair

log = logging.getLogger(__name__)

COMMANDS = ("snapshot", "fetch", "seal", "clean")

MAX_MESSAGE_BYTES = 4096
"""Maximum size of a termination message that the kubelet reads."""

Outcome = dict[str, Any]


def main(arguments: Sequence[str] | None = None, connect: Connect | None = None) -> int:
    """Perform one piece of work.

    Args:
        arguments: command line; None for that of the process.
        connect: opens a connection to a member; None for the real one.

    Returns:
        Exit code: 0 on success, 1 on failure.
    """
    options = _parser().parse_args(arguments)
    logs.configure(options.log_level, options.log_format)
    if connect is None:
        from operators.etcd.client.gateway import connect as real  # fetch and seal do not need it

        connect = real
    outcome, code = asyncio.run(_run(_WORK[options.work](options, connect)))
    with contextlib.suppress(OSError):  # the file does not exist outside a pod
        options.termination_log.write_bytes(_short(outcome))
    return code


async def _run(work: Awaitable[Outcome]) -> tuple[Outcome, int]:
    """Return the outcome and the exit code; a signal to terminate leaves nothing incomplete."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task, 0
    except BackupError as error:
        reason, message = str(error.reason), str(error)
    except EtcdError as error:
        reason, message = f"Member{type(error).__name__}", str(error)
    except asyncio.CancelledError:
        reason, message = INTERRUPTED, "The program was terminated before it was done; nothing was kept."
    except OSError as error:
        reason, message = FILE_UNUSABLE, f"{error.filename or 'A file'}: {error.strerror or error}."
    log.error("%s: %s", reason, message)
    return {"reason": reason, "message": message}, 1


async def _snapshot(options: argparse.Namespace, connect: Connect) -> Outcome:
    given = vars(options)
    order = work.SnapshotOrder(**{field.name: given[field.name] for field in dataclasses.fields(work.SnapshotOrder)})
    address = urlsplit(options.endpoint)
    host = address.hostname or ""
    server = connect(Endpoint(options.member, host, host, address.port or 2379), _access(options))
    try:
        async with _store(options) as store:
            record = await work.take(server, store, order)
            outcome = dataclasses.asdict(record)
            if order.scheduled and order.keep:
                try:
                    outcome["removed"] = len(await work.prune(store, order))
                except BackupError as error:  # the snapshot is complete; the next one prunes again
                    log.warning("older snapshots are not removed: %s: %s", error.reason, error)
                    outcome["warning"] = f"Older snapshots are not removed: {error}"
    finally:
        await server.aclose()
    return outcome


async def _fetch(options: argparse.Namespace, _connect: Connect) -> Outcome:
    if options.salvage:
        await work.salvage(options.home, options.salvage)
        return {}
    async with _store(options) as store:
        await work.fetch(store, options.file, options.home, options.newest)
    return {}


async def _seal(options: argparse.Namespace, _connect: Connect) -> Outcome:
    found = await work.seal(options.home, options.token, replace=options.replace)
    return {"token": options.token, "revision": found.revision}


async def _clean(options: argparse.Namespace, _connect: Connect) -> Outcome:
    return {"token": options.token, "bytes": await work.clean(options.home, options.token)}


_WORK: dict[str, Callable[[argparse.Namespace, Connect], Awaitable[Outcome]]] = {
    "snapshot": _snapshot,
    "fetch": _fetch,
    "seal": _seal,
    "clean": _clean,
}


def _access(options: argparse.Namespace) -> Access:
    """Return the credentials that the mounted files currently contain."""
    pair = Pair(options.tls_cert.read_text(), options.tls_key.read_text()) if options.tls_cert else None
    return Access(
        authority=options.tls_ca.read_text() if options.tls_ca else None,
        pair=pair,
        user=options.user if options.password_file else "",
        password=options.password_file.read_text() if options.password_file else "",
    )


@contextlib.asynccontextmanager
async def _store(options: argparse.Namespace) -> AsyncIterator[SnapshotStore]:
    if options.volume:
        yield Volume(options.volume, options.path)
        return
    from operators.etcd.backup import s3  # importing its library takes half a second, which a volume does not need

    secret = {key: _text(options.s3_credentials / key) for key in ("accessKeyID", "secretAccessKey")}
    authority = options.s3_credentials / "ca.crt"
    location = s3.BucketLocation(
        bucket=options.s3_bucket,
        region=options.s3_region,
        endpoint=options.s3_endpoint,
        prefix=options.s3_prefix,
        access_key=secret["accessKeyID"],
        secret_key=secret["secretAccessKey"],
        authority=str(authority) if authority.is_file() else "",
    )
    async with s3.opened(location) as bucket:
        yield bucket


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise AccessDenied(
            f"{path}: {error.strerror}. Add the key {path.name} to the Secret with the credentials."
        ) from None


def _short(outcome: Outcome) -> bytes:
    """Return the outcome as JSON, shortened to the size that the kubelet reads."""
    text = json.dumps(outcome).encode()
    if len(text) > MAX_MESSAGE_BYTES:  # a character has at most 12 bytes in JSON
        cut = {key: outcome[key][: MAX_MESSAGE_BYTES // 24] for key in ("message", "warning") if key in outcome}
        text = json.dumps(outcome | cut).encode()
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="operators.etcd", description="Work on snapshots.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="work", required=True)
    shared, kept = argparse.ArgumentParser(add_help=False), argparse.ArgumentParser(add_help=False)
    shared.add_argument("--termination-log", type=Path, default=Path("/dev/termination-log"), metavar="PATH")
    shared.add_argument("--log-level", default="info", choices=logs.LEVELS)
    shared.add_argument("--log-format", default="json", choices=logs.FORMATS)
    _add_store(kept)

    def command(name: str, purpose: str, *parents: argparse.ArgumentParser) -> Callable[..., argparse.Action]:
        """Add a command; return the function that adds its flags."""
        return commands.add_parser(name, parents=[shared, *parents], help=purpose, allow_abbrev=False).add_argument

    _add_snapshot(command("snapshot", "take a snapshot", kept))
    fetch = command("fetch", "bring a snapshot to where etcdutl reads it", kept)
    fetch("--newest", default="", metavar="MINOR", help="newest series that can read the data, such as 3.6")
    fetch("--salvage", default="", metavar="TOKEN", help="use the member's own data, for the recovery with this token")
    seal = command("seal", "turn restored data into the data of the member")
    seal("--token", required=True, help="token of the restore or recovery")
    seal("--replace", action="store_true", help="move existing data aside instead of failing")
    clean = command("clean", "delete the former data of a recovery")
    clean("--token", required=True, help="token of the recovery")
    home = "directory where the volume of the member is mounted"
    for flag in (fetch, seal, clean):
        flag("--home", type=Path, default=Path("/var/lib/etcd"), metavar="PATH", help=home)
    return parser


def _add_store(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag("--volume", type=Path, metavar="PATH", help="directory where a volume with snapshots is mounted")
    flag("--path", default="", metavar="PATH", help="directory of the snapshots in the volume")
    flag("--s3-bucket", default="", metavar="NAME", help="bucket with snapshots, instead of a volume")
    flag("--s3-endpoint", default="", metavar="URL", help="URL of the object store; default: Amazon S3 in the region")
    flag("--s3-region", default="us-east-1", metavar="NAME", help="region of the bucket")
    flag("--s3-prefix", default="", metavar="PATH", help="prefix of the object keys")
    keys = "directory with the files accessKeyID, secretAccessKey and optionally ca.crt"
    flag("--s3-credentials", type=Path, metavar="PATH", help=keys)
    flag("--file", default="", metavar="NAME", help="name of the snapshot in the store")


def _add_snapshot(flag: Callable[..., argparse.Action]) -> None:
    flag("--endpoint", required=True, metavar="URL", help="client URL of the member: https://demo-1.demo.ns.svc:2379")
    flag("--member", required=True, metavar="NAME", help="name of the member")
    flag("--tls-ca", type=Path, metavar="PATH", help="certificate authorities to trust")
    flag("--tls-cert", type=Path, metavar="PATH", help="client certificate")
    flag("--tls-key", type=Path, metavar="PATH", help="private key of the client certificate")
    flag("--user", default="root", metavar="NAME")
    flag("--password-file", type=Path, metavar="PATH", help="file with the password; without it, no authentication")
    flag("--cluster-id", default="", metavar="HEX", help="id of the cluster that the member must belong to")
    flag("--namespace", required=True, metavar="NAME")
    flag("--cluster", required=True, metavar="NAME")
    flag("--cluster-uid", required=True, metavar="UID")
    flag("--backup", required=True, metavar="NAME", help="name of the EtcdBackup")
    flag("--scheduled", action="store_true", help="the snapshot belongs to the schedule of the cluster")
    flag("--keep", type=int, default=0, metavar="N", help="number of scheduled snapshots to keep; 0 for all")
