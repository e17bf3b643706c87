package pulse

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/hello/hellotest"
	"fairlead.dev/fairlead/speaker/pulse/linkcheck"
)

// second is a network of the nodes that carries the addresses, and no hellos. What is dark is so there only.
type second struct{ lan *hellotest.LAN }

// on4 and on6 are hosts of it.
func on4(host int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(host)}) }

func on6(host int) netip.Addr {
	a := netip.MustParseAddr("2001:db8:1::").As16()
	a[15] = byte(host)
	return netip.AddrFrom16(a)
}

// newApartCluster has so many addresses of each family on a network apart from that of the hellos.
func newApartCluster(t *testing.T, size, addresses int) *cluster {
	c := &cluster{second: &second{hellotest.NewLAN(simDelay)}}
	for i := range addresses {
		c.vips = append(c.vips, on4(100+i), on6(100+i))
	}
	c.second.lan.Lose(func(from, to netip.Addr) bool {
		return !c.lit(int(from.As4()[3])-1, int(to.As4()[3])-1)
	})
	c.begin(t, size, seeded(1))
	return c
}

// linkCheck exchanges frames there.
func (c *cluster) linkCheck(ctx context.Context, i int, mesh *hello.Mesh) LinkCheck {
	if c.second == nil {
		return onOne{}
	}
	m := linkcheck.New(linkcheck.Config{
		Node: c.nodes[i].name, Interval: simInterval, Multiplier: simMultiplier, Seal: mesh, Log: slog.New(slog.DiscardHandler),
		Listen: func(int, linkcheck.Interface) (linkcheck.Wire, error) {
			return spur{c.second.lan.Open(on4(1 + i)), len(c.nodes)}, nil
		},
	})
	c.tasks.Go(func() { _ = m.Run(ctx) })
	return m
}

// spur is what a node is attached to the second network by.
type spur struct {
	*hellotest.Port

	hosts int
}

func (s spur) Take(buffer []byte) (datagram []byte, come bool, err error) {
	n, _, come, err := s.Port.Take(buffer)
	return buffer[:n], come, err
}

func (s spur) Write(datagram []byte) error {
	for i := range s.hosts {
		_ = s.Send(netip.AddrPortFrom(on4(1+i), 1), datagram) // it does not fail here; its own is not heard
	}
	return nil
}

// moved is the time until all addresses of a node are answered for by others, and not by the node if it lives.
func (c *cluster) moved(from int) time.Duration {
	begun := time.Now()
	for time.Since(begun) < 5*time.Second {
		c.run(simStep)
		left := true
		for _, a := range c.vips {
			owners := c.answering(a)
			left = left && len(owners) == 1 && owners[0] != from
		}
		if left {
			break
		}
	}
	return time.Since(begun)
}

// TestALostNodeOrLinkCostsADetectionTime, and not up to an interval more, whenever in an interval it is lost.
// Of a link that only takes what the node sends it is known an interval later: what the others say was
// right until they had to say something again.
func TestALostNodeOrLinkCostsADetectionTime(t *testing.T) {
	for _, lost := range []struct {
		what    string
		out, in bool
		most    time.Duration
	}{
		{"a dead link", true, true, simDetection + slack},
		{"a link over which nothing comes", false, true, simDetection + slack},
		{"a link over which nothing leaves", true, false, simDetection + simInterval + slack},
		// The others agree on it first.
		{"a dead node", false, false, simDetection + 15*time.Millisecond},
	} {
		t.Run(lost.what, func(t *testing.T) {
			var worst time.Duration
			for round := range 20 {
				synctest.Test(t, func(t *testing.T) {
					c := newApartCluster(t, 3, 6)
					defer c.close()
					c.run(5*time.Second + time.Duration(round)*2*simStep)
					dead := c.answering(c.vips[round%len(c.vips)])[0]
					if !lost.out && !lost.in {
						c.nodes[dead].stop()
					}
					c.wires.Lock()
					for j := range c.nodes {
						c.dark[[2]int{dead, j}], c.dark[[2]int{j, dead}] = lost.out, lost.in
					}
					c.wires.Unlock()
					took := c.moved(dead)
					if worst = max(worst, took); took > lost.most {
						t.Errorf("%s: another node answered after %v, want %v", lost.what, took, lost.most)
					}
					c.run(time.Second)
					c.expectOne(fmt.Sprintf("%s, round %d", lost.what, round))
				})
			}
			t.Logf("%s: at most %v", lost.what, worst)
		})
	}
}
