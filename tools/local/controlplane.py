"""etcd, API server, controller manager and scheduler as processes of the host.

Tests that need a real API but no pods run one on the loopback interface (`ControlPlane.alone`). In the local cluster it
listens on the bridge of the nodes.
"""

import ipaddress
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tools.local import binaries
from tools.local.binaries import Program
from tools.local.machine import processes
from tools.local.machine.network import SERVICE_RANGE, first_address, free_ports
from tools.local.machine.processes import Process
from tools.local.pki import Authority, Pair

_NICENESS = "-5"
"""Niceness of the control plane: pods that start on a busy machine do not delay it. Without root it has no effect.

A delayed volume controller costs 10 to 16 seconds: a claim is usable for the scheduler before its phase is Bound, and a
kubelet that reads it in between tries again only then.
"""


class ControlPlane:
    """One control plane with its own directory.

    Args:
        directory: certificates, etcd data and logs; created if missing.
        address: address on which the API listens and which it advertises to pods.
        port: port of the API.
        controllers: run the controller manager; without it nothing creates ReplicaSets, pods or service accounts.
        scheduler: run the scheduler.
        dies_with_us: the processes end with the thread that started them.
        on_start: called with each process as soon as it runs, so that the caller can record it.
        api_flags: additional flags of the API server.
        kubernetes: version of Kubernetes; by default that of the environment variable KUBERNETES, or the newest.

    Attributes:
        kubernetes: build of Kubernetes that runs.
    """

    def __init__(
        self,
        directory: Path,
        address: str,
        port: int,
        *,
        controllers: bool = True,
        scheduler: bool = True,
        dies_with_us: bool = False,
        on_start: Callable[[Process], None] = lambda _: None,
        api_flags: Sequence[str] = (),
        kubernetes: Program | None = None,
    ) -> None:
        self.directory = directory
        self.address = address
        self.port = port
        self.url = f"https://{address}:{port}"
        self.kubeconfig = directory / "kubeconfig"
        self.processes: list[Process] = []
        self._controllers = controllers
        self._scheduler = scheduler
        self._dies_with_us = dies_with_us
        self._on_start = on_start
        self._api_flags = api_flags
        self.kubernetes = kubernetes or binaries.kubernetes()

    @classmethod
    @contextmanager
    def alone(
        cls, directory: Path, controllers: bool = False, api_flags: Sequence[str] = ()
    ) -> Iterator["ControlPlane"]:
        """Run a control plane without nodes on the loopback interface and free ports; any number can run at once.

        It starts within a few seconds and leaves no process, even when the caller is killed. The caller removes the
        directory. Call it from a thread that outlives the control plane: its processes end with that thread.

        Args:
            directory: empty directory for its files.
            controllers: run the controller manager too.
            api_flags: additional flags of the API server.

        Raises:
            ClusterError: a binary cannot be built, or a process exited early.
        """
        (port,) = free_ports(1)
        plane = cls(
            directory,
            "127.0.0.1",
            port,
            controllers=controllers,
            scheduler=False,
            dies_with_us=True,
            api_flags=api_flags,
        )
        try:
            plane.start()
            yield plane
        finally:
            plane.stop()

    def start(self) -> None:
        """Start all processes and wait until the API is ready."""
        programs = binaries.build(self.kubernetes)
        self.authority = Authority(self.directory / "pki")
        self._service_accounts = self.authority.issue("service-accounts", "service-accounts")
        self.admin = self.authority.issue("admin", "platform-admin", groups=["system:masters"])
        self.authority.kubeconfig(self.kubeconfig, self.url, self.admin)
        self._etcd_ports = free_ports(2)
        self._start_api(programs)
        if self._scheduler:
            self._run("kube-scheduler", programs, self._kube_scheduler())
        self._wait("/api/v1/namespaces/default")
        if self._controllers:
            self.start_controllers()

    def _start_api(self, programs: Path) -> None:
        client_port, peer_port = self._etcd_ports
        self._run("etcd", programs, self._etcd(client_port, peer_port))
        self._run("kube-apiserver", programs, self._api_server(client_port))
        self._wait("/readyz")

    def change_data(self, change: Callable[[Path], None]) -> None:
        """Stop etcd and the API server, change the data of etcd, and start them again with the same addresses.

        Args:
            change: called with the data directory of etcd. No other process of the control plane may run.
        """
        self.stop()
        change(self.directory / "etcd")
        self._start_api(binaries.build(self.kubernetes))

    @property
    def etcd_url(self) -> str:
        """URL of etcd, which needs no credentials."""
        return f"http://127.0.0.1:{self._etcd_ports[0]}"

    def start_controllers(self) -> None:
        """Start the controller manager; its garbage collector covers the CRDs that exist by then from the start."""
        self._run("kube-controller-manager", binaries.build(self.kubernetes), self._controller_manager())
        self._wait("/api/v1/namespaces/default/serviceaccounts/default")

    def stop(self) -> None:
        """Kill every process; the data is discarded, so a graceful shutdown is not needed."""
        processes.stop(self.processes)
        self.processes.clear()

    def answers(self, path: str) -> bool:
        """Return whether a GET on the API succeeds as administrator."""
        context = ssl.create_default_context(cafile=str(self.authority.pair.certificate))
        context.load_cert_chain(self.admin.certificate, self.admin.key)
        try:
            with urllib.request.urlopen(self.url + path, context=context, timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def client_kubeconfig(self, file: str, user: str, *groups: str) -> Path:
        """Write a kubeconfig for a component of the cluster and return its path."""
        client = self.authority.issue(file, user, groups=groups)
        return self.authority.kubeconfig(self.directory / "pki" / f"{file}.kubeconfig", self.url, client)

    def _run(self, name: str, programs: Path, flags: Sequence[str]) -> None:
        log = self.directory / "logs" / f"{name}.log"
        command: list[str | Path] = ["nice", "-n", _NICENESS, programs / name, *flags]
        process = processes.start(name, command, log=log, dies_with_us=self._dies_with_us)
        with suppress(OSError):  # Linux may compare only whole sessions, by the niceness of their group (sched(7))
            Path(f"/proc/{process.pid}/autogroup").write_text(_NICENESS)
        self.processes.append(process)
        self._on_start(process)

    def _wait(self, path: str) -> None:
        processes.wait_until(lambda: self.answers(path), f"{self.url}{path}", needs=self.processes)

    def _etcd(self, port: int, peer_port: int) -> list[str]:
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        return [
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # the data is deleted with the cluster
        ]

    def _api_server(self, etcd_port: int) -> list[str]:
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
        hosts = ["localhost", "127.0.0.1", self.address, first_address(SERVICE_RANGE), *names]
        serving = self.authority.issue("kube-apiserver", "kube-apiserver", hosts=hosts)
        kubelet_client = self.authority.issue("kubelet-client", "kube-apiserver", groups=["system:masters"])
        accounts = self._service_accounts
        flags = [
            f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={self.port}",
            f"--cert-dir={self.directory / 'pki'}",
            *_tls("--tls-cert-file", "--tls-private-key-file", serving),
            *_tls("--kubelet-client-certificate", "--kubelet-client-key", kubelet_client),
            f"--kubelet-certificate-authority={self.authority.pair.certificate}",
            f"--client-ca-file={self.authority.pair.certificate}",
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            f"--enable-admission-plugins={','.join(self._admission_plugins())}",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={accounts.certificate}",
            f"--service-account-signing-key-file={accounts.key}",
            "--enable-aggregator-routing=true",  # call webhooks at pod addresses: the host has no kube-proxy
        ]
        if ipaddress.ip_address(self.address).is_loopback:
            flags.append("--endpoint-reconciler-type=none")  # no pod reaches the API through its Service
        if not self._controllers:
            flags.append("--disable-admission-plugins=ServiceAccount")  # nothing creates the accounts it requires
        return [*flags, *self._api_flags]

    def _admission_plugins(self) -> list[str]:
        """Return the plugins in addition to the defaults of Kubernetes.

        OwnerReferencesPermissionEnforcement is on in some clusters: setting blockOwnerDeletion requires permissions on
        the owner. The API tests have it. In a cluster with nodes it would delay the first resources: it looks for new
        kinds every 30 seconds.
        """
        with_nodes = not ipaddress.ip_address(self.address).is_loopback
        return ["NodeRestriction", *([] if with_nodes else ["OwnerReferencesPermissionEnforcement"])]

    def _controller_manager(self) -> list[str]:
        config = self.client_kubeconfig("kube-controller-manager", "system:kube-controller-manager")
        return [
            f"--kubeconfig={config}",
            f"--service-account-private-key-file={self._service_accounts.key}",
            f"--root-ca-file={self.authority.pair.certificate}",
            f"--cert-dir={self.directory / 'pki'}",
            "--use-service-account-credentials=true",
            "--kube-api-qps=500",  # with the default rate limit a start takes 8 s instead of 4
            "--kube-api-burst=1000",
            "--horizontal-pod-autoscaler-sync-period=5s",
            "--leader-elect=false",
            "--secure-port=0",
        ]

    def _kube_scheduler(self) -> list[str]:
        config = self.client_kubeconfig("kube-scheduler", "system:kube-scheduler")
        return [f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0"]


def _tls(certificate_flag: str, key_flag: str, pair: Pair) -> list[str]:
    return [f"{certificate_flag}={pair.certificate}", f"{key_flag}={pair.key}"]
