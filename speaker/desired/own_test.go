package desired_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// exposed is a Service with a NodePort, policy Local and ranges that this node is in, and an
// endpoint for each zone: it has all that depends on what a node knows of itself.
func exposed(s *view.Service) {
	s.Ports[0].NodePort, s.ExternalLocal = 30080, true
	s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
}

// A Node that is deleted, or made anew and says little yet, takes nothing away from those who
// use the machine: kube-proxy goes on, too.
func TestForwardingOutlivesTheNode(t *testing.T) {
	whole := cluster(service(exposed), endpoint("10.0.0.1", "a", forZones("z-a")), endpoint("10.0.0.2", "b", forZones("z-b")))
	for name, tt := range map[string]struct {
		now     *view.Node
		options desired.Options
		reason  string
	}{
		"the Node is gone":                       {nil, onNode("a"), "NodeMissing Node/a"},
		"the Node is gone, pods by its podCIDRs": {nil, desired.Options{Node: "a", Pods: desired.PodDetection{OwnNode: true}}, "NodeMissing Node/a"},
		"the Node is made anew":                  {&view.Node{Name: "a", Labels: whole.Nodes["a"].Labels}, onNode("a"), "AddressUnknown Node/a"},
		"the Node is made anew and has its podCIDRs": {
			&view.Node{Name: "a", Labels: whole.Nodes["a"].Labels, PodCIDRs: whole.Nodes["a"].PodCIDRs}, onNode("a"), "AddressUnknown Node/a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			want, _ := fresh(whole, tt.options)
			lesser := *whole
			lesser.Nodes = map[string]*view.Node{"b": whole.Nodes["b"], "c": whole.Nodes["c"]}
			if tt.now != nil {
				lesser.Nodes["a"] = tt.now
			}
			lost, _ := fresh(&lesser, tt.options)
			if cmp.Equal(want.Forwarding, lost.Forwarding, compare) {
				t.Fatal("without a memory all is the same, so that this test holds nothing")
			}
			lesser.LastOwn = whole.Nodes["a"]
			got, problems := fresh(&lesser, tt.options)
			if d := cmp.Diff(want.Forwarding, got.Forwarding, compare); d != "" {
				t.Errorf("forwarding (-with the Node +without):\n%s", d)
			}
			if d := cmp.Diff(want.Addrs, got.Addrs, compare); d != "" {
				t.Errorf("addresses (-with the Node +without):\n%s", d)
			}
			if len(problems) != 1 || problems[0].Reason+" "+problems[0].Object.String() != tt.reason {
				t.Errorf("problems %v, want %s alone", problems, tt.reason)
			}
			if tt.now == nil && len(got.BGP)+len(got.Layer2) > 0 {
				t.Error("a node that no other one knows of announces")
			}
		})
	}
}

func TestANodeThatSaysNotWhereItIs(t *testing.T) {
	single := func(c *view.Cluster) { c.Nodes["a"].Addresses = c.Nodes["a"].Addresses[:1] }
	alone := func(s *view.Service) { s.ClusterIPs = s.ClusterIPs[:1] }
	for name, tt := range map[string]struct {
		service *view.Service
		change  func(*view.Cluster)
		options desired.Options
		want    []string // families of which it is told
	}{
		"it says both":                 {service(exposed), func(*view.Cluster) {}, onNode("a"), nil},
		"it says neither":              {service(exposed), func(c *view.Cluster) { c.Nodes["a"].Addresses = nil }, onNode("a"), []string{"IPv4", "IPv6"}},
		"it says one":                  {service(exposed), single, onNode("a"), []string{"IPv6"}},
		"it says the one of interest":  {service(exposed, alone), single, onNode("a"), nil},
		"there is no NodePort":         {service(func(s *view.Service) { s.Ports[0].NodePort = 0 }), single, onNode("a"), nil},
		"NodePorts answer elsewhere":   {service(exposed), func(c *view.Cluster) { c.Nodes["a"].Addresses = nil }, desired.Options{Node: "a", NodePortCIDRs: prefixes("0.0.0.0/0")}, nil},
		"also there, and on prefixes":  {service(exposed), single, desired.Options{Node: "a", NodePortPrimary: true, NodePortCIDRs: prefixes("::/0")}, nil},
		"also there, and on localhost": {service(exposed), single, desired.Options{Node: "a", NodePortPrimary: true, NodePortCIDRs: prefixes("127.0.0.0/8")}, []string{"IPv6"}},
		"another node says nothing":    {service(exposed, alone), func(c *view.Cluster) { c.Nodes["b"].Addresses = nil }, onNode("a"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(tt.service, endpoint("10.0.0.1", "a"))
			tt.change(c)
			_, problems := fresh(c, tt.options)
			var got []string
			for _, p := range problems {
				if p.Reason != desired.ReasonAddressUnknown || p.Object.Name != "a" || !strings.Contains(p.Message, "--node-ip") {
					t.Errorf("problem %v", p)
					continue
				}
				for _, family := range addr.Families() {
					if strings.Contains(p.Message, family.String()) {
						got = append(got, family.String())
					}
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("told of %v, want %v", got, tt.want)
			}
		})
	}
}

// A node that nobody has ever heard of serves ClusterIPs, and says what is wrong.
func TestANodeThatIsUnknown(t *testing.T) {
	c := cluster(service(exposed), endpoint("10.0.0.1", "z"))
	got, problems := fresh(c, onNode("z"))
	if len(got.Forwarding.Ports) == 0 || len(got.Forwarding.NodePorts) > 0 {
		t.Errorf("ports %v, NodePorts on %v", got.Forwarding.Ports, got.Forwarding.NodePorts)
	}
	if len(problems) != 1 || problems[0].Reason != desired.ReasonNodeMissing {
		t.Errorf("problems %v", problems)
	}
}
