package blackbox

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"pgregory.net/rapid"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// Draw draws any wanted state that Services can lead to, of few addresses and
// ports, so that states have much in common and Services collide.
func Draw(t *rapid.T, label string) desired.Forwarding {
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	for _, f := range addr.Families() {
		a := Plan(f)
		everything := netip.PrefixFrom(a.Node, 0).Masked()
		want.Pods = append(want.Pods, rapid.SampledFrom([][]netip.Prefix{
			nil, {a.Pods}, addr.WithoutLoopback([]netip.Prefix{everything}),
		}).Draw(t, label+" pods")...)
		want.NodePorts = append(want.NodePorts, rapid.SampledFrom([][]netip.Prefix{
			nil, {addr.HostPrefix(a.Node)}, {addr.HostPrefix(a.Node), addr.HostPrefix(a.Bound[0])}, {everything},
		}).Draw(t, label+" node")...)
		want.ServiceRanges = append(want.ServiceRanges, rapid.SampledFrom([][]netip.Prefix{
			nil, {a.ClusterIPs}, {netip.PrefixFrom(Nth(a.ClusterIPs, 8), a.Node.BitLen()-3), addr.HostPrefix(a.P1)},
		}).Draw(t, label+" ranges of ClusterIPs")...)
		want.Sources = append(want.Sources, rapid.SampledFrom([][]desired.Source{
			nil,
			{{To: everything, From: a.Aside}}, // which sends nothing itself
			{{To: addr.HostPrefix(a.P3), From: a.OfNode[0]}, {To: everything, From: a.Aside}},
			{{To: addr.HostPrefix(a.P1)}, {To: a.Pods, From: a.Aside}},
		}).Draw(t, label+" sources")...)
		want.Own = append(want.Own, rapid.SampledFrom([][]netip.Addr{nil, {a.Node}, {a.Node, a.Aside}}).Draw(t, label+" addresses of the node")...)
		want.Echo = append(want.Echo, rapid.SampledFrom([][]netip.Addr{nil, {a.Node}}).Draw(t, label+" echo")...)
		want.Refused = append(want.Refused, rapid.SampledFrom([][]netip.Prefix{nil, {a.Nobody}}).Draw(t, label+" refused")...)
		masqueradeAll := rapid.Bool().Draw(t, label+" masquerade all")
		links := rapid.SampledFrom([]desired.Links{
			{}, {}, {Name: "p1"}, {Name: "p", Prefix: true}, {Name: "p2", Prefix: true},
		}).Draw(t, label+" links of pods")
		for i := range rapid.IntRange(0, 30).Draw(t, label+" ports") {
			key := desired.PortKey{
				Service:  view.Ref{Namespace: "shop", Name: fmt.Sprint("s", i)},
				Protocol: rapid.SampledFrom([]view.Protocol{view.TCP, view.UDP}).Draw(t, "protocol"), Family: f,
			}
			p := drawPort(t, a)
			p.MasqueradeAll, p.PodLinks = masqueradeAll, links
			want.Ports[key] = p
		}
	}
	want.Loopback = rapid.SampledFrom([][]netip.Prefix{
		nil, {addr.Loopback()}, {netip.MustParsePrefix("127.0.0.1/32")},
	}).Draw(t, label+" loopback")
	want.Guard = len(want.Loopback) > 0 || rapid.Bool().Draw(t, label+" guard")
	return want
}

// drawPort draws what a Service can lead to: that it has endpoints in Cluster if
// it has any, and in Local only those of this node.
func drawPort(t *rapid.T, a Addresses) desired.Port {
	addrs := func(most int, label string, from ...netip.Addr) []netip.Addr {
		drawn := rapid.SliceOfNDistinct(rapid.SampledFrom(from), 0, most, rapid.ID[netip.Addr]).Draw(t, label)
		slices.SortFunc(drawn, netip.Addr.Compare)
		return drawn
	}
	endpoints := func(least int, label string, from ...netip.AddrPort) []netip.AddrPort {
		drawn := rapid.SliceOfNDistinct(rapid.SampledFrom(from), least, -1, rapid.ID[netip.AddrPort]).Draw(t, label)
		slices.SortFunc(drawn, netip.AddrPort.Compare)
		return drawn
	}
	var vips []netip.Addr
	for n := range byte(6) { // three of them the node has itself
		vips = append(vips, Nth(a.VIPs, FirstBound-3+n))
	}
	p := desired.Port{
		VIPs:        addrs(2, "vips", vips...),
		ExternalIPs: addrs(1, "externalIPs", append(vips[1:4:4], a.Node, Nth(a.ExternalIPs, 1))...),
		Port:        rapid.SampledFrom([]uint16{80, 81, 85, 443, 30000, 30001}).Draw(t, "port"),
		NodePort:    rapid.SampledFrom([]uint16{0, 30000, 30001, 31000, 32767}).Draw(t, "nodePort"),

		InternalLocal: rapid.Bool().Draw(t, "internalLocal"), ExternalLocal: rapid.Bool().Draw(t, "externalLocal"),
		Restricted: rapid.Bool().Draw(t, "restricted"),
		Affinity:   rapid.SampledFrom([]time.Duration{0, 0, time.Hour}).Draw(t, "affinity"),
	}
	if len(p.VIPs) > 0 {
		p.Announced, p.Guest = addrs(2, "announced", p.VIPs...), addrs(1, "guest", p.VIPs...)
	}
	here := slices.Concat(At(ServePort, a.P1, a.P2), At(SecondPort, a.P1), At(HostPort, a.Node))
	if rapid.IntRange(0, 3).Draw(t, "served") > 0 {
		p.Anywhere = true
		p.Cluster = endpoints(1, "cluster", append(At(ServePort, a.P3), here...)...)
		p.Local = endpoints(0, "local", here...)
	}
	for _, ip := range addrs(1, "clusterIP", Nth(a.ClusterIPs, 1), Nth(a.ClusterIPs, 2), Nth(a.ClusterIPs, 9), Nth(a.ClusterIPs, 10)) {
		p.ClusterIP = ip
	}
	if p.Restricted {
		p.SourceRanges = rapid.SampledFrom([][]netip.Prefix{
			nil,
			{a.Nobody},
			{a.Pods},
			{a.Crowd, a.Nobody},
			{a.Crowd, a.Nobody, addr.HostPrefix(a.P1), addr.HostPrefix(a.P2), addr.HostPrefix(a.Node)},
			{addr.HostPrefix(a.Node), addr.HostPrefix(a.Client)},
			{addr.HostPrefix(a.Bound[0])},
		}).Draw(t, "ranges")
	}
	return p
}
