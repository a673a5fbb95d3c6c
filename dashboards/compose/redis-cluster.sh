#!/bin/sh
# Form a Redis Cluster of the given nodes (host:port), with one replica per primary. If they form one already, introduce
# them to each other again, because their addresses may have changed.
set -eu

address() { echo "$(getent ahostsv4 "${1%:*}" | awk 'NR == 1 {print $1}'):${1##*:}"; }
send() { at=$1; shift; redis-cli -h "${at%:*}" -p "${at##*:}" "$@" | tr -d '\r'; }

addresses=""
for node in "$@"; do
  until [ "$(send "$node" ping)" = PONG ]; do sleep 0.5; done
  addresses="$addresses $(address "$node")"
done
if send "$1" cluster info | grep -q '^cluster_slots_assigned:0$'; then
  # shellcheck disable=SC2086
  redis-cli --cluster create $addresses --cluster-replicas 1 --cluster-yes
else
  for node in $addresses; do send "$1" cluster meet "${node%:*}" "${node##*:}"; done
fi
