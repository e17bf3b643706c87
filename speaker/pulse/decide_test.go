package pulse

import (
	"net/netip"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

var (
	vip4 = netip.MustParseAddr("192.0.2.10")
	vip6 = netip.MustParseAddr("2001:db8::10")
)

func serving(nodes ...string) hello.View {
	v := hello.View{Settled: true, Alive: map[string]hello.Member{}}
	for _, n := range nodes {
		v.Alive[n] = hello.Member{Serving: true}
	}
	return v
}

func claim(a netip.Addr, candidates ...string) map[netip.Addr]desired.Candidacy {
	return map[netip.Addr]desired.Candidacy{a: {Candidates: candidates}}
}
