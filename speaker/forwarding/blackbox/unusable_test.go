package blackbox_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
)

// unusable are ways to spoil a port so that the kernel cannot forward it.
var unusable = map[string]func(a, other blackbox.Addresses, p *desired.Port){
	"endpoint of another family": func(a, other blackbox.Addresses, p *desired.Port) {
		p.Cluster = blackbox.At(blackbox.ServePort, a.P1, other.P2)
	},
	"source range of another family": func(a, other blackbox.Addresses, p *desired.Port) {
		p.Restricted, p.SourceRanges = true, []netip.Prefix{a.Crowd, other.Crowd}
	},
	"VIP of another family": func(_, other blackbox.Addresses, p *desired.Port) {
		p.VIPs = append(p.VIPs, blackbox.Nth(other.VIPs, 50))
	},
	"ClusterIP of another family": func(_, other blackbox.Addresses, p *desired.Port) {
		p.ClusterIP = blackbox.Nth(other.ClusterIPs, 50)
	},
}

// spoiled is a state with all that is unusable, each in a port of its own, among good
// ones, and the keys of those ports.
func spoiled() (bad desired.Forwarding, wrong map[desired.PortKey]bool) {
	bad, wrong = recovered(), map[desired.PortKey]bool{}
	for f, other := range map[addr.Family]addr.Family{addr.IPv4: addr.IPv6, addr.IPv6: addr.IPv4} {
		for name, spoil := range unusable {
			key := blackbox.Key(name, view.TCP, f)
			p := bad.Ports[key]
			spoil(blackbox.Plan(f), blackbox.Plan(other), &p)
			bad.Ports[key], wrong[key] = p, true
		}
	}
	return bad, wrong
}

// recovered is the same state with nothing wrong in it.
func recovered() desired.Forwarding {
	services := blackbox.Services()[:2]
	for i, name := range slices.Sorted(maps.Keys(unusable)) {
		services = append(services, blackbox.Service{
			Name: name, N: byte(50 + i), Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Anywhere = blackbox.At(blackbox.ServePort, a.P1), true
			},
		})
	}
	return blackbox.Forwarding(services...)
}

// TestUnusablePortsStandAlone has ports that the kernel cannot forward among good
// ones: they are named, all others are served, and so is what they were before.
func TestUnusablePortsStandAlone(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		good := recovered()
		bad, wrong := spoiled()
		without := recovered()
		maps.DeleteFunc(without.Ports, func(key desired.PortKey, _ desired.Port) bool { return wrong[key] })
		for _, step := range []struct {
			name   string
			served desired.Forwarding
		}{{"from the start", without}, {"again", without}, {"after they were good", good}} {
			if step.name == "after they were good" {
				c.Apply(good)
			}
			missing, err := c.Try(bad)
			lacking := map[desired.PortKey]bool{}
			for key, placed := range missing {
				lacking[key] = true
				if !placed.Equal(step.served.Ports[key]) {
					t.Errorf("%s: in place of %v is said to be %+v, want %+v", step.name, key, placed, step.served.Ports[key])
				}
			}
			if refused := outcome.Refused(err); !maps.Equal(lacking, wrong) || !maps.Equal(refused, wrong) {
				t.Errorf("%s: missing are %v, refused %v (%v), want %v", step.name, lacking, refused, err, wrong)
			}
			if err := c.askAbout(0, step.served); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
		c.Apply(good)
		if err := c.askAbout(0, good); err != nil {
			t.Errorf("all are good: %v", err)
		}
	})
}

// TestEndpointWithoutPortHarmsNobodyElse has an endpoint with port 0, which the kernel
// may take or not.
func TestEndpointWithoutPortHarmsNobodyElse(t *testing.T) {
	eachBackend(t, func(t *testing.T, c *cluster) {
		good := blackbox.Forwarding(blackbox.Services()[:2]...)
		want := blackbox.Forwarding(append(blackbox.Services()[:2:2], blackbox.Service{
			Name: "zero", N: 50, Fill: func(a blackbox.Addresses, p *desired.Port) {
				p.Cluster, p.Anywhere = slices.Concat(blackbox.At(0, a.P1), blackbox.At(blackbox.ServePort, a.P1)), true
			},
		})...)
		missing, err := c.Try(want)
		for key := range missing {
			if key.Service.Name != "zero" {
				t.Errorf("%v is missing, too: %v", key, err)
			}
		}
		if err := c.askAbout(0, good); err != nil {
			t.Error(err)
		}
		c.Apply(good)
	})
}
