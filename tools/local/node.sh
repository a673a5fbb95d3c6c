#!/bin/sh
# First process of a node, in its own namespaces (see node.py). It sets up mounts and network, starts the node's programs
# and waits. When it is killed, the kernel ends every process and removes every mount and interface of the node.
#
# NODE: directory of the node on the host. PROGRAMS: directory of the Kubernetes binaries. $NODE/env has other settings.
set -eu
. "$NODE/env"

# Mount the node's own directories over those of the host that a node writes to. /run comes first, because NODE itself
# may be in a directory that is about to be covered.
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir /run/node /run/programs
mount --bind "$NODE" /run/node
mount --bind "$PROGRAMS" /run/programs
mount --bind /run/node/var/lib /var/lib
mount --bind /run/node/var/log /var/log

hostname "$NAME"
ip link set lo up
until ip link show eth0 > /dev/null 2>&1; do sleep 0.05; done
ip address add "$ADDRESS" dev eth0
ip link set eth0 up
printf '%s\n' "$ROUTES" | while read -r range gateway; do
    [ -z "$range" ] || ip route add "$range" via "$gateway"
done
# Packets to Services need a route before kube-proxy's rules apply. Packets to addresses of no Service end at this empty
# bridge (a dummy device is not available in every kernel).
ip link add services type bridge
ip link set services up
ip route add "$SERVICE_RANGE" dev services

echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables

# Run a program and restart it when it exits.
keep() {
    program=$1
    shift
    while :; do
        "$program" "$@" >> "/run/node/logs/$(basename "$program").log" 2>&1 || true
        sleep 1
    done
}

keep containerd --config /run/node/containerd.toml &
until [ -S /run/containerd/containerd.sock ]; do sleep 0.05; done
keep /run/programs/kubelet --config /run/node/kubelet.json --kubeconfig /run/node/kubelet.kubeconfig \
    --hostname-override "$NAME" --node-ip "${ADDRESS%/*}" --root-dir /var/lib/kubelet &
keep /run/programs/kube-proxy --kubeconfig /run/node/kube-proxy.kubeconfig --hostname-override "$NAME" \
    --cluster-cidr "$POD_RANGE" --proxy-mode iptables \
    --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0 &
wait
