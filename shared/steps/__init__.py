"""Steps that the plans of several databases share."""
