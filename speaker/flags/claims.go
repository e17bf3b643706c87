package flags

import (
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"fairlead.dev/fairlead/internal/apiservers"
	"fairlead.dev/fairlead/speaker/desired"
)

// claims is what the flags say of what Services have as addresses.
type claims struct {
	externalIPs, hostPorts, apiServers string
	noPing                             bool
}

func (f *claims) register(flags *flag.FlagSet) {
	flags.StringVar(&f.externalIPs, "external-ips", "Pools", "which spec.externalIPs of Services are forwarded: All, Pools (addresses of IPAddressPools that nothing of another namespace has), None, or those in CIDRs separated by commas")
	flags.BoolVar(&f.noPing, "no-ping", false, "refuse pings of the addresses of Services of type LoadBalancer, which are answered while the node serves them")
	flags.StringVar(&f.apiServers, "api-servers", "", "host:port of further API servers, separated by commas, for when the one in KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT does not answer; with any, those that the cluster names are used, too")
	flags.StringVar(&f.hostPorts, "host-ports", "7475,7476", "ports of pulse on the nodes, separated by commas: no Service gets them on an address of a node")
}

// parse reads the flags, and from the environment where the API server is.
func (f *claims) parse(c *Config) (err error) {
	if c.Desired.ExternalIPs, c.Desired.ExternalIPCIDRs, err = parseExternalIPs(f.externalIPs); err != nil {
		return err
	}
	if c.APIServers, err = apiservers.Parse(f.apiServers); err != nil {
		return fmt.Errorf("--api-servers: %w", err)
	}
	c.APIServers = append([]string{net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))}, c.APIServers...)
	for _, server := range c.APIServers {
		if a, err := netip.ParseAddrPort(server); err == nil {
			c.Desired.APIServers = append(c.Desired.APIServers, a)
		}
	}
	c.Desired.NoPing, c.Desired.Resolvers = f.noPing, resolvers("/etc/resolv.conf") // the node's: dnsPolicy is Default
	c.Desired.HostPorts, err = parseHostPorts(f.hostPorts, *c)
	return err
}

// resolvers are the DNS servers in a file as of resolv.conf(5); none if it cannot be read.
func resolvers(file string) []netip.Addr {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var found []netip.Addr
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			found = append(found, a.WithZone("").Unmap())
		}
	}
	return found
}

// parseExternalIPs reads a word or CIDRs.
func parseExternalIPs(text string) (desired.ExternalIPs, []netip.Prefix, error) {
	switch text {
	case "All":
		return desired.AllExternalIPs, nil, nil
	case "Pools":
		return desired.PoolExternalIPs, nil, nil
	case "None":
		return desired.NoExternalIPs, nil, nil
	}
	cidrs, err := prefixes("--external-ips", text)
	if err != nil || len(cidrs) == 0 {
		return 0, nil, fmt.Errorf("--external-ips=%q: must be All, Pools, None, or CIDRs separated by commas", text)
	}
	return desired.ListedExternalIPs, cidrs, nil
}

// parseHostPorts reads ports, and adds those on which the speaker answers itself.
func parseHostPorts(text string, c Config) ([]uint16, error) {
	ports := []uint16{c.BGPPort}
	for number := range strings.SplitSeq(text, ",") {
		port, err := strconv.ParseUint(strings.TrimSpace(number), 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("--host-ports: %q is no port from 1 to 65535", number)
		}
		ports = append(ports, uint16(port))
	}
	for _, address := range []string{c.Metrics.Address, c.ProxyHealth, c.ProxyStatus} {
		_, number, _ := net.SplitHostPort(address)
		if port, err := strconv.ParseUint(number, 10, 16); err == nil {
			ports = append(ports, uint16(port))
		}
	}
	return ports, nil
}
