// Package foreignproxy finds the rules of other service proxies on this node, so that users are
// told: with two proxies in one kernel, the order of their rules decides which one serves.
package foreignproxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// What kube-proxy leaves in a kernel, by mode. The chains that a kubelet makes for
// itself are not among it.
const (
	proxyChain = "KUBE-SERVICES" // of table nat
	proxyTable = "kube-proxy"    // of nftables
	proxyLink  = "kube-ipvs0"    // an interface
)

// wholeChain is of table nat, too. kube-proxy makes its first chains one by one, empty, and
// this one, with all rules, when it knows all Services and EndpointSlices.
const wholeChain = "KUBE-NODEPORTS"

// askTimeout bounds one run of iptables-legacy, which reads a whole table.
const askTimeout = 10 * time.Second

// Find returns in words what of kube-proxy is in the kernel of this network namespace, by
// mode and family. Its cost does not grow with the rules, but for legacy iptables. The error joins
// one for each kind of rules that could not be looked for; the others are reported nevertheless.
func Find(ctx context.Context) ([]string, error) {
	var found []string
	var errs []error
	look := func(what string, present func() (bool, error)) {
		yes, err := present()
		if err != nil {
			errs = append(errs, fmt.Errorf("look for %s: %w", what, err))
		}
		if yes {
			found = append(found, what)
		}
	}
	for _, family := range addr.Families() {
		k := of(family)
		look("iptables rules (nft variant, "+family.String()+")", func() (bool, error) { return hasChain(family, "nat", proxyChain) })
		look("iptables rules (legacy variant, "+family.String()+")", func() (bool, error) { return k.hasLegacyChain(ctx, proxyChain) })
		look("nftables rules ("+family.String()+")", func() (bool, error) { return hasTable(family, proxyTable) })
	}
	look("IPVS interface "+proxyLink, func() (bool, error) { return hasLink(proxyLink) })
	return found, errors.Join(errs...)
}

// Forwards reports whether kube-proxy has all its rules for the Services of a family in the
// kernel of this network namespace. Some are not enough: it makes the first a while before the
// rest, and those of one family before the other's. The error says what could not be looked at, if
// nothing was found.
func Forwards(ctx context.Context, family addr.Family) (bool, error) {
	k := of(family)
	var errs []error
	for _, has := range []func() (bool, error){
		func() (bool, error) { return hasTable(family, proxyTable) }, // written as a whole
		func() (bool, error) { return hasChain(family, "nat", wholeChain) },
		func() (bool, error) { return k.hasLegacyChain(ctx, wholeChain) },
		func() (bool, error) { return hasAddress(k.number) },
	} {
		yes, err := has()
		if yes {
			return true, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

// kernel is how the kernel and the tools call a family.
type kernel struct {
	number  int // AF_INET or AF_INET6
	program string
	tables  string // the file that names those of legacy iptables
}

func of(family addr.Family) kernel {
	if family == addr.IPv6 {
		return kernel{unix.AF_INET6, "ip6tables-legacy", "/proc/thread-self/net/ip6_tables_names"}
	}
	return kernel{unix.AF_INET, "iptables-legacy", "/proc/thread-self/net/ip_tables_names"}
}

func hasChain(family addr.Family, table, chain string) (bool, error) {
	return ask(unix.NFT_MSG_GETCHAIN, family, nfnetlink.Attributes{}.Text(unix.NFTA_CHAIN_TABLE, table).Text(unix.NFTA_CHAIN_NAME, chain))
}

func hasTable(family addr.Family, table string) (bool, error) {
	return ask(unix.NFT_MSG_GETTABLE, family, nfnetlink.Attributes{}.Text(unix.NFTA_TABLE_NAME, table))
}

// ask asks nf_tables for one object by its name.
func ask(message int, family addr.Family, name nfnetlink.Attributes) (bool, error) {
	err := nfnetlink.Request(unix.NFNL_SUBSYS_NFTABLES, message, 0, family, name, func([]byte) {})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// noSuchChain is how iptables ends that does not find a chain. It ends with 4 if another
// program keeps the tables to itself.
const noSuchChain = 1

// hasLegacyChain asks the program, since the kernel has no answer of its own. Asking
// about a table creates it, so that it is asked only where the table is.
func (k kernel) hasLegacyChain(ctx context.Context, chain string) (bool, error) {
	names, err := os.ReadFile(k.tables)
	if err != nil || !strings.Contains(string(names), "nat\n") {
		return false, nil // a kernel without legacy iptables, or with its tables unused
	}
	path, err := exec.LookPath(k.program)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-w", "5", "-t", "nat", "-S", chain, "1")
	var exit *exec.ExitError
	said, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() == nil && errors.As(err, &exit) && exit.ExitCode() == noSuchChain:
		return false, nil
	}
	return false, fmt.Errorf("%s: %w: %s", k.program, err, strings.TrimSpace(string(said)))
}

func hasLink(name string) (bool, error) {
	_, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	return err == nil, err
}

// hasAddress tells whether the interface of IPVS has the address of a Service. What the kernel
// itself gives to every interface does not count.
func hasAddress(family int) (bool, error) {
	link, err := netlink.LinkByName(proxyLink)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	addresses, err := netlink.AddrList(link, family)
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			return true, nil
		}
	}
	return false, err
}
