"""The etcd operator with real members, and clients whose every acknowledged write is checked."""
