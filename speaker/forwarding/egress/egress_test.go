package egress_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/egress"
)

// link makes an interface with these addresses, of which those with a ~ are secondary. Its name says what it is.
func link(index int, name string, addresses ...string) egress.Link {
	l := egress.Link{Index: index, Name: name, Stub: name == "lo" || name == "dummy0", Tunnel: name == "vxlan"}
	for _, a := range addresses {
		text, secondary := strings.CutPrefix(a, "~")
		l.Addrs = append(l.Addrs, egress.Addr{Prefix: netip.MustParsePrefix(text), Secondary: secondary})
	}
	return l
}

// route reads what ip route shows: a prefix, its source after "src", and hops as index/gateway, or index alone. A gateway
// "other" is of the other family.
func route(text string) egress.Route {
	words := strings.Fields(text)
	r := egress.Route{To: netip.MustParsePrefix(words[0])}
	for i, word := range words[1:] {
		switch {
		case word == "src":
		case i > 0 && words[i] == "src":
			r.Source = netip.MustParseAddr(word)
		default:
			var hop egress.Hop
			index, via, gateway := strings.Cut(word, "/")
			hop.Gateway = gateway
			if gateway && via != "other" {
				hop.Via = netip.MustParseAddr(via)
			}
			if _, err := fmt.Sscan(index, &hop.Link); err != nil {
				panic(err)
			}
			r.Hops = append(r.Hops, hop)
		}
	}
	return r
}

// show is a source as people read it.
func show(all []desired.Source) (shown []string) {
	for _, s := range all {
		from := "interface"
		if s.From.IsValid() {
			from = s.From.String()
		}
		shown = append(shown, s.To.String()+" "+from)
	}
	return shown
}

