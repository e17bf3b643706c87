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
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.dev/fairlead/e2e/bench/flows"
	"fairlead.dev/fairlead/e2e/bench/objects"
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
