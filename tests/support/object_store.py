"""An object store with S3's API, on loopback: moto's server, in this process."""

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
    """A running store.

    Attributes:
        url: its address.
        client: boto3's, to look at what is in it past the code that is tested.
    """

    url: str
    client: Any

    def bucket(self) -> str:
        """A new, empty bucket."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str) -> list[str]:
        """What is kept in a bucket."""
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=bucket).get("Contents") or ()]

    def uploads(self, bucket: str) -> list[str]:
        """Keys of uploads that were begun and neither completed nor aborted: their parts are paid for."""
        return [upload["Key"] for upload in self.client.list_multipart_uploads(Bucket=bucket).get("Uploads") or ()]


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A store until the context is left."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
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
