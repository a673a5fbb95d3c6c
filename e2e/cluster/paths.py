"""Where things lie. Three places, by how long they live."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

STATE = REPOSITORY / ".cluster"
"""This clone's running cluster: kubeconfig, certificates, logs, volumes. `down` removes it."""

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "platform"
"""What is slow to make and good for every clone: binaries, images, the base system. `down` keeps it."""

RUN = Path("/run/platform-cluster")
"""What the cluster made on this machine, whichever clone made it. Lies in memory, as what it records."""

KUBECONFIG = STATE / "kubeconfig"
