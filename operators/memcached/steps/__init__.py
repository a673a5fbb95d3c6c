"""Steps of the plan of Memcacheds."""
