"""The machine that the local cluster runs on: packages, processes, network, cgroups."""
