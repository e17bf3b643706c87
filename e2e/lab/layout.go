// Package lab runs a real Kubernetes cluster on one machine: a control plane,
// nodes, a client and a BGP router, each in a network namespace of its own and
// all on one layer 2 LAN. Every program is built from pinned Go modules or is
// Debian's; it pulls no image. It needs Linux and root.
//
// Build makes the programs and images once, Up starts a lab, Open finds the
// one that runs, Down removes every trace of it.
package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
)

// Versions that programs are told of themselves; the module directories pin
// these and all others.
const (
	KubernetesVersion = "v1.36.3"
	// OlderKubernetesVersion is the newest patch of which the module proxy has all.
	OlderKubernetesVersion = "v1.31.13"
	ContainerdVersion      = "v2.2.3"
	MetalLBVersion         = "v0.16.1"
	FRRK8sVersion          = "v0.0.26"
)

// registry is a name only: nodes are given these images.
const registry = "lab.local"

// Names of the images that every node holds. Kubernetes' own tests ask for these
// versions of agnhost and pause.
const (
	AgnhostImage = registry + "/e2e-test-images/agnhost:2.63.0"
	CoreDNSImage = registry + "/coredns:1.14.3"
	pauseImage   = registry + "/pause:3.10.2"
)

// AS numbers: the router's, and the one it expects of every node.
const (
	RouterASN = 64512
	NodeASN   = 64500
)

// Address ranges of the cluster that are not on the LAN.
const (
	podRange4     = "10.244.0.0/16"
	podRange6     = "fd00:10:244::/48"
	serviceRange4 = "10.96.0.0/16"
	serviceRange6 = "fd00:10:96::/112"
	apiService4   = "10.96.0.1"
	apiService6   = "fd00:10:96::1"
	dnsService4   = "10.96.0.10"
	dnsService6   = "fd00:10:96::10"
)

// Names of the machines; node N is "node" + N.
const (
	lanName          = "lan"
	controlPlaneName = "cp"
	clientName       = "client"
	routerName       = "router"
)

// maxNodes is how many nodes the address plan has room for.
const maxNodes = 9

// RoutedRange4 and RoutedRange6 are the ranges that the client reaches through
// the router only: addresses that the nodes announce by BGP.
func RoutedRange4() netip.Prefix { return netip.MustParsePrefix("203.0.113.0/24") }

// RoutedRange6 is the IPv6 twin of [RoutedRange4].
func RoutedRange6() netip.Prefix { return netip.MustParsePrefix("2001:db8:113::/48") }

func lanRange4() netip.Prefix    { return netip.MustParsePrefix("172.30.0.0/16") }
func lanRange6() netip.Prefix    { return netip.MustParsePrefix("fd00:30::/64") }
func clientRange4() netip.Prefix { return netip.MustParsePrefix("172.31.0.0/24") }
func clientRange6() netip.Prefix { return netip.MustParsePrefix("fd00:31::/64") }

// addresses are what a machine has on the LAN, with the prefix of its subnet.
type addresses struct{ v4, v6 netip.Prefix }

// in gives those of the families.
func (a addresses) in(families []addr.Family) []netip.Prefix {
	return ofFamilies(families, a.v4, a.v6)
}

func ofFamilies(families []addr.Family, prefixes ...netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(prefixes, func(p netip.Prefix) bool { return !slices.Contains(families, addr.FamilyOf(p.Addr())) })
}

// mac is the hardware address of the machine's LAN link, the same after a
// power cycle: locally administered, then the IPv4 address.
func (a addresses) mac() net.HardwareAddr {
	return append(net.HardwareAddr{0x02, 0x00}, a.v4.Addr().AsSlice()...)
}

// onLAN gives the addresses of the LAN's host number n. The IPv6 address shows
// the same decimal digits as the IPv4 address.
func onLAN(n int) addresses {
	return addresses{
		v4: netip.MustParsePrefix(fmt.Sprintf("172.30.0.%d/16", n)),
		v6: netip.MustParsePrefix(fmt.Sprintf("fd00:30::%d/64", n)),
	}
}

func gatewayAddresses() addresses   { return onLAN(1) }
func nodeAddresses(n int) addresses { return onLAN(10 + n) }
func routerAddresses() addresses    { return onLAN(200) }

// clientAddresses are in a subnet of their own, though on the same link, so
// that a test can tell a client from a node by its address.
func clientAddresses() addresses {
	return addresses{
		v4: netip.MustParsePrefix("172.31.0.100/24"),
		v6: netip.MustParsePrefix("fd00:31::100/64"),
	}
}

func podRanges(n int) addresses {
	return addresses{
		v4: netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", n)),
		v6: netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%d::/64", n)),
	}
}

func nodeName(n int) string { return fmt.Sprintf("node%d", n) }

// controlPlane is the machine that the control plane runs on.
func (o Options) controlPlane() (name string, addrs addresses) {
	if o.ControlPlaneOnNode {
		return nodeName(1), nodeAddresses(1)
	}
	return controlPlaneName, onLAN(10)
}

// apiServerURL is where the API server listens, as every machine of the cluster reaches it.
func (o Options) apiServerURL() string {
	_, own := o.controlPlane()
	return "https://" + netip.AddrPortFrom(own.in(o.PodNetwork.families())[0].Addr(), 6443).String()
}

// cache is the directory that holds all that the lab makes:
//
//	bin/     programs          images/     image archives and the nodes' root
//	stamps/  what all was      manifests/  of what is not ours
//	         made from
//	state/   the running lab; gone when none runs
type cache string

// openCache gives the directory named by FAIRLEAD_CACHE, or ~/.cache/fairlead.
func openCache() (cache, error) {
	if dir := os.Getenv("FAIRLEAD_CACHE"); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("FAIRLEAD_CACHE=%s is not an absolute path", dir)
		}
		return cache(dir), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no place for the lab's files: %w: set FAIRLEAD_CACHE", err)
	}
	return cache(filepath.Join(home, ".cache", "fairlead")), nil
}

// Programs is the directory of the programs that Build makes; "" if there is no place for any.
func Programs() string {
	c, err := openCache()
	if err != nil {
		return ""
	}
	return c.path("bin")
}

func (c cache) path(elem ...string) string {
	return filepath.Join(append([]string{string(c)}, elem...)...)
}
func (c cache) bin(name string) string      { return c.path("bin", name) }
func (c cache) image(name string) string    { return c.path("images", name) }
func (c cache) stamp(name string) string    { return c.path("stamps", name) }
func (c cache) state(elem ...string) string { return c.path(append([]string{"state"}, elem...)...) }

// Checkout finds the checkout that the working directory is in. It is an error if that is in none.
func Checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		mod, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module fairlead.dev/fairlead\n") {
			return at, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not in a checkout of fairlead.dev/fairlead: run the lab from one", dir)
		}
	}
}
