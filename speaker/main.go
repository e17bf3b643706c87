// Command speaker runs on every node: it forwards Services in the kernel and
// announces their addresses. "speaker pulse" is the part that must not stop, a process of
// its own; "speaker cleanup" removes every rule that any speaker has made.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
	"fairlead.dev/fairlead/speaker/pulse/command"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := dispatch(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "speaker:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "pulse":
			return command.Run(ctx, args[1:], os.Stderr)
		case "cleanup":
			return cleanup(ctx, args[1:])
		}
	}
	c, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	return speak(ctx, c)
}

const routeLocalnetUsage = "where the kernel's setting net.ipv4.conf.all.route_localnet can be written, which NodePorts on localhost need"

// config is what the flags and the environment say.
type config struct {
	node, namespace, daemonSet string
	mode                       forwarding.Mode
	pods                       desired.PodDetection
	masqueradeAll              bool
	nodePorts                  nodePortAddresses
	routeLocalnet              string // a file
	conntrack                  sysctl.Want
	conntrackDir               string
	classes                    view.Classes
	nodes                      fromkube.Nodes
	bgpPort                    uint16
	httpAddress                string
	proxyHealth, proxyStatus   string // addresses, "" for none
	pulseSocket                string
	log                        *slog.Logger
}

// options are those of what this node is to do.
func (c config) options() desired.Options {
	return desired.Options{
		Node: c.node, Classes: c.classes, Pods: c.pods, MasqueradeAll: c.masqueradeAll,
		NodePortCIDRs: c.nodePorts.cidrs, NodePortPrimary: c.nodePorts.primary,
	}
}

func parse(args []string) (config, error) {
	c := config{
		node: os.Getenv("NODE_NAME"), namespace: os.Getenv("POD_NAMESPACE"), daemonSet: os.Getenv("DAEMONSET_NAME"),
	}
	flags := flag.NewFlagSet("speaker", flag.ContinueOnError)
	mode := flags.String("forwarding-mode", string(forwarding.IPTables), "who forwards Services on this node: iptables or nftables (we do, by these), or none (kube-proxy or another proxy does)")
	var pods detection
	pods.register(flags)
	flags.BoolVar(&c.masqueradeAll, "masquerade-all", false, "masquerade what pods send to ClusterIPs, too")
	nodePorts := flags.String("node-port-addresses", "", "on which of the node's addresses NodePorts answer, separated by commas: CIDRs, primary (its InternalIPs, or ExternalIPs of a family without), localhost (127.0.0.0/8, for the node itself); empty: primary")
	flags.StringVar(&c.routeLocalnet, "route-localnet-file", forwarding.RouteLocalnet, routeLocalnetUsage)
	var table connections
	table.register(flags)
	flags.StringVar(&c.conntrackDir, "conntrack-dir", sysctl.Dir, "where the kernel's settings of the connection table can be written, of which the --conntrack flags speak")
	flags.StringVar(&c.classes.Name, "load-balancer-class", "", "announce Services of this loadBalancerClass; empty: those with none")
	flags.BoolVar(&c.classes.Unclassed, "serve-unclassed", false, "announce Services with no class as well as those of --load-balancer-class")
	flags.BoolVar(&c.nodes.IgnoreExclude, "ignore-exclude-lb", false, "announce from nodes with the label node.kubernetes.io/exclude-from-external-load-balancers, too")
	port := flags.Uint("bgp-listen-port", 179, "TCP port to which routers connect whose BGPPeer is passive; nothing listens without any")
	flags.StringVar(&c.httpAddress, "metrics-bind-address", ":7474", "where /metrics, /healthz and /readyz are served")
	flags.StringVar(&c.proxyHealth, "proxy-health-address", ":10256", "where the /healthz and /livez of a service proxy are served, unless another one forwards; empty: nowhere")
	flags.StringVar(&c.proxyStatus, "proxy-status-address", "127.0.0.1:10249", "where the /proxyMode, /healthz and /metrics of a service proxy are served, unless another one forwards; empty: nowhere")
	flags.StringVar(&c.pulseSocket, "pulse-socket", "/run/fairlead/pulse.sock", "the socket of the pulse process beside us")
	level := flags.String("log-level", "info", "debug, info, warn or error")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unknown command %q; there are pulse and cleanup", flags.Arg(0))
	}
	c.mode = forwarding.Mode(*mode)
	var threshold slog.Level
	if err := threshold.UnmarshalText([]byte(*level)); err != nil {
		return config{}, fmt.Errorf("--log-level: %w", err)
	}
	c.log = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: threshold}))
	if *port == 0 || *port > math.MaxUint16 {
		return config{}, fmt.Errorf("--bgp-listen-port=%d: must be 1 to 65535", *port)
	}
	c.bgpPort = uint16(*port)
	var err error
	if c.pods, err = pods.parse(); err != nil {
		return config{}, err
	}
	if c.conntrack, err = table.parse(); err != nil {
		return config{}, err
	}
	if c.nodePorts, err = parseNodePortAddresses(*nodePorts); err != nil {
		return config{}, err
	}
	if c.node == "" || c.namespace == "" {
		return config{}, errors.New("the environment must name NODE_NAME and POD_NAMESPACE, as the chart's DaemonSet does")
	}
	return c, nil
}

// prefixes reads a flag of CIDRs separated by commas.
func prefixes(name, texts string) ([]netip.Prefix, error) {
	var found []netip.Prefix
	for text := range strings.SplitSeq(texts, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a CIDR", name, text)
		}
		found = append(found, prefix.Masked())
	}
	return found, nil
}

// cleanup removes every rule and set of ours from this node. Nothing else does:
// neither stopping nor an uninstall takes forwarding away.
func cleanup(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("speaker cleanup", flag.ContinueOnError)
	routeLocalnet := flags.String("route-localnet-file", forwarding.RouteLocalnet, routeLocalnetUsage)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("speaker cleanup takes no argument %q: it removes what all modes left", flags.Arg(0))
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := forwarding.Cleanup(ctx, *routeLocalnet); err != nil {
		return err
	}
	log.Info("every rule and set of ours is removed from this node")
	return nil
}
