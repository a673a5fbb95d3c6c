"""Directories of the cluster, by their lifetime."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

STATE = REPOSITORY / ".cluster"
"""Files of this clone's running cluster: kubeconfig, certificates, logs, volumes. `down` removes it."""

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "platform"
"""Results that are slow to build and shared by all clones: binaries, images, the base system. `down` keeps it."""

RUN = Path("/run/platform-cluster")
"""Record of what the cluster created on this machine, for all clones. In memory, as are the things it records."""

KUBECONFIG = STATE / "kubeconfig"
