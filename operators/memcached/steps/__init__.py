"""Steps of the plan of a Memcached."""
