package blackbox_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestWhoServesHasAnAddressThatSeveralClaim has two Services with one external address and port, as where
// one replaces the other: a client is never refused for the one without endpoints, whatever their names are.
func TestWhoServesHasAnAddressThatSeveralClaim(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		elsewhere := func(a blackbox.Addresses, p *desired.Port) { // under policy Local
			p.Cluster, p.ExternalLocal, p.Anywhere = blackbox.At(blackbox.ServePort, a.P3), true, true
		}
		at := func(pod func(blackbox.Addresses) netip.Addr) func(blackbox.Addresses, *desired.Port) {
			return func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, pod(a)), true
			}
		}
		p1, p2 := at(func(a blackbox.Addresses) netip.Addr { return a.P1 }), at(func(a blackbox.Addresses) netip.Addr { return a.P2 })
		none := func(blackbox.Addresses, *desired.Port) {}
		claimed := func(a blackbox.Addresses) netip.Addr { return blackbox.Nth(a.ExternalIPs, 7) }
		service := func(name string, n byte, fill func(blackbox.Addresses, *desired.Port)) blackbox.Service {
			return blackbox.Service{Name: name, N: n, Fill: func(a blackbox.Addresses, p *desired.Port) {
				fill(a, p)
				p.ExternalIPs = []netip.Addr{claimed(a)}
			}}
		}
		for _, step := range []struct {
			about      string
			blue, mint func(blackbox.Addresses, *desired.Port)
			server     string
			err        error
		}{
			{"the first serves", p1, none, "p1", nil},
			{"both do", p1, p2, "p1", nil},
			{"the second serves", none, p2, "p2", nil},
			{"the first has endpoints on other nodes only", elsewhere, p2, "p2", nil},
			{"nobody serves", none, none, "", netlab.ErrRefused},
			{"the first serves again", p1, elsewhere, "p1", nil},
		} {
			c.Apply(blackbox.Forwarding(service("blue", 1, step.blue), service("mint", 2, step.mint)))
			for _, f := range addr.Families() {
				for _, protocol := range []string{"tcp", "udp"} {
					to := netip.AddrPortFrom(claimed(blackbox.Plan(f)), 80)
					if got, err := c.Client.Ask(protocol, to, answerIn); !errors.Is(err, step.err) || got.Server != step.server {
						t.Errorf("%s: %s over %s: %q, %v; want %q, %v", step.about, to, protocol, got.Server, err, step.server, step.err)
					}
				}
			}
		}
	})
}

// TestClientsAreRememberedWhereAnotherServiceClaimsTheAddress has a Service without endpoints, whose name
// comes first, list the external address of one that remembers its clients: a speaker that begins anew takes
// them for clients of the latter.
func TestClientsAreRememberedWhereAnotherServiceClaimsTheAddress(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		mint := sticky("mint", 2, time.Hour, false, onP1, onP2)
		blue := blackbox.Service{Name: "blue", N: 1, Fill: func(a blackbox.Addresses, p *desired.Port) {
			p.ExternalIPs, p.Affinity = []netip.Addr{blackbox.Nth(a.ExternalIPs, 2)}, time.Hour
		}}
		want := blackbox.Forwarding(blue, mint)
		c.Apply(want)
		asked := map[addr.Family][]string{}
		each := func() {
			for _, f := range addr.Families() {
				to := netip.AddrPortFrom(blackbox.Nth(blackbox.Plan(f).ExternalIPs, 2), 80)
				got := c.servers(c.crowd(f, 40), view.TCP, to)
				if asked[f] == nil {
					asked[f] = got
				}
				if !slices.Equal(got, asked[f]) {
					t.Errorf("%s: clients came to %v, and after a restart to %v", f, asked[f], got)
				}
			}
		}
		each()
		c.Restart()
		c.Apply(want)
		each()
	})
}
