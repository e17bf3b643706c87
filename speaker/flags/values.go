package flags

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
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

// nodePortAddresses is what --node-port-addresses says. The words are those of kube-proxy
// (KEP-6032).
type nodePortAddresses struct {
	primary bool // the node's addresses in its status; with no prefix at all they are meant, too
	cidrs   []netip.Prefix
}

// parseNodePortAddresses reads CIDRs and words, separated by commas.
func parseNodePortAddresses(text string) (nodePortAddresses, error) {
	var a nodePortAddresses
	for word := range strings.SplitSeq(text, ",") {
		switch word = strings.TrimSpace(word); word {
		case "":
		case "primary":
			a.primary = true
		case "localhost":
			a.cidrs = append(a.cidrs, addr.Loopback())
		default:
			prefix, err := netip.ParsePrefix(word)
			if err != nil {
				return nodePortAddresses{}, fmt.Errorf("--node-port-addresses: %q is neither a CIDR nor one of the words primary and localhost", word)
			}
			a.cidrs = append(a.cidrs, prefix.Masked())
		}
	}
	return a, nil
}

// warn logs which of the addresses NodePorts cannot have.
func (a nodePortAddresses) warn(log *slog.Logger) {
	if slices.Contains(a.cidrs, addr.HostPrefix(netip.IPv6Loopback())) {
		log.Warn("NodePorts do not answer on ::1, as the kernel has nothing like route_localnet for IPv6; " +
			"on 127.0.0.1 they do with localhost in the Helm value forwarding.nodePortAddresses")
	}
}

// connections is what the flags say of the connection table, by kube-proxy's names. The
// defaults leave it as it is: the chart has kube-proxy's.
type connections struct{ sysctl.Want }

func (c *connections) register(flags *flag.FlagSet) {
	flags.IntVar(&c.MaxPerCore, "conntrack-max-per-core", 0, "room for how many flows the kernel's connection table is to have for each CPU, up to 1048576 in all; it is raised and never lowered; 0: as it is, whatever --conntrack-min says")
	flags.IntVar(&c.Min, "conntrack-min", 0, "room for how many flows at least")
	flags.DurationVar(&c.TCPEstablished, "conntrack-tcp-timeout-established", 0, "for how long a TCP connection that is silent is remembered; 0: as it is")
	flags.DurationVar(&c.TCPCloseWait, "conntrack-tcp-timeout-close-wait", 0, "for how long a TCP connection that one side has closed is remembered; 0: as it is")
	flags.BoolVar(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", false, "translate TCP segments that are outside of the window, too; false: as it is")
	flags.DurationVar(&c.UDP, "conntrack-udp-timeout", 0, "for how long a UDP flow that was not answered is remembered; 0: as it is")
	flags.DurationVar(&c.UDPStream, "conntrack-udp-timeout-stream", 0, "for how long a UDP flow that goes both ways is remembered; 0: as it is")
}

// parse reads the flags. The kernel counts in whole seconds.
func (c *connections) parse() (sysctl.Want, error) {
	for name, value := range map[string]int{"--conntrack-max-per-core": c.MaxPerCore, "--conntrack-min": c.Min} {
		if value < 0 {
			return sysctl.Want{}, fmt.Errorf("%s=%d: must be 0 or more", name, value)
		}
	}
	for name, value := range map[string]time.Duration{
		"--conntrack-tcp-timeout-established": c.TCPEstablished, "--conntrack-tcp-timeout-close-wait": c.TCPCloseWait,
		"--conntrack-udp-timeout": c.UDP, "--conntrack-udp-timeout-stream": c.UDPStream,
	} {
		if value < 0 || value%time.Second != 0 {
			return sysctl.Want{}, fmt.Errorf("%s=%v: must be 0 or whole seconds", name, value)
		}
	}
	return c.Want, nil
}
