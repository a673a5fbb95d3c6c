"""An object store with the S3 API on the loopback interface: moto's server in this process."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-key"


@dataclass(frozen=True)
class ObjectStore:
    """A running object store.

    Attributes:
        url: URL of the server.
        client: boto3 client for inspection independent of the code under test.
    """

    url: str
    client: Any

    def bucket(self) -> str:
        """Create an empty bucket and return its name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str) -> list[str]:
        """Return the keys of the objects in a bucket."""
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=bucket).get("Contents") or ()]

    def uploads(self, bucket: str) -> list[str]:
        """Return the keys of multipart uploads that were neither completed nor aborted (S3 bills for their parts)."""
        return [upload["Key"] for upload in self.client.list_multipart_uploads(Bucket=bucket).get("Uploads") or ()]


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run an object store while the context is open."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # silences a line per request
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=url, region_name=REGION, aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY
    )
    try:
        yield ObjectStore(url, client)
    finally:
        client.close()
        server.stop()
