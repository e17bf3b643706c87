package desired_test

import (
	"fmt"
	"net/netip"
	"testing"

	"fairlead.dev/fairlead/internal/view"
)

// TestNodesWithoutIPv4HaveRouterIDs: each one of its own, which might be the address of a host.
func TestNodesWithoutIPv4HaveRouterIDs(t *testing.T) {
	c, ids := cluster(service()), map[netip.Addr]string{}
	for i := range 100 {
		name := fmt.Sprint("node", i)
		c.Nodes[name] = &view.Node{Name: name, Ready: true, Addresses: ips("2001:db8:1::1")}
		got, _ := fresh(c, onNode(name))
		id := got.BGP["tor"].Identity.RouterID
		if first := id.AsSlice()[0]; !id.Is4() || first == 0 || first == 127 || first >= 224 {
			t.Errorf("%s has the router ID %s", name, id)
		}
		if other := ids[id]; other != "" {
			t.Errorf("%s and %s have the router ID %s", name, other, id)
		}
		ids[id] = name
	}
}
