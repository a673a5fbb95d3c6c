"""The client of one etcd member: the JSON gateway, responses and commands."""
