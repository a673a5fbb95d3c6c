"""Client of a memcached server."""
