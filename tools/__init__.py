"""Developer tools of this project, and the local cluster. Only the latter connects to one."""
