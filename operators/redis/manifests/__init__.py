"""What `make manifests` and the local cluster take from this operator; its process imports none of it."""
