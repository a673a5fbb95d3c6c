"""Steps of plans that several databases share."""
