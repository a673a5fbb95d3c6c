"""python-etcd3 in a separate process: `python -m tests.support.containers.etcd3_client HOST PORT FILE`.

The generated code of python-etcd3 needs protobuf's Python implementation, a setting of the whole process. The program
writes the keys and values on its standard input (one pair per line), takes a snapshot into FILE, and prints the state
of the cluster as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(host: str, port: str, file: str) -> None:
    import etcd3

    client: Any = etcd3.client(host=host, port=int(port), timeout=20)
    for line in sys.stdin:
        key, value = line.split()
        client.put(key, value)
    with Path(file).open("wb") as out:
        client.snapshot(out)
    status = client.status()
    state = {
        "keys": {metadata.key.decode(): value.decode() for value, metadata in client.get_all()},
        "version": status.version,
        "db_size": status.db_size,
        "leader": status.leader.id if status.leader else 0,
        "raft_term": status.raft_term,
        "members": [[member.id, member.name, list(member.peer_urls)] for member in client.members],
        "alarms": [[alarm.member_id, alarm.alarm_type] for alarm in client.list_alarms()],
    }
    print(json.dumps(state))  # noqa: T201
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
