"""End-to-end: the local cluster, the images it runs, and the scenarios played on it."""
