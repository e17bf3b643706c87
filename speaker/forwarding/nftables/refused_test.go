package nftables

import (
	"fmt"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/outcome"
)

// TestManyRefusedPorts has the kernel refuse all ports of a large Service: few of them are tried one by one, and another Service that
// comes with them is served.
func TestManyRefusedPorts(t *testing.T) {
	c := newCluster(t)
	c.poison()
	a := blackbox.Plan(addr.IPv4)
	want := blackbox.Forwarding(blackbox.Services()...)
	c.Apply(want)
	const ports = 200
	for i := range ports {
		key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: "many"}, Name: fmt.Sprint(i), Protocol: view.TCP, Family: addr.IPv4}
		want.Ports[key] = desired.Port{
			ClusterIP: blackbox.Nth(a.ClusterIPs, 30), Port: uint16(1000 + i), Cluster: blackbox.At(blackbox.ServePort, a.P1, a.P2, a.P3, a.Node, a.Client),
		}
	}
	last := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: "z-last"}, Protocol: view.TCP, Family: addr.IPv4}
	want.Ports[last] = desired.Port{ClusterIP: blackbox.Nth(a.ClusterIPs, 31), Port: 80, Cluster: blackbox.At(blackbox.ServePort, a.P1)}
	for i := range 3 {
		missing, err := c.Try(want)
		if len(missing) != ports || len(outcome.Refused(err)) != ports {
			t.Fatalf("attempt %d: %d ports are missing and %d refused, want %d", i, len(missing), len(outcome.Refused(err)), ports)
		}
		reasons := map[error]bool{} // one for each transaction that was refused
		for _, refused := range outcome.AllOf[*outcome.RefusedError](err) {
			reasons[refused.Err] = true
		}
		if len(reasons) > 30 {
			t.Errorf("attempt %d: %d transactions were refused", i, len(reasons))
		}
	}
}
