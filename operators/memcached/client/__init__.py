"""The client of one memcached server."""
