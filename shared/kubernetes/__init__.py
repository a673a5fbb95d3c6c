"""The Kubernetes API: the client and its transport, owned objects, managed fields, pods."""
