// Package stage sets up the network of one measurement: a client, a node that routes, and
// behind it a host that answers for every endpoint, each in a network namespace. It also
// starts and stops the program that forwards Services on the node.
package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.dev/fairlead/e2e/bench/flows"
	"fairlead.dev/fairlead/e2e/bench/objects"
	"fairlead.dev/fairlead/e2e/bench/process"
	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// Addresses of the cables. The client is a pod of the node, so that no proxy masquerades.
const (
	clientAddr, clientGateway = "10.128.0.2/24", "10.128.0.1"
	podsAddr, podsGateway     = "10.128.1.2/24", "10.128.1.1"
)

// Stage is one network.
type Stage struct {
	client, node, pods *netlab.Host
	cpu                int
}

// New builds a network until the test ends. What answers is pinned to the CPU.
func New(ctx context.Context, tb testing.TB, cpu int) *Stage {
	tb.Helper()
	s := &Stage{client: netlab.NewHost(tb, "client"), node: netlab.NewHost(tb, "node"), pods: netlab.NewHost(tb, "pods"), cpu: cpu}
	s.node.Forward()
	netlab.Connect(s.client, "eth0", s.node, "client")
	netlab.Connect(s.pods, "eth0", s.node, "pods")
	s.client.Addr("eth0", clientAddr)
	s.pods.Addr("eth0", podsAddr)
	s.node.Addr("client", clientGateway+"/24", objects.NodeIP+"/32")
	s.node.Addr("pods", podsGateway+"/24")
	s.client.Route("0.0.0.0/0", clientGateway, "eth0")
	s.pods.Route("0.0.0.0/0", podsGateway, "eth0")
	s.node.Route(objects.Endpoints, "10.128.1.2", "pods")
	s.pods.Own(netip.MustParsePrefix(objects.Endpoints))
	for _, h := range []*netlab.Host{s.client, s.pods} {
		// Tens of thousands of flows in a few seconds: none may hold its port.
		h.Do(func() {
			h.Sysctl("net/ipv4/tcp_max_tw_buckets", "0")
			h.Sysctl("net/ipv4/ip_local_port_range", "1024 65535")
		})
	}
	// A probe before there are rules is to get its ICMP error at once.
	s.node.Do(func() { s.node.Sysctl("net/ipv4/icmp_ratelimit", "0") })
	s.serve(ctx, tb)
	return s
}

// serve starts the process that answers for all endpoints. It ends with the test, and
// if this process dies, since its standard input does.
func (s *Stage) serve(ctx context.Context, tb testing.TB) {
	tb.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe", echo, strconv.Itoa(objects.ServePort), strconv.Itoa(s.cpu))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	s.pods.Do(func() { err = cmd.Start() })
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			tb.Errorf("what answers for the endpoints: %v", err)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		tb.Fatalf("what answers for the endpoints did not begin: %q %v", line, err)
	}
}

// Measure makes flows from the client, one after another. It is an error if more than a hundredth
// of them fail.
func (s *Stage) Measure(ctx context.Context, to netip.AddrPort, n int) (flows.Result, error) {
	// Another measurement's flows may have had the same ports.
	var err error
	s.node.Do(func() { err = netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	if err != nil {
		return flows.Result{}, fmt.Errorf("forget earlier flows: %w", err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", flowing, to.String(), strconv.Itoa(n), strconv.Itoa(s.cpu))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return flows.Result{}, err
	}
	s.client.Do(func() { err = cmd.Start() })
	if err != nil {
		return flows.Result{}, err
	}
	text, err := io.ReadAll(out)
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return flows.Result{}, fmt.Errorf("measuring flows to %s: %w", to, err)
	}
	return flows.ParseResult(text)
}

// AtClient runs f on a thread of the client.
func (s *Stage) AtClient(f func()) { s.client.Do(f) }

// Relay brings connections of the node to an address of this machine's loopback, as if
// the node had the server there.
func (s *Stage) Relay(ctx context.Context, tb testing.TB, address string) {
	tb.Helper()
	var listener net.Listener
	var err error
	s.node.Do(func() { listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address) })
	if err != nil {
		tb.Fatalf("node: relay %s: %v", address, err)
	}
	tb.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				_ = from.Close() // which the client sees
				continue
			}
			go pass(from, to)
			go pass(to, from)
		}
	}()
}

// pass copies until one side ends, which ends the other.
func pass(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = from.Close(), to.Close()
}

// Start starts a contestant on the node until the test or the context ends, or Stop, after
// which its rules stay, as they do on a real node. An error is that of iptables or of the start.
func (s *Stage) Start(ctx context.Context, tb testing.TB, c Contestant, p Programs) (*process.Running, error) {
	tb.Helper()
	if c.Variant != "" {
		if err := s.hint(ctx, p, c.Variant); err != nil {
			return nil, err
		}
	}
	return process.Start(tb, c.Name, c.command(ctx, p), s.node.Do, c.synced()...)
}

// hint leaves the chain by which a kubelet tells which variant of iptables is used.
func (s *Stage) hint(ctx context.Context, p Programs, variant string) error {
	var errs []error
	s.node.Do(func() {
		for _, name := range []string{"iptables", "ip6tables"} {
			cmd := exec.CommandContext(ctx, p.variantDir(variant)+"/"+name, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
			if out, err := cmd.CombinedOutput(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w: %s", cmd, err, out))
			}
		}
	})
	return errors.Join(errs...)
}

// Worst is the Service that flows have the longest way to: the last in the list that
// kube-proxy's iptables mode has every packet walk through; otherwise ours to choose. It is an
// error if the list cannot be read or is empty.
func (s *Stage) Worst(ctx context.Context, c Contestant, p Programs, otherwise netip.AddrPort) (netip.AddrPort, error) {
	if c.Ours || c.Mode != "iptables" {
		return otherwise, nil
	}
	var out []byte
	var err error
	s.node.Do(func() {
		out, err = exec.CommandContext(ctx, p.variantDir(c.Variant)+"/iptables-save", "-t", "nat").Output()
	})
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("iptables-save: %w", err)
	}
	return lastService(string(out), otherwise.Port())
}

// lastService finds the last Service with this port in kube-proxy's list.
func lastService(save string, port uint16) (netip.AddrPort, error) {
	var last netip.Addr
	for line := range strings.Lines(save) {
		rest, ok := strings.CutPrefix(line, "-A KUBE-SERVICES -d ")
		if !ok || !strings.Contains(line, fmt.Sprintf("--dport %d ", port)) {
			continue
		}
		address, _, _ := strings.Cut(rest, "/")
		parsed, err := netip.ParseAddr(address)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("%q: %w", line, err)
		}
		last = parsed
	}
	if !last.IsValid() {
		return netip.AddrPort{}, errors.New("the chain KUBE-SERVICES has no Service")
	}
	return netip.AddrPortFrom(last, port), nil
}