func TestSources(t *testing.T) {
	lo := link(1, "lo", "192.0.2.1/32", "2001:db8::1/128")
	eth0 := link(2, "eth0", "192.0.2.1/24", "2001:db8::1/64")
	cni0 := link(5, "cni0", "10.244.1.1/24", "fd00:244:1::1/64")
	fabric := []egress.Link{lo, link(2, "eth0", "10.0.0.1/31", "fd00:0:1::1/127"), link(3, "eth1", "10.0.1.1/31", "fd00:0:2::1/127"), cni0}
	for name, test := range map[string]struct {
		links  []egress.Link
		routes []string
		want   []string
	}{
		"nothing": {nil, nil, nil},
		"a plain node": {
			[]egress.Link{eth0, cni0},
			[]string{"0.0.0.0/0 2/192.0.2.254 src 192.0.2.1", "192.0.2.0/24 2 src 192.0.2.1", "10.244.1.0/24 5 src 10.244.1.1", "10.244.2.0/24 2/192.0.2.2", "::/0 2/fe80::1", "fd00:244:1::/64 5", "fd00:244:2::/64 2/2001:db8::2"},
			nil,
		},
		"two default routes, the cable's before the wireless one's": {
			[]egress.Link{eth0, link(3, "wlan0", "198.51.100.1/24", "2001:db8:1::1/64")},
			[]string{"0.0.0.0/0 2/192.0.2.254", "0.0.0.0/0 3/198.51.100.254", "::/0 2/fe80::1", "::/0 3/fe80::2"},
			nil,
		},
		"two ways of one default route, each with an address that its router knows": {
			[]egress.Link{eth0, link(3, "eth1", "198.51.100.1/24", "2001:db8:1::1/64")},
			[]string{"0.0.0.0/0 2/192.0.2.254 3/198.51.100.254", "::/0 2/fe80::1 3/fe80::2"},
			nil,
		},
		"two default routes, the first with a source": {
			[]egress.Link{eth0, link(3, "eth1", "198.51.100.1/24")},
			[]string{"0.0.0.0/0 3/198.51.100.254 src 192.0.2.1", "0.0.0.0/0 2/192.0.2.254", "192.0.2.0/24 2", "198.51.100.0/24 3"},
			[]string{"198.51.100.0/24 interface", "0.0.0.0/0 192.0.2.1"},
		},
		"a tunnel": {
			[]egress.Link{eth0, cni0, link(6, "vxlan", "10.244.1.0/32", "fd00:244:1::/128")},
			[]string{"0.0.0.0/0 2/192.0.2.254", "10.244.2.0/24 6/10.244.2.0", "fd00:244:2::/64 6/fd00:244:2::"},
			nil,
		},
		"a route with a source": {
			[]egress.Link{link(2, "eth0", "192.0.2.1/24", "169.254.10.2/24")},
			[]string{"0.0.0.0/0 2/192.0.2.254", "10.244.2.0/24 2/169.254.10.3 src 192.0.2.1"},
			[]string{"10.244.2.0/24 192.0.2.1"},
		},
		"link-local gateways, and no source": {
			[]egress.Link{link(2, "eth0", "169.254.10.2/24", "192.0.2.1/32"), cni0},
			[]string{"0.0.0.0/0 2/169.254.10.1", "10.244.1.0/24 5"},
			[]string{"10.244.1.0/24 interface", "0.0.0.0/0 192.0.2.1"},
		},
		"a source that is link-local": {
			[]egress.Link{lo, link(2, "eth0", "169.254.10.2/24")}, []string{"0.0.0.0/0 2/169.254.10.1 src 169.254.10.2"}, []string{"0.0.0.0/0 192.0.2.1"},
		},
		"links without addresses, behind a bridge that the kernel asks first": {
			[]egress.Link{link(2, "docker0", "172.17.0.1/16"), link(3, "dummy0", "192.0.2.1/32", "2001:db8::1/128")},
			[]string{"0.0.0.0/0 4/other", "::/0 4/fe80::1"},
			[]string{"0.0.0.0/0 192.0.2.1", "::/0 2001:db8::1"},
		},
		"links without addresses, and the kernel takes the right one": {
			[]egress.Link{lo}, []string{"0.0.0.0/0 4/other"}, nil,
		},
		"a pod behind an interface without an address": {
			[]egress.Link{link(2, "docker0", "172.17.0.1/16"), lo}, []string{"10.244.1.7/32 9", "fd00:244:1::7/128 9"}, nil,
		},
		"a fabric, by BGP with sources": {
			fabric,
			[]string{"0.0.0.0/0 2/10.0.0.0 3/10.0.1.0 src 192.0.2.1", "10.0.0.0/31 2 src 10.0.0.1", "10.244.2.0/24 2/10.0.0.0 src 192.0.2.1", "10.244.1.0/24 5 src 10.244.1.1", "::/0 2/fe80::1 src 2001:db8::1"},
			[]string{"10.0.0.0/31 interface", "10.244.1.0/24 interface", "0.0.0.0/0 192.0.2.1", "::/0 2001:db8::1"},
		},
		"a fabric, without sources": {
			fabric,
			[]string{"0.0.0.0/0 2/10.0.0.0 3/10.0.1.0", "10.244.1.0/24 5", "::/0 2/fe80::1", "fd00:244:1::/64 5"},
			[]string{"10.244.1.0/24 interface", "0.0.0.0/0 192.0.2.1", "fd00:244:1::/64 interface", "::/0 2001:db8::1"},
		},
		"a fabric with a tunnel on top": {
			append(slices.Clone(fabric), link(6, "vxlan", "100.64.1.0/32")),
			[]string{"0.0.0.0/0 2/10.0.0.0", "100.64.2.0/24 6/100.64.2.0"},
			[]string{"100.64.2.0/24 interface", "0.0.0.0/0 192.0.2.1"},
		},
		"a default route with a source, and neighbours without": {
			[]egress.Link{lo, link(2, "eth0", "10.0.0.11/24")},
			[]string{"0.0.0.0/0 2/10.0.0.1 src 198.51.100.7", "10.0.0.0/24 2 src 10.0.0.11"},
			[]string{"10.0.0.0/24 interface", "0.0.0.0/0 198.51.100.7"},
		},
		"a second address as the source": {
			[]egress.Link{link(2, "eth0", "192.0.2.1/24", "~192.0.2.7/24", "2001:db8::1/64", "2001:db8::7/64")},
			[]string{"0.0.0.0/0 2/192.0.2.254 src 192.0.2.7", "192.0.2.0/24 2 src 192.0.2.1", "::/0 2/fe80::1 src 2001:db8::1"},
			[]string{"192.0.2.0/24 interface", "0.0.0.0/0 192.0.2.7", "::/0 2001:db8::1"},
		},
		"a node's address that is secondary, and a poor first one": {
			[]egress.Link{link(2, "eth0", "169.254.10.2/24", "~192.0.2.1/32")}, []string{"0.0.0.0/0 2/169.254.10.1"}, []string{"0.0.0.0/0 192.0.2.1"},
		},
		"a node whose own address is on no interface": {
			[]egress.Link{link(2, "eth0", "169.254.10.2/24")}, []string{"0.0.0.0/0 2/169.254.10.1"}, nil,
		},
		"neighbours without a source, each with pods of its own": {
			[]egress.Link{link(2, "eth0", "10.0.0.11/24")},
			[]string{
				"0.0.0.0/0 2/10.0.0.1 src 198.51.100.7", "10.244.0.0/24 2/10.0.0.12", "10.244.1.0/24 2/10.0.0.13", "10.244.2.0/24 2/10.0.0.14", "10.244.3.0/24 2/10.0.0.15",
				"10.244.5.0/24 2/10.0.0.16", "10.244.3.7/32 2/10.0.0.1 src 198.51.100.7", "10.244.8.0/23 2/10.0.0.1 src 192.0.2.1", "10.244.8.0/24 2/10.0.0.2", "10.244.9.0/24 2/10.0.0.2",
			},
			[]string{"10.244.3.7/32 198.51.100.7", "10.244.5.0/24 interface", "10.244.8.0/23 interface", "10.244.0.0/22 interface", "0.0.0.0/0 198.51.100.7"},
		},
		"the first of two routes counts": {
			fabric[1:2], []string{"10.244.2.0/24 2/10.0.0.0", "10.244.2.0/24 2/10.0.0.0 src 192.0.2.1"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := egress.Host{Links: test.links}
			for _, r := range test.routes {
				h.Routes = append(h.Routes, route(r))
			}
			own := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
			pods := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}
			found, err := h.Sources(own, pods)
			if got := show(found); err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// TestTooManySources: routes of their own for each of many nodes, and nothing around them, are told, and the other family
// is served.
func TestTooManySources(t *testing.T) {
	h := egress.Host{Links: []egress.Link{link(1, "lo", "192.0.2.1/32", "2001:db8::1/128"), link(2, "eth0", "10.0.0.1/24", "fd00::1/64")}}
	for n := range 300 {
		h.Routes = append(h.Routes, route(fmt.Sprintf("10.%d.%d.0/24 2/10.0.0.2 src 192.0.2.1", n/128, n%128*2)))
	}
	h.Routes = append(h.Routes, route("fd00:244::/32 2/fd00::2 src 2001:db8::1"))
	found, err := h.Sources(nil, nil)
	if got := show(found); err == nil || !strings.Contains(err.Error(), "300 ranges") || !slices.Equal(got, []string{"fd00:244::/32 2001:db8::1"}) {
		t.Errorf("got %q, %v", got, err)
	}
}
