package nftables

import (
	"net/netip"
	"runtime"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// TestClassesThatNobodyUsesTakeNoRoom has a Service of policy Local grow and shrink for as long as a
// speaker may live: there is a class for each number of endpoints in the cluster together with each on
// this node. What was known of those that are gone must not add up.
func TestClassesThatNobodyUsesTakeNoRoom(t *testing.T) {
	l := newLayout(addr.IPv4)
	endpoints := make([]netip.AddrPort, 70)
	for i := range endpoints {
		endpoints[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 1, byte(i)}), blackbox.ServePort)
	}
	a := blackbox.Plan(addr.IPv4)
	port := desired.Port{
		ClusterIP: blackbox.Nth(a.ClusterIPs, 1), VIPs: []netip.Addr{blackbox.Nth(a.VIPs, 1)}, Port: 80, NodePort: 30000,
		ExternalLocal: true, Anywhere: true,
	}
	held := func() int {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc) >> 10
	}
	before := held()
	for cluster := 1; cluster <= len(endpoints); cluster++ {
		for local := 0; local <= cluster; local++ {
			port.Cluster, port.Local = endpoints[:cluster], endpoints[:local]
			l.render(bulkKey(0), version{port: port})
		}
	}
	const most = 8 << 10
	if grown := held() - before; grown > most {
		t.Errorf("after %d sizes %d KiB more are held, want at most %d", len(endpoints)*(len(endpoints)+3)/2, grown, most)
	}
	runtime.KeepAlive(l)
}
