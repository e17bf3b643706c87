package flags

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
)

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
