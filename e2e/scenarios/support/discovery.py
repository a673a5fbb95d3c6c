"""Targets of a Prometheus that follow the pods, as with the Prometheus operator.

Debian builds Prometheus without Kubernetes service discovery: files with the targets replace it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from kubernetes import client, config

from e2e.scenarios.support.commands import Kubectl
from e2e.scenarios.support.prometheus import job_of, selector_of, targets_of

REFRESH_SECONDS = 1.5
"""Seconds between two updates of the targets, as a change of pods takes to reach Prometheus in a cluster."""

Obj = dict[str, Any]


class Discovery:
    """Scrape jobs with the current targets of ServiceMonitors.

    Args:
        directory: existing directory for the files with the targets.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[Path, Callable[[], list[Obj]]] = {}
        self._listings: dict[str, _Listing] = {}

    def job(self, monitor: Obj, kubectl: Kubectl, **rest: Any) -> Obj:
        """Return the scrape configuration of a ServiceMonitor; `job_of` has the arguments."""
        job = job_of(monitor, kubectl, **rest)
        file = self._directory / f"{job['job_name'].replace('/', '.')}.targets.json"
        file.write_text(json.dumps(job.pop("static_configs")))
        if kubectl.namespace not in self._listings:
            self._listings[kubectl.namespace] = _Listing(kubectl)
        self._files[file] = partial(self._listings[kubectl.namespace].targets, monitor)
        return {**job, "file_sd_configs": [{"files": [str(file)]}]}

    def refresh(self) -> None:
        """Update the files, as the Prometheus operator does when pods change."""
        for file, targets in self._files.items():
            fresh = file.with_suffix(".new")
            fresh.write_text(json.dumps(targets()))
            fresh.replace(file)

    @contextmanager
    def refreshing(self) -> Iterator[None]:
        """Keep the targets current until the end of the context; without the API server, they stay."""
        ending = threading.Event()

        def refresh() -> None:
            while not ending.wait(REFRESH_SECONDS):
                try:
                    self.refresh()
                except Exception as error:  # the client raises errors of several libraries
                    print(f"{time.strftime('%T')} targets are not refreshed: {error}"[:200])

        thread = threading.Thread(target=refresh, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join(30)


class _Listing:
    """Lists objects of a namespace through an API client: a few milliseconds per call, where kubectl takes 80."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._namespace = kubectl.namespace
        connection: Any = config.new_client_from_config(kubectl.environment["KUBECONFIG"])  # type: ignore[no-untyped-call]
        self._services = client.CoreV1Api(connection).list_namespaced_service
        self._slices = client.DiscoveryV1Api(connection).list_namespaced_endpoint_slice

    def targets(self, monitor: Obj) -> list[Obj]:
        """Return the current targets of a ServiceMonitor in the namespace."""
        services = self._items(self._services, label_selector=selector_of(monitor))
        return targets_of(monitor, self._namespace, services, self._items(self._slices))

    def _items(self, listing: Any, **selected: str) -> list[Obj]:
        answer = listing(self._namespace, _preload_content=False, _request_timeout=3, **selected)
        found: list[Obj] = json.loads(answer.data)["items"]
        return found
