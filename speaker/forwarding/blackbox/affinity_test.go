package blackbox_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// crowd are as many clients outside, all of one host.
func (c *cluster) crowd(f addr.Family, clients int) []sender {
	var all []sender
	for i := range clients {
		a := blackbox.Plan(f).Crowd.Addr().AsSlice()
		a[len(a)-2], a[len(a)-1] = byte(i/250+1), byte(i%250+1)
		from, _ := netip.AddrFromSlice(a)
		all = append(all, sender{"crowd", c.Client, from})
	}
	return all
}

// servers asks from each of the crowd, to the destinations in turn, and returns who
// answered whom.
func (c *cluster) servers(crowd []sender, protocol view.Protocol, to ...netip.AddrPort) []string {
	c.t.Helper()
	servers := make([]string, len(crowd))
	var all asking
	for i, s := range crowd {
		all.add(func() error {
			got, err := ask(s, protocol, to[i%len(to)], answerIn)
			servers[i] = got.Server
			if err != nil {
				return fmt.Errorf("%s: %s -> %s: %w", protocol, s.from, to[i%len(to)], err)
			}
			return nil
		})
	}
	if err := all.all(); err != nil {
		c.t.Fatal(err)
	}
	return servers
}

// sticky is a Service with session affinity that is asked at all its addresses.
func sticky(name string, n byte, timeout time.Duration, local bool, endpoints ...func(a blackbox.Addresses) netip.Addr) blackbox.Service {
	return blackbox.Service{Name: name, N: n, Fill: func(a blackbox.Addresses, p *desired.Port) {
		var addrs []netip.Addr
		for _, endpoint := range endpoints {
			addrs = append(addrs, endpoint(a))
		}
		p.ExternalIPs = []netip.Addr{blackbox.Nth(a.ExternalIPs, n)}
		p.Cluster, p.Anywhere, p.Affinity = blackbox.At(blackbox.ServePort, addrs...), true, timeout
		if local {
			p.Local, p.ExternalLocal, p.InternalLocal = p.Cluster, true, true
		}
	}}
}

// The endpoints of a sticky Service.
func onP1(a blackbox.Addresses) netip.Addr { return a.P1 }
func onP2(a blackbox.Addresses) netip.Addr { return a.P2 }
func onP3(a blackbox.Addresses) netip.Addr { return a.P3 }

// TestAffinity holds that each of many clients keeps its endpoint, whichever address
// of the Service it asks, over changes and a restart, for as long as the endpoint is
// there. When that is gone its clients go to others, and when it is back they are
// forgotten; clients of other endpoints notice nothing.
func TestAffinity(t *testing.T) {
	const clients = 300 // more than an xt_recent list has room for
	eachBackend(t, func(t *testing.T, c *cluster) {
		apply := func(timeout time.Duration, endpoints ...func(a blackbox.Addresses) netip.Addr) {
			t.Helper()
			c.Apply(blackbox.Forwarding(sticky("sticky", 1, timeout, false, endpoints...), sticky("local", 2, timeout, true, onP1, onP2)))
		}
		protocols := map[byte]view.Protocol{1: view.TCP, 2: view.UDP}
		first, turns := map[string][]string{}, map[byte]int{}
		// each asks in each family and compares with who answered at first.
		each := func(when string, n byte, moved func(before, after string) bool) {
			t.Helper()
			for _, f := range addr.Families() {
				a := blackbox.Plan(f)
				to := []netip.AddrPort{
					netip.AddrPortFrom(blackbox.Nth(a.VIPs, n), 80), netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, n), 80),
					netip.AddrPortFrom(blackbox.Nth(a.ExternalIPs, n), 80), netip.AddrPortFrom(a.Node, 30000+uint16(n)),
				}
				// Who asked at one address asks at another now.
				turn := turns[n] % len(to)
				now := c.servers(c.crowd(f, clients), protocols[n], append(to[turn:], to[:turn]...)...)
				what := fmt.Sprint(n, f)
				if first[what] == nil {
					first[what] = now
				}
				wrong := 0
				for i := range now {
					if moved(first[what][i], now[i]) {
						wrong++
					}
				}
				if wrong > 0 {
					t.Errorf("%s, %s, Service %d: %d of %d clients were sent to another endpoint", when, f, n, wrong, clients)
				}
			}
			turns[n]++
		}
		never := func(before, after string) bool { return before != after }
		apply(time.Hour, onP1, onP2, onP3)
		for _, n := range []byte{1, 2} {
			each("at first", n, never)
			each("at another address", n, never)
		}
		apply(2*time.Hour, onP1, onP2, onP3)
		c.Restart()
		apply(2*time.Hour, onP1, onP2, onP3)
		each("with another timeout, after a restart", 1, never)
		each("with another timeout, after a restart", 2, never)

		apply(2*time.Hour, onP1, onP2)
		each("without one endpoint", 1, func(before, after string) bool { return before != after && before != "p3" || after == "p3" })
		apply(2*time.Hour, onP1, onP2, onP3)
		back := map[string]int{}
		each("with that endpoint again", 1, func(before, after string) bool {
			if before == "p3" {
				back[after]++
			}
			return before != after && before != "p3"
		})
		// Of the some 200 that it had, chance brings back what it does not remember: none
		// of those that others remember now.
		if back["p3"] > 0 || back["p1"]+back["p2"] < 120 {
			t.Errorf("the clients of the endpoint that was gone are with %v now", back)
		}
	})
}

// TestAffinityTimeout holds that the timeout begins anew with every connection, and
// that a client who stays away for longer is forgotten.
func TestAffinityTimeout(t *testing.T) {
	const timeout = 2 * time.Second
	eachBackend(t, func(t *testing.T, c *cluster) {
		c.Apply(blackbox.Forwarding(sticky("sticky", 1, timeout, false, onP1, onP2, onP3)))
		to := map[addr.Family]netip.AddrPort{}
		crowds := map[addr.Family][]sender{}
		for _, f := range addr.Families() {
			to[f], crowds[f] = netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).VIPs, 1), 80), c.crowd(f, 40)
		}
		come := func() [][]string {
			var servers [][]string
			for _, f := range addr.Families() {
				servers = append(servers, c.servers(crowds[f], view.TCP, to[f]))
			}
			return servers
		}
		began := time.Now()
		first := come()
		for range 2 {
			time.Sleep(timeout * 6 / 10) // the kernel's clock, which no test can turn
			again := time.Now()
			now := come()
			if away := time.Since(began); away > timeout {
				t.Logf("the machine was too slow to come again in time: %s", away)
				break
			}
			if !slices.EqualFunc(now, first, slices.Equal) {
				t.Fatal("clients were sent to another endpoint though they came again within the timeout")
			}
			began = again
		}
		time.Sleep(timeout + 200*time.Millisecond)
		for i, now := range come() {
			// That 40 clients find the same endpoints by chance happens never.
			if slices.Equal(now, first[i]) {
				t.Error("all clients were sent to the endpoints of before, after the timeout")
			}
		}
	})
}
