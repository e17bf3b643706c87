package desired_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

func reasons(t *testing.T, c *view.Cluster) []string {
	t.Helper()
	_, problems := fresh(c, onNode("a"))
	var found []string
	for _, p := range problems {
		found = append(found, p.Reason+" "+p.Object.String())
	}
	return found
}

func TestWhatNobodyAnnouncesIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*view.Cluster)
		want   []string
	}{
		"all is well": {func(*view.Cluster) {}, nil},
		"every node is excluded": {func(c *view.Cluster) {
			for _, node := range c.Nodes {
				node.Excluded = true
			}
		}, []string{"NoNode Service/shop/web", "NoNode Service/shop/web"}},
		"layer 2 alone": {func(c *view.Cluster) { clear(c.BGPAdvertisements) }, nil},
		"an advertisement of neither is not asked for": {func(c *view.Cluster) {
			clear(c.BGPAdvertisements)
			clear(c.L2Advertisements)
		}, nil},
		"nodes without podCIDRs of a family": {func(c *view.Cluster) {
			for _, node := range c.Nodes {
				node.PodCIDRs = node.PodCIDRs[:1]
			}
		}, []string{"PodsUnknown Node/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(service(), endpoint("10.0.0.1", "a"), endpoint("fd00::1", "b"))
			test.change(c)
			if got := reasons(t, c); !slices.Equal(got, test.want) {
				t.Errorf("problems %v, want %v", got, test.want)
			}
		})
	}
}

// Two sessions from one node to one router end each other for ever: what is there goes on, and
// who comes later is left out, whatever its name.
func TestASecondPeerForOneRouterIsLeftOut(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	again := *c.BGPPeers["tor"]
	again.Name, again.Created = "again", time.Unix(1, 0) // before tor in the order of names
	c.BGPPeers["again"] = &again
	elsewhere := again
	elsewhere.Name, elsewhere.PeerPort = "elsewhere", 1179
	c.BGPPeers["elsewhere"] = &elsewhere
	for created, want := range map[time.Time]string{
		{}:              "again", // older than the others
		time.Unix(1, 0): "tor",   // no older, so that the names decide
		time.Unix(2, 0): "tor",
	} {
		tor := *c.BGPPeers["tor"]
		tor.Created = created
		c.BGPPeers["tor"] = &tor
		got, _ := fresh(c, onNode("a"))
		if _, both := got.BGP[want]; both || len(got.BGP) != 2 {
			t.Errorf("tor of %v: sessions %v", created, slices.Sorted(maps.Keys(got.BGP)))
		}
		if got := reasons(t, c); !slices.Equal(got, []string{"PeerDuplicate BGPPeer/" + want}) {
			t.Errorf("tor of %v: problems %v", created, got)
		}
	}
}

// A status may hold an address longer than the spec has its family.
func TestAnAddressWithoutForwardingIsNotAnnounced(t *testing.T) {
	for name, change := range map[string]func(*view.Service){
		"of a family without ClusterIP": func(s *view.Service) { s.ClusterIPs = ips("fd00:96::7") },
		"without a port":                func(s *view.Service) { s.Ports = nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(service(change), endpoint("10.0.0.1", "a"))
			got, _ := fresh(c, onNode("a"))
			for address := range got.Layer2 {
				if addr.FamilyOf(address) == addr.IPv4 {
					t.Errorf("%s is claimed", address)
				}
			}
			for prefix := range got.BGP["tor"].Routes {
				if prefix.Addr().Is4() {
					t.Errorf("%s is announced", prefix)
				}
			}
		})
	}
}
