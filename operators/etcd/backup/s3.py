"""Store of snapshots as objects of a bucket, over the S3 API."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, SSLError
from botocore.exceptions import ConnectionError as NotConnected

from operators.etcd.backup.store import (
    AccessDenied,
    BucketMissing,
    Draft,
    SnapshotMissing,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnreachable,
)

_MAX_ATTEMPTS = 5
"""Number of times that one request is sent, with growing pauses."""

_MAX_PARTS_AT_ONCE = 3
"""Number of parts that are uploaded at once; together with the part being filled they determine memory use."""


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """A bucket and its credentials.

    Attributes:
        endpoint: URL of the store; empty for Amazon S3 in the region.
        prefix: prefix of keys, used as a directory.
        authority: path of the certificates to trust; empty for those of the system.
    """

    bucket: str
    region: str
    endpoint: str = ""
    prefix: str = ""
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    authority: str = ""


class Bucket:
    """A SnapshotStore in a bucket of an object store, which must exist (`opened`).

    Unless the store is Amazon's, bucket names are in the path instead of the host, because other stores seldom have a
    host name per bucket. Checksums are sent as Content-MD5, which every store supports, and not as Amazon's newer
    trailers, which others reject.
    """

    def __init__(self, location: BucketLocation, s3: Any) -> None:
        self._location, self._s3 = location, s3

    def __str__(self) -> str:
        return f"s3://{self._location.bucket}/{self._location.prefix}".rstrip("/")

    @asynccontextmanager
    async def draft(self, name: str) -> AsyncIterator[Draft]:
        upload = _Upload(self, self._key(name))
        await upload.abort_earlier()
        try:
            yield upload
        finally:
            await upload.end()

    async def read(self, name: str, offset: int, size: int) -> bytes:
        span = f"bytes={offset}-{offset + size - 1}"
        try:
            answer = await self._s3.get_object(Bucket=self._location.bucket, Key=self._key(name), Range=span)
            async with answer["Body"] as body:
                found: bytes = await body.read()
        except ClientError as error:
            if _code(error) == "InvalidRange":  # the object ends before
                return b""
            raise self._error(error) from None
        except _NO_ANSWER as error:
            raise self._error(error) from None
        return found

    async def names(self, directory: str) -> list[str]:
        prefix, found = self._key(f"{directory}/"), []
        token: dict[str, str] = {}
        while True:
            page = await self.request("list_objects_v2", Prefix=prefix, Delimiter="/", **token)
            found += [f"{directory}/{entry['Key'].removeprefix(prefix)}" for entry in page.get("Contents") or ()]
            if not page.get("IsTruncated"):
                return sorted(found)
            token = {"ContinuationToken": page["NextContinuationToken"]}

    async def remove(self, name: str) -> None:
        await self.request("delete_object", Key=self._key(name))

    async def request(self, operation: str, **given: Any) -> Any:
        """Send one request about the bucket.

        Raises:
            StoreError: the request failed.
        """
        try:
            return await getattr(self._s3, operation)(Bucket=self._location.bucket, **given)
        except (ClientError, *_NO_ANSWER) as error:
            raise self._error(error) from None

    def _key(self, name: str) -> str:
        prefix = self._location.prefix.strip("/")
        return f"{prefix}/{name}" if prefix else name

    def _error(self, error: Exception) -> StoreError:
        """Translate an error of the client to a StoreError."""
        where = self._location.endpoint or f"Amazon's S3 in {self._location.region}"
        if isinstance(error, SSLError):
            return StoreUnreachable(
                f"{where}: TLS failed: {error}. Add the certificates of its authority as ca.crt to the Secret "
                "with the credentials."
            )
        if isinstance(error, NotConnected | HTTPClientError | aiohttp.ClientError | OSError):
            return StoreUnreachable(
                f"{where} does not answer: {error}. Check the endpoint, and whether the pod may connect to it."
            )
        if not isinstance(error, ClientError):
            return StoreRefused(f"{where}: {error}.")
        return self._refusal(error, where)

    def _refusal(self, error: ClientError, where: str) -> StoreError:
        """Translate an error code of the store to a StoreError."""
        location, code, detail = self._location, _code(error), error.response.get("Error", {}).get("Message") or ""
        message = f"{where} returned {code}: {detail.rstrip('.')}." if detail else f"{where} returned {code}."
        if code == "NoSuchBucket":
            return BucketMissing(f"Bucket {location.bucket} does not exist at {where}. Create it, or name another one.")
        if code in _OTHER_REGION:
            return BucketMissing(
                f"{message} The bucket is not in region {location.region}: correct region or endpoint."
            )
        if code in ("NoSuchKey", "404"):
            return SnapshotMissing(f"The file does not exist in {self}. Name an existing one.")
        if code in _DENIED:
            return AccessDenied(
                f"{message} Bucket {location.bucket} must allow this key to list, get, put and delete objects and "
                "to abort uploads; correct the key in the Secret with the credentials, or its permissions."
            )
        if code in _FULL:
            return StoreFull(f"{message} Free space in bucket {location.bucket}, or raise its quota.")
        return StoreRefused(message)


@asynccontextmanager
async def opened(location: BucketLocation) -> AsyncIterator[Bucket]:
    """Yield the store of a bucket; no request is sent yet."""
    config = AioConfig(
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": _MAX_ATTEMPTS},
        s3={"addressing_style": "path" if location.endpoint else "auto"},
        max_pool_connections=_MAX_PARTS_AT_ONCE + 1,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client = get_session().create_client(
        "s3",
        region_name=location.region,
        endpoint_url=location.endpoint or None,
        aws_access_key_id=location.access_key,
        aws_secret_access_key=location.secret_key,
        verify=location.authority or _system_authorities(),
        config=config,
    )
    async with client as s3:
        yield Bucket(location, s3)


_NO_ANSWER = (BotoCoreError, aiohttp.ClientError, OSError)
_OTHER_REGION = frozenset({"PermanentRedirect", "301", "AuthorizationHeaderMalformed"})
_DENIED = frozenset({"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled"})
_FULL = frozenset(
    {"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507", "InsufficientStorage"}
)


def _system_authorities() -> str | bool:
    """Return the path of the system's trusted certificates; True for those of botocore."""
    known = (ssl.get_default_verify_paths().cafile, "/etc/ssl/certs/ca-certificates.crt")
    return next((path for path in known if path and Path(path).is_file()), True)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


