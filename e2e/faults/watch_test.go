package faults

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/probe"
)

// promptly is how soon a change of the cluster is to be in every kernel, whatever else happens.
const promptly = 2 * time.Second

// relisted is how long a node may hear of no change after the API server was away, refused or had forgotten: client-go
// waits for up to a minute before it lists again.
const relisted = 90 * time.Second

// holds checks all that a fault is not to break.
func (k *kit) holds(t *testing.T, f fault) error {
	ctx := within(t, soon)
	checks := []error{k.answered(ctx, f.excused.moves), k.heard(ctx)}
	if !f.excused.unasked {
		checks = append(checks, k.kubelets(ctx))
	}
	if !f.excused.routes {
		checks = append(checks, k.announced())
	}
	if !f.excused.unheard {
		checks = append(checks, k.follow(ctx, promptly))
	}
	if f.check != nil {
		checks = append(checks, f.check(ctx, k))
	}
	return errors.Join(checks...)
}

// whole waits until everything is as it was before the first fault.
func (k *kit) whole(t *testing.T) {
	t.Helper()
	began := time.Now()
	k.until(t, soon, func(ctx context.Context) error {
		return errors.Join(k.answered(ctx, false), k.heard(ctx), k.kubelets(ctx), k.announced())
	})
	k.until(t, relisted, func(ctx context.Context) error {
		// A node that hears of no change still sends where one of two changes in a row leads.
		return errors.Join(k.follow(ctx, promptly), k.follow(ctx, promptly))
	})
	t.Logf("whole after %v", time.Since(began).Round(time.Millisecond))
}

// until repeats a check of the cluster until it passes, which must be in time.
func (k *kit) until(t *testing.T, limit time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx := within(t, limit)
	err := lab.Until(ctx, func() error {
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), soon)
		defer cancel()
		return check(one)
	})
	if err != nil {
		t.Fatal("the cluster is not whole again: ", err)
	}
}

// answered checks that one node answers for each address of layer 2: the one that did at first, unless it may be
// another. Four questions that a busy machine does not answer in time are an error.
func (k *kit) answered(ctx context.Context, moves bool) error {
	for i, vip := range k.layer2 {
		var macs []string
		for range 2 { // while an address moves, one question may see both nodes
			err := lab.Until(ctx, func() (err error) {
				macs, err = ask(k.Client, vip)
				return err
			})
			if err != nil {
				return err
			}
			if len(macs) == 1 || !moves {
				break
			}
		}
		if len(macs) != 1 || !moves && macs[0] != k.homes[i].MAC.String() {
			return fmt.Errorf("%s is at %v, want %s (%s) alone", vip, macs, k.homes[i].MAC, k.homes[i].Name)
		}
		if k.absent != nil && macs[0] == k.absent.MAC.String() {
			return fmt.Errorf("%s is at %v, of %s, which is not there", vip, macs, k.absent.Name)
		}
	}
	return nil
}

// heard checks that every node hears all others.
func (k *kit) heard(ctx context.Context) error {
	want := len(k.Nodes()) - 1
	if k.absent != nil || k.silent != nil {
		want--
	}
	for _, n := range k.Nodes() {
		if n == k.absent || n == k.silent {
			continue
		}
		text, err := k.Router.Get(ctx, fmt.Sprintf("http://%s:7476/metrics", n.IPv4))
		if err != nil {
			return err
		}
		if said := fmt.Sprintf("\nfairlead_pulse_nodes_heard %d\n", want); !strings.Contains(text, said) {
			_, found, _ := strings.Cut(text, "\nfairlead_pulse_nodes_heard ")
			found, _, _ = strings.Cut(found, "\n")
			return fmt.Errorf("%s hears %s nodes, want %d", n.Name, found, want)
		}
	}
	return nil
}

// kubelets checks that the API server reaches the kubelet of every node, and gets logs from it.
func (k *kit) kubelets(ctx context.Context) error {
	for i, n := range k.Nodes() {
		if n == k.absent {
			continue
		}
		// The API server keeps its connections: only a new one tells where those of now lead.
		if err := k.isKubelet(ctx, n); err != nil {
			return fmt.Errorf("port 10250 of %s, which is its kubelet's: %w", n.Name, err)
		}
		logs := k.admin.CoreV1().Pods(webs).GetLogs(k.pods[i].Name, &corev1.PodLogOptions{TailLines: new(int64(1))})
		if _, err := logs.DoRaw(ctx); err != nil {
			return fmt.Errorf("logs of %s: %w", n.Name, err)
		}
		if n == k.deaf {
			continue
		}
		if got, err := k.ControlPlane.Get(ctx, fmt.Sprintf("http://%s:10256/livez", n.IPv4)); err != nil || !strings.Contains(got, "{") {
			return fmt.Errorf("%s does not tell of its health as a proxy: %q, %w", n.Name, got, err)
		}
	}
	return nil
}

// isKubelet checks that the API server's machine reaches what has the certificate of the node's kubelet.
func (k *kit) isKubelet(ctx context.Context, n *lab.Node) (err error) {
	conn, err := k.ControlPlane.Dial(ctx, "tcp", netip.AddrPortFrom(n.IPv4, 10250).String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return tls.Client(conn, &tls.Config{RootCAs: k.roots, ServerName: n.Name, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx)
}

// announced checks that every node announces the routed addresses to the router.
func (k *kit) announced() error {
	for _, vip := range k.routed {
		hops, err := k.Router.Routes(netip.PrefixFrom(vip, vip.BitLen()))
		if err != nil {
			return err
		}
		if len(hops) != len(k.Nodes()) {
			return fmt.Errorf("the router has %v for %s, want all nodes", hops, vip)
		}
	}
	return nil
}

// clients open connections to all addresses until the end.
type clients map[netip.Addr]*probe.Probe

func (k *kit) watchClients(t *testing.T) clients {
	all := clients{}
	for _, vips := range [][]netip.Addr{k.layer2, k.routed} {
		for _, vip := range vips {
			all[vip] = probe.Start(t.Context(), 50*time.Millisecond, time.Second, func(ctx context.Context) error {
				began := time.Now()
				err := connect(ctx, k.Client, netip.AddrPortFrom(vip, 80))
				if err != nil && k.stalls.Since(began) {
					err = nil // says nothing of the cluster
				}
				return err
			})
		}
	}
	return all
}

// end fails the test if connections were lost, unless that is excused. The lab itself loses a packet now and then.
func (c clients) end(t *testing.T, excused bool) {
	t.Helper()
	const anyway = 3
	for vip, p := range c {
		asked := p.End()
		lost := probe.Lost(asked)
		t.Logf("%s: %d of %d connections lost, longest time without one %v", vip, lost, len(asked), probe.Gap(asked))
		if lost > anyway && !excused {
			t.Errorf("%s: %d of %d connections were lost", vip, lost, len(asked))
		}
	}
}

// connect opens a connection and resets it, so that no port rests.
func connect(ctx context.Context, from *lab.Machine, at netip.AddrPort) error {
	conn, err := from.Dial(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	tcp, is := conn.(*net.TCPConn)
	if is {
		err = tcp.SetLinger(0)
	}
	return errors.Join(err, conn.Close())
}
