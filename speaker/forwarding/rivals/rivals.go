// Package rivals finds the rules of other service proxies on this node: two proxies in
// one kernel take turns by accident of order, which nobody should have to find out.
package rivals

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What kube-proxy leaves in a kernel, by mode. The chains that a kubelet makes for
// itself are not among it.
const (
	proxyChain = "KUBE-SERVICES" // of table nat
	proxyTable = "kube-proxy"    // of nftables
	proxyLink  = "kube-ipvs0"    // an interface
)

// Attributes of nf_tables messages (linux/netfilter/nf_tables.h).
const (
	attrTableName  = 1 // NFTA_TABLE_NAME
	attrChainTable = 1 // NFTA_CHAIN_TABLE
	attrChainName  = 3 // NFTA_CHAIN_NAME
)

// askTimeout bounds one run of iptables-legacy, which reads a whole table.
const askTimeout = 10 * time.Second

// Find tells in words what of kube-proxy is in the kernel of this network namespace, by
// mode and family; nothing if nothing is. Its cost does not grow with the rules, but
// for legacy iptables. An error leaves out only what could not be looked at.
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
	for _, f := range []struct {
		name    string
		family  uint8
		program string
		tables  string
	}{
		{"IPv4", unix.AF_INET, "iptables-legacy", "/proc/thread-self/net/ip_tables_names"},
		{"IPv6", unix.AF_INET6, "ip6tables-legacy", "/proc/thread-self/net/ip6_tables_names"},
	} {
		look("iptables rules (nft variant, "+f.name+")", func() (bool, error) { return hasChain(f.family, "nat", proxyChain) })
		look("iptables rules (legacy variant, "+f.name+")", func() (bool, error) { return hasLegacyChain(ctx, f.program, f.tables) })
		look("nftables rules ("+f.name+")", func() (bool, error) { return hasTable(f.family, proxyTable) })
	}
	look("IPVS interface "+proxyLink, hasLink)
	return found, errors.Join(errs...)
}

func hasChain(family uint8, table, chain string) (bool, error) {
	return ask(unix.NFT_MSG_GETCHAIN, family,
		nl.NewRtAttr(attrChainTable, nl.ZeroTerminated(table)), nl.NewRtAttr(attrChainName, nl.ZeroTerminated(chain)))
}

func hasTable(family uint8, table string) (bool, error) {
	return ask(unix.NFT_MSG_GETTABLE, family, nl.NewRtAttr(attrTableName, nl.ZeroTerminated(table)))
}

// ask asks nf_tables for one object by its name.
func ask(message int, family uint8, attributes ...*nl.RtAttr) (bool, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	for _, a := range attributes {
		req.AddData(a)
	}
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// hasLegacyChain asks the program, since the kernel has no answer of its own. Asking
// about a table creates it, so that it is asked only where the table is.
func hasLegacyChain(ctx context.Context, program, tables string) (bool, error) {
	names, err := os.ReadFile(tables)
	if err != nil || !strings.Contains(string(names), "nat\n") {
		return false, nil // a kernel without legacy iptables, or nobody uses them
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-w", "5", "-t", "nat", "-S", proxyChain, "1")
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) && ctx.Err() == nil {
		return false, nil // it has no such chain
	} else if err != nil {
		return false, err
	}
	return true, nil
}

func hasLink() (bool, error) {
	_, err := netlink.LinkByName(proxyLink)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	return err == nil, err
}