class _Upload:
    """A draft: one request if it is short, else parts that become an object only together."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._first: bytes | None = None
        self._id = ""
        self._begun: asyncio.Task[Any] | None = None
        self._parts: list[asyncio.Task[dict[str, Any]]] = []
        self._slots = asyncio.Semaphore(_MAX_PARTS_AT_ONCE)

    async def abort_earlier(self) -> None:
        """Abort the upload of a process that was killed: the store charges for its parts until it is aborted."""
        try:
            found = await self._bucket.request("list_multipart_uploads", Prefix=self._key)
        except (AccessDenied, StoreRefused):  # it needs a permission, and some stores lack it; all else works without
            return
        for upload in found.get("Uploads") or ():
            if upload["Key"] == self._key:
                await self._abort(upload["UploadId"])

    async def write(self, block: bytes) -> None:
        if self._first is None and not self._id:
            self._first = block
            return
        if not self._id:
            self._begun = asyncio.create_task(self._bucket.request("create_multipart_upload", Key=self._key))
            # Shielded, so that `end` learns the id after a cancellation.
            self._id = (await asyncio.shield(self._begun))["UploadId"]
            first, self._first = self._first or b"", None
            await self._send(first)
        await self._send(block)

    async def keep(self) -> None:
        if not self._id:
            body = self._first or b""
            await self._bucket.request("put_object", Key=self._key, Body=body, ContentMD5=_md5(body))
            return
        parts = await asyncio.gather(*self._parts)
        await self._bucket.request(
            "complete_multipart_upload", Key=self._key, UploadId=self._id, MultipartUpload={"Parts": parts}
        )
        self._id, self._begun = "", None

    async def end(self) -> None:
        """Delete everything that was not kept."""
        unfinished = [part for part in self._parts if not part.done()]
        for part in unfinished:
            part.cancel()
        await asyncio.gather(*self._parts, return_exceptions=True)
        if self._begun is not None:
            with contextlib.suppress(StoreError):
                self._id = (await self._begun)["UploadId"]
        if self._id:  # all parts have ended: one that arrives after an abort would be kept
            with contextlib.suppress(StoreError):  # the next attempt aborts it
                await self._abort(self._id)

    async def _send(self, block: bytes) -> None:
        await self._slots.acquire()
        for part in self._parts:
            if part.done():
                part.result()  # a failed part fails the upload
        self._parts.append(asyncio.create_task(self._part(len(self._parts) + 1, block)))

    async def _part(self, number: int, block: bytes) -> dict[str, Any]:
        try:
            answer = await self._bucket.request(
                "upload_part", Key=self._key, UploadId=self._id, PartNumber=number, Body=block, ContentMD5=_md5(block)
            )
        finally:
            self._slots.release()
        return {"PartNumber": number, "ETag": answer["ETag"]}

    async def _abort(self, upload: str) -> None:
        try:
            await self._bucket.request("abort_multipart_upload", Key=self._key, UploadId=upload)
        except StoreRefused as error:
            if "NoSuchUpload" not in str(error):
                raise


def _md5(block: bytes) -> str:
    return base64.b64encode(hashlib.md5(block, usedforsecurity=False).digest()).decode()
