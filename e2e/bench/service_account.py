"""The service account of the entrants, as in a pod: a token costs the API server less than a client certificate."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from e2e.bench.bare import Bare, Sent
from tools.local.controlplane import ControlPlane

NAMESPACE, NAME = "default", "bench-operator"
USER = f"system:serviceaccount:{NAMESPACE}:{NAME}"
TOKEN_SECONDS = 2 * 3600
APPLY = "application/apply-patch+yaml"

_ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}"
_OBJECTS = {
    _ACCOUNT: {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}},
    f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{NAME}": {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    },
}


class ServiceAccount(NamedTuple):
    """A service account with all rights.

    Attributes:
        directory: directory with the files `token` and `ca.crt`.
        token: bearer token.
        url: URL of the API server.
    """

    directory: Path
    token: str
    url: str

    @classmethod
    def create(cls, plane: ControlPlane, directory: Path) -> ServiceAccount:
        """Create the service account unless it exists, and write its files.

        Args:
            directory: directory in which a directory for the files is created.
        """
        token, files = asyncio.run(_token(plane)), directory / "service-account"
        files.mkdir(exist_ok=True)
        (files / "token").write_text(token)
        shutil.copy(plane.authority.pair.certificate, files / "ca.crt")
        return cls(files, token, plane.url)

    @property
    def address(self) -> tuple[str, str]:
        """Host and port of the API server."""
        address = urlsplit(self.url)
        return str(address.hostname), str(address.port)

    def kubeconfig(self) -> Path:
        """Write a kubeconfig with the token."""
        cluster = {"server": self.url, "certificate-authority": str(self.directory / "ca.crt")}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": NAME, "cluster": cluster}],
            "users": [{"name": NAME, "user": {"token": self.token}}],
            "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
            "current-context": NAME,
        }
        path = self.directory / "kubeconfig"
        path.write_text(json.dumps(content))
        return path


async def _token(plane: ControlPlane) -> str:
    query = f"?fieldManager={NAME}&force=true"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    body = json.dumps({**request, "spec": {"expirationSeconds": TOKEN_SECONDS}}).encode()
    async with Bare.of(plane, 1) as client:
        await client.send(
            [Sent("PATCH", path + query, json.dumps(obj).encode(), APPLY) for path, obj in _OBJECTS.items()]
        )
        _, (answer,) = await client.send([Sent("POST", f"{_ACCOUNT}/token", body)])
    token: str = json.loads(answer)["status"]["token"]
    return token
