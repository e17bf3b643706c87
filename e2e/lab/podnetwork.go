package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
)

// PodNetwork is what connects the pods of the nodes.
type PodNetwork string

const (
	// Bridge is a bridge on each node, with routes from node to node that the lab makes. It is the default.
	Bridge PodNetwork = "bridge"
	// BridgeIPv6 is the same in a cluster of IPv6 alone: nodes, pods, Services and the API server have no address of IPv4.
	BridgeIPv6 PodNetwork = "bridge-ipv6"
	// Flannel is flannel with its VXLAN backend. It needs the part [FlannelPart].
	Flannel PodNetwork = "flannel"
	// FlannelHostGW is flannel with routes from node to node. It needs the same part.
	FlannelHostGW PodNetwork = "flannel-host-gw"
	// KubeRouter is kube-router, which learns routes by BGP from node to node and enforces NetworkPolicies, without its
	// own service proxy. It needs the part [KubeRouterPart].
	KubeRouter PodNetwork = "kube-router"
)

// PodNetworks are all of them.
func PodNetworks() []PodNetwork {
	return []PodNetwork{Bridge, BridgeIPv6, Flannel, FlannelHostGW, KubeRouter}
}

// podNetworkUser is the user of the API server that the programs of pod networks are.
const podNetworkUser = "pod-network"

// check returns an error if there is no such network.
func (p PodNetwork) check() error {
	if p != "" && !slices.Contains(PodNetworks(), p) {
		return fmt.Errorf("pod network %q: want one of %q", string(p), PodNetworks())
	}
	return nil
}

// routed are the families in which the lab makes routes from node to node. kube-router v2.1.0 makes none of IPv6 over BGP sessions of
// IPv4.
func (p PodNetwork) routed() []addr.Family {
	switch {
	case !p.own():
		return p.families()
	case p == KubeRouter:
		return []addr.Family{addr.IPv6}
	}
	return nil
}

// families are those that the cluster has.
func (p PodNetwork) families() []addr.Family {
	if p == BridgeIPv6 {
		return []addr.Family{addr.IPv6}
	}
	return addr.Families()
}

// own tells whether the network brings its masquerading with it.
func (p PodNetwork) own() bool { return p != "" && p != Bridge && p != BridgeIPv6 }

// flannel is the backend that flanneld is to use, "" if it is none.
func (p PodNetwork) flannel() string {
	return map[PodNetwork]string{Flannel: "vxlan", FlannelHostGW: "host-gw"}[p]
}

// bridge is the name of the bridge that pods are at.
func (p PodNetwork) bridge() string {
	if p == KubeRouter {
		return "kube-bridge"
	}
	return "cni0"
}

// Parts are those that a lab with these options needs built.
func (o Options) Parts() (parts []Part) {
	if o.Proxy != "" {
		parts = append(parts, Proxy)
	}
	if o.Older {
		parts = append(parts, OlderKubernetes)
	}
	switch {
	case o.PodNetwork.flannel() != "":
		parts = append(parts, FlannelPart)
	case o.PodNetwork == KubeRouter:
		parts = append(parts, KubeRouterPart)
	}
	return parts
}

// podNetworkFiles are the files that the node's network needs below /etc, with their templates.
func (n *Node) podNetworkFiles() map[string]string {
	// Flannel's own CNI plugin cannot be had: it would ask the plugin bridge for what this file has, once flanneld has
	// said how large packets may be.
	if n.lab.options.PodNetwork.flannel() != "" {
		return map[string]string{"kube-flannel/cni.conflist": "cni.conflist", "kube-flannel/net-conf.json": "flannel.json", "kube-flannel/run.sh": "flannel.sh"}
	}
	return map[string]string{"cni/net.d/10-lab.conflist": "cni.conflist"}
}

// startPodNetwork starts what the network runs on every node. It is started again when it ends, as a kubelet does.
func (n *Node) startPodNetwork(ctx context.Context) error {
	command := []string{"NODE_NAME=" + n.Name}
	switch {
	case n.lab.options.PodNetwork.flannel() != "":
		command = append(command, "bash", "/etc/kube-flannel/run.sh")
	case n.lab.options.PodNetwork == KubeRouter:
		command = append(command, "KUBE_ROUTER_CNI_CONF_FILE=/etc/cni/net.d/10-lab.conflist",
			"sh", "-c", `until "$@"; do sleep 1; done`, "again",
			"kube-router", "--kubeconfig=/etc/kubernetes/"+podNetworkUser+".conf", "--run-service-proxy=false", "--enable-ipv6",
			"--service-cluster-ip-range="+strings.Join([]string{serviceRange4, serviceRange6}, ","), "--health-port=0", "--v=1")
	default:
		return nil
	}
	_, err := n.start(ctx, "pod-network", append([]string{"env"}, command...)...)
	return err
}
