"""The client of one Redis or Valkey server: connection, responses and commands."""
