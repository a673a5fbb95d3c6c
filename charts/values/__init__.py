"""Models of the charts' values, from which values.yaml, values.schema.json and the README tables are generated."""
