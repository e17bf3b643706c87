// Package flags reads the command line and the environment of the speaker.
package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"os"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/serve/secure"
	"fairlead.dev/fairlead/internal/view/fromkube"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack/sysctl"
)

// RouteLocalnetUsage is the usage of --route-localnet-file.
const RouteLocalnetUsage = "where the kernel's setting net.ipv4.conf.all.route_localnet can be written, which NodePorts on localhost need"

// Config is what the flags and the environment say.
type Config struct {
	Node, Namespace, DaemonSet string
	Mode                       forwarding.Mode
	Desired                    desired.Options
	RouteLocalnet              string // a file
	Conntrack                  sysctl.Want
	ConntrackDir               string
	Nodes                      fromkube.Nodes
	BGPPort                    uint16
	Metrics                    secure.Options
	ProxyHealth, ProxyStatus   string // addresses, "" for none
	PulseSocket                string
	APIServers                 []string // the first is the one of the environment
	Log                        *slog.Logger
}

// Parse returns what the flags and the environment say; what the speaker logs goes to log. Its error names the flag, the value and what is allowed;
// it is flag.ErrHelp if help was asked for.
func Parse(args []string, log io.Writer) (Config, error) {
	c := Config{Node: os.Getenv("NODE_NAME"), Namespace: os.Getenv("POD_NAMESPACE"), DaemonSet: os.Getenv("DAEMONSET_NAME")}
	flags := flag.NewFlagSet("speaker", flag.ContinueOnError)
	mode := flags.String("forwarding-mode", string(forwarding.IPTables), "who forwards Services on this node: iptables or nftables (we do, by these), or none (kube-proxy or another proxy does)")
	var pods detection
	pods.register(flags)
	flags.BoolVar(&c.Desired.MasqueradeAll, "masquerade-all", false, "masquerade what pods send to ClusterIPs, too")
	nodePorts := flags.String("node-port-addresses", "", "on which of the node's addresses NodePorts answer, separated by commas: CIDRs, primary (its InternalIPs, or ExternalIPs of a family without), localhost (127.0.0.0/8, for the node itself); empty: primary")
	var claimed claims
	claimed.register(flags)
	flags.StringVar(&c.RouteLocalnet, "route-localnet-file", forwarding.RouteLocalnet, RouteLocalnetUsage)
	var table connections
	table.register(flags)
	flags.StringVar(&c.ConntrackDir, "conntrack-dir", sysctl.Dir, "where the kernel's settings of the connection table can be written, of which the --conntrack flags speak")
	flags.StringVar(&c.Desired.Classes.Name, "load-balancer-class", "", "announce Services of this loadBalancerClass; empty: those with none")
	flags.BoolVar(&c.Desired.Classes.Unclassed, "serve-unclassed", false, "announce Services with no class as well as those of --load-balancer-class")
	flags.BoolVar(&c.Nodes.IgnoreExclude, "ignore-exclude-lb", false, "announce from nodes with the label node.kubernetes.io/exclude-from-external-load-balancers, too")
	port := flags.Uint("bgp-listen-port", 179, "TCP port to which routers connect whose BGPPeer is passive; nothing listens without any")
	registerMetrics(flags, &c.Metrics)
	flags.StringVar(&c.ProxyHealth, "proxy-health-address", ":10256", "where the /healthz and /livez of a service proxy are served, unless another one forwards; empty: nowhere")
	flags.StringVar(&c.ProxyStatus, "proxy-status-address", "127.0.0.1:10249", "where the /proxyMode, /healthz and /metrics of a service proxy are served, unless another one forwards; empty: nowhere")
	flags.StringVar(&c.PulseSocket, "pulse-socket", "/run/fairlead/pulse.sock", "the socket of the pulse process beside us")
	level := flags.String("log-level", "info", "debug, info, warn or error")
	if err := flags.Parse(args); err != nil {
		return Config{}, err
	}
	if flags.NArg() > 0 {
		return Config{}, fmt.Errorf("unknown command %q; there are pulse and cleanup", flags.Arg(0))
	}
	c.Mode = forwarding.Mode(*mode)
	var threshold slog.Level
	if err := threshold.UnmarshalText([]byte(*level)); err != nil {
		return Config{}, fmt.Errorf("--log-level: %w", err)
	}
	c.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: threshold}))
	if *port == 0 || *port > math.MaxUint16 {
		return Config{}, fmt.Errorf("--bgp-listen-port=%d: must be 1 to 65535", *port)
	}
	c.BGPPort = uint16(*port)
	var err error
	if c.Desired.Pods, err = pods.parse(); err != nil {
		return Config{}, err
	}
	if c.Conntrack, err = table.parse(); err != nil {
		return Config{}, err
	}
	answering, err := parseNodePortAddresses(*nodePorts)
	if err != nil {
		return Config{}, err
	}
	answering.warn(c.Log)
	if err = claimed.parse(&c); err != nil {
		return Config{}, err
	}
	c.Desired.Node, c.Desired.NodePortCIDRs, c.Desired.NodePortPrimary = c.Node, answering.cidrs, answering.primary
	if c.Node == "" || c.Namespace == "" {
		return Config{}, errors.New("the environment must name NODE_NAME and POD_NAMESPACE, as the chart's DaemonSet does")
	}
	return c, nil
}

func registerMetrics(flags *flag.FlagSet, o *secure.Options) {
	flags.StringVar(&o.Address, "metrics-bind-address", ":7474", "where /metrics, /healthz and /readyz are served")
	flags.StringVar(&o.Pulse, "pulse-metrics-address", "", "where pulse serves its metrics on this node, to be served at /metrics/pulse, too; empty: they are not")
	o.Register(flags)
}

// prefixes parses a flag of CIDRs separated by commas.
func prefixes(name, texts string) ([]netip.Prefix, error) {
	found, err := addr.ParsePrefixes(texts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return found, nil
}
