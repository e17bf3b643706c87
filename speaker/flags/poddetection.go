package flags

import (
	"errors"
	"flag"
	"fmt"
	"regexp"

	"fairlead.dev/fairlead/speaker/desired"
)

// detection is what the flags say about how pods are told from other clients. The modes have the
// names of kube-proxy's.
type detection struct{ mode, clusterCIDRs, bridge, prefix string }

func (d *detection) register(flags *flag.FlagSet) {
	flags.StringVar(&d.mode, "detect-local-mode", "ClusterCIDR", "how pods are told from strangers: ClusterCIDR (by the addresses of all pods), NodeCIDR (by the podCIDRs of this node), BridgeInterface (by the interface that they send by) or InterfaceNamePrefix (by how its name begins)")
	flags.StringVar(&d.clusterCIDRs, "cluster-cidrs", "", "where pods send from, CIDRs separated by commas, for --detect-local-mode=ClusterCIDR; of a family without one: the nodes' podCIDRs")
	flags.StringVar(&d.bridge, "pod-bridge-interface", "", "the interface that all pods send by, for --detect-local-mode=BridgeInterface")
	flags.StringVar(&d.prefix, "pod-interface-name-prefix", "", "how the names of all interfaces begin that pods send by, for --detect-local-mode=InterfaceNamePrefix")
}

// linkName is what can be (the beginning of) the name of an interface and means the same
// to the kernel and to both backends: to iptables a "+" at the end is any rest.
var linkName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)

// parse reads the flags. One that the mode does not use is an error: an operator would believe that it
// counts.
func (d *detection) parse() (desired.PodDetection, error) {
	var says desired.PodDetection
	flags := []struct{ name, value, mode string }{
		{"--cluster-cidrs", d.clusterCIDRs, "ClusterCIDR"},
		{"--pod-bridge-interface", d.bridge, "BridgeInterface"},
		{"--pod-interface-name-prefix", d.prefix, "InterfaceNamePrefix"},
	}
	for _, f := range flags {
		if f.value != "" && f.mode != d.mode {
			return says, fmt.Errorf("%s=%s counts only with --detect-local-mode=%s, which is %s: set one of them otherwise", f.name, f.value, f.mode, d.mode)
		}
	}
	var err error
	switch d.mode {
	case "ClusterCIDR":
		says.ClusterCIDRs, err = prefixes("--cluster-cidrs", d.clusterCIDRs)
	case "NodeCIDR":
		says.OwnNode = true
	case "BridgeInterface":
		says.Links.Name, err = link("--pod-bridge-interface", d.bridge)
	case "InterfaceNamePrefix":
		says.Links.Prefix = true
		says.Links.Name, err = link("--pod-interface-name-prefix", d.prefix)
	default:
		err = fmt.Errorf("--detect-local-mode=%q: must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix", d.mode)
	}
	return says, err
}

func link(name, value string) (string, error) {
	if value == "" {
		return "", errors.New(name + " is missing, without which nobody would be taken for a pod")
	}
	if !linkName.MatchString(value) {
		return "", fmt.Errorf("%s=%q: must be 1 to 15 letters, digits, underscores, dots and hyphens, and not begin with a dot or a hyphen", name, value)
	}
	return value, nil
}
