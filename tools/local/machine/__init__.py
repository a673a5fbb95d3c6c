"""The machine of the local cluster: packages, processes, network, cgroups."""
