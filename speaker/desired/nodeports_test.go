package desired_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// On loopback addresses NodePorts answer for a prefix of these alone, and the guard is
// wanted with it.
func TestWhereNodePortsAnswer(t *testing.T) {
	c := cluster(service())
	own, _ := fresh(c, onNode("a"))
	internal := own.Forwarding.NodePorts
	if len(internal) == 0 || len(own.Forwarding.Loopback) > 0 || own.Forwarding.Guard {
		t.Fatalf("nothing said: %v, loopback %v, guard %t", internal, own.Forwarding.Loopback, own.Forwarding.Guard)
	}
	for name, tt := range map[string]struct {
		primary         bool
		cidrs           []netip.Prefix
		wanted, onLocal []netip.Prefix
	}{
		"prefixes":                 {false, prefixes("192.0.2.0/24", "2001:db8::/64"), prefixes("192.0.2.0/24", "2001:db8::/64"), nil},
		"everywhere":               {false, prefixes("0.0.0.0/0", "::/0"), prefixes("0.0.0.0/0", "::/0"), nil},
		"everywhere and localhost": {false, prefixes("0.0.0.0/0", "127.0.0.0/8"), prefixes("0.0.0.0/0"), prefixes("127.0.0.0/8")},
		"localhost alone":          {false, prefixes("127.0.0.0/8"), nil, prefixes("127.0.0.0/8")},
		"some of it":               {false, prefixes("127.0.0.1/32", "127.0.0.0/30", "192.0.2.0/24"), prefixes("192.0.2.0/24"), prefixes("127.0.0.0/30")},
		"::1":                      {true, prefixes("::1/128"), internal, nil},
		"more than it":             {false, prefixes("126.0.0.0/7"), prefixes("126.0.0.0/7"), nil},
		"primary":                  {true, nil, internal, nil},
		"primary and localhost":    {true, prefixes("127.0.0.0/8"), internal, prefixes("127.0.0.0/8")},
		"primary and a prefix":     {true, prefixes("10.9.0.0/16"), addr.Summarize(append(prefixes("10.9.0.0/16"), internal...)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := fresh(c, desired.Options{Node: "a", NodePortPrimary: tt.primary, NodePortCIDRs: tt.cidrs})
			f := got.Forwarding
			if diff := cmp.Diff(tt.wanted, f.NodePorts, compare); diff != "" {
				t.Errorf("NodePorts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.onLocal, f.Loopback, compare); diff != "" {
				t.Errorf("Loopback (-want +got):\n%s", diff)
			}
			if f.Guard != (len(tt.onLocal) > 0) || f.Guard && !f.Has(addr.IPv4) {
				t.Errorf("guard %t, IPv4 %t", f.Guard, f.Has(addr.IPv4))
			}
		})
	}
}

// Who sends from a loopback address must be masqueraded, whatever prefixes pods have.
func TestNobodyOnLoopbackIsAPod(t *testing.T) {
	got, _ := fresh(cluster(service()), desired.Options{Node: "a", Pods: desired.PodDetection{ClusterCIDRs: prefixes("0.0.0.0/0", "::/0")}})
	for _, p := range got.Forwarding.Pods {
		if p.Overlaps(addr.Loopback()) || p.Contains(netip.IPv6Loopback()) {
			t.Errorf("%s holds pods", p)
		}
	}
	if len(got.Forwarding.Pods) == 0 {
		t.Error("nobody is a pod")
	}
}

func TestSettledByFamily(t *testing.T) {
	failed := func(f addr.Family, settled bool) error {
		return &outcome.FamilyError{Family: f, Settled: settled, Err: errors.Join(errors.New("a"), errors.New("b"))}
	}
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"nothing failed":    {nil, true},
		"before any family": {errors.New("no iptables"), false},
		"this one":          {failed(addr.IPv4, false), false},
		"ports of it":       {failed(addr.IPv4, true), true},
		"the other one":     {errors.Join(nil, failed(addr.IPv6, false)), true},
		"both":              {errors.Join(failed(addr.IPv6, false), failed(addr.IPv4, false)), false},
		"both, this by its ports": {
			errors.Join(failed(addr.IPv4, true), failed(addr.IPv6, false)), true,
		},
	} {
		if got := outcome.Settled(tt.err, addr.IPv4); got != tt.want {
			t.Errorf("%s: settled %t, want %t", name, got, tt.want)
		}
	}
}
