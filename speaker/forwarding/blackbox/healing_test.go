package blackbox_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// watcher is a backend that tells of disturbances.
type watcher interface {
	Watch(ctx context.Context, disturbed func())
}

// BenchmarkHealing measures how long new connections fail after somebody has flushed all
// rules, with this many Services of three endpoints, a VIP and a NodePort each: until the
// disturbance is noticed, until the rules are written, and until every one of some Services
// spread over all has answered.
func BenchmarkHealing(b *testing.B) {
	for _, backend := range contenders {
		for _, n := range []int{1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", backend.name, n), func(b *testing.B) { heal(b, backend, n) })
		}
	}
}

func heal(b *testing.B, backend contender, n int) {
	var made blackbox.Backend
	c := blackbox.NewCluster(b, func() (blackbox.Backend, error) {
		var err error
		made, err = backend.create()
		return made, err
	})
	want, asked := many(n)
	began := time.Now()
	c.Apply(want)
	fill := time.Since(began)
	disturbed := make(chan struct{}, 1)
	ctx, end := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go c.Node.Do(func() {
		defer close(ended)
		made.(watcher).Watch(ctx, func() {
			select {
			case disturbed <- struct{}{}:
			default:
			}
		})
	})
	defer func() { end(); <-ended }()
	settle(c, want, disturbed)
	var noticed, written, healed, applied time.Duration
	applies := 0
	for b.Loop() {
		c.Run("sh", "-c", backend.flush)
		flushed := time.Now()
		whole := make(chan time.Duration)
		go func() { whole <- answered(c, asked, flushed) }()
		for open, first := true, true; open; first = false {
			select {
			case <-disturbed:
				began := time.Now()
				c.Apply(want)
				if first {
					noticed += began.Sub(flushed)
					written += time.Since(flushed)
				}
				applies++
				applied += time.Since(began)
			case took := <-whole:
				healed += took
				open = false
			}
		}
		settle(c, want, disturbed)
	}
	each := func(d time.Duration) float64 { return float64(d.Milliseconds()) / float64(b.N) }
	b.ReportMetric(float64(fill.Milliseconds()), "fill-ms")
	b.ReportMetric(each(noticed), "noticed-ms")
	b.ReportMetric(each(written), "written-ms")
	b.ReportMetric(each(applied), "applied-ms")
	b.ReportMetric(float64(applies)/float64(b.N), "applies")
	b.ReportMetric(each(healed), "healed-ms")
}

// many are Services of which some have an endpoint that answers: at these addresses.
func many(n int) (want desired.Forwarding, asked []netip.AddrPort) {
	a := blackbox.Plan(addr.IPv4)
	want = desired.Forwarding{
		Ports: map[desired.PortKey]desired.Port{}, Pods: []netip.Prefix{a.Pods},
		NodePorts: []netip.Prefix{addr.HostPrefix(a.Node)},
	}
	for i := range n {
		at := func(a, b byte) netip.Addr { return netip.AddrFrom4([4]byte{a, b, byte(i >> 8), byte(i)}) }
		p := desired.Port{
			ClusterIP: at(10, 96), VIPs: []netip.Addr{at(198, 18)}, Port: 80, NodePort: 30000 + uint16(i),
			Cluster: blackbox.At(blackbox.ServePort, at(10, 245), at(10, 246), at(10, 247)), Anywhere: true,
		}
		if i%(n/10) == 0 || i == n-1 {
			p.Cluster = blackbox.At(blackbox.ServePort, a.P2)
			asked = append(asked, netip.AddrPortFrom(p.ClusterIP, p.Port), netip.AddrPortFrom(p.VIPs[0], p.Port))
		}
		want.Ports[desired.PortKey{
			Service: view.Ref{Namespace: "shop", Name: fmt.Sprint("s", i)}, Protocol: view.TCP, Family: addr.IPv4,
		}] = p
	}
	return want, asked
}

// answered is the time until each of some Services has answered, one after another.
func answered(c *blackbox.Cluster, asked []netip.AddrPort, since time.Time) time.Duration {
	for _, at := range asked {
		for {
			if _, err := c.P1.Ask("tcp", at, 20*time.Millisecond); err == nil {
				break
			}
		}
	}
	return time.Since(since)
}

// settle applies what is wanted until nothing is disturbed for a while, and what others may
// use of our time has grown again.
func settle(c *blackbox.Cluster, want desired.Forwarding, disturbed <-chan struct{}) {
	for {
		select {
		case <-disturbed:
			c.Apply(want)
		case <-time.After(5 * time.Second):
			return
		}
	}
}
