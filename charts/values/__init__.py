"""What the charts can be told, as models: values.yaml, values.schema.json and README tables are written from here."""
