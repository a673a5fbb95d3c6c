#!/bin/sh
# The first process of a node, in namespaces of its own (see node.py). It makes the inside of the node, starts what a
# node runs, and stays: when it is killed, the kernel ends every process and drops every mount and interface of the node.
#
# NODE is the node's directory on the host, PROGRAMS the directory of the Kubernetes binaries; the rest is in $NODE/env.
set -eu
. "$NODE/env"

# The host's directories that a node writes to are covered by the node's own. /run first, for NODE itself may lie
# beneath one of the covered ones.
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
# A packet to a Service needs some route before kube-proxy's rules see it; one to no Service at all ends here, at a bridge
# that nothing joins (kernels without the dummy device have bridges).
ip link add services type bridge
ip link set services up
ip route add "$SERVICE_RANGE" dev services

echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables

# Runs a program for ever, as an init system would.
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
