package desired_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// By the addresses of this node's pods: those that it has as the decision is made, and no
// other node's.
func TestPodsOfThisNodeAlone(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	o := desired.Options{Node: "a", Pods: desired.PodDetection{OwnNode: true}}
	check := func(want []netip.Prefix, reasons ...string) {
		t.Helper()
		got, problems := fresh(c, o)
		if diff := cmp.Diff(want, got.Forwarding.Pods, compare); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
		if told := unknown(problems); !slices.Equal(told, reasons) {
			t.Errorf("told %v, want %v", told, reasons)
		}
	}
	own := slices.Clone(c.Nodes["a"].PodCIDRs)
	if len(own) != 2 || len(c.Nodes) < 2 {
		t.Fatalf("the cluster is no case: %v", own)
	}
	check(own)
	c.Nodes["a"].PodCIDRs = own[1:]
	check(own[1:], "this node does not say in spec.podCIDRs where its IPv4 pods send from, so that nothing for ClusterIPs is masqueraded, "+
		"and pods are taken for strangers under externalTrafficPolicy Local: "+
		"give it one of the family, or set the Helm value forwarding.detectLocalMode to another mode")
}

// By prefixes that are named, of one family: of the other one the nodes say.
func TestPodsByPrefixesOfOneFamily(t *testing.T) {
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	var own []netip.Prefix
	for _, node := range c.Nodes {
		own = append(own, node.PodCIDRs...)
	}
	for name, four := range map[string]bool{"10.9.0.0/16": true, "fd00:9::/64": false} {
		want := prefixes(name)
		for _, p := range own {
			if p.Addr().Is4() != four {
				want = append(want, p)
			}
		}
		got, problems := fresh(c, desired.Options{Node: "a", Pods: desired.PodDetection{ClusterCIDRs: prefixes(name)}})
		if diff := cmp.Diff(addr.Summarize(want), got.Forwarding.Pods, compare); diff != "" || len(unknown(problems)) > 0 {
			t.Errorf("with %s, told %v, pods (-want +got):\n%s", name, unknown(problems), diff)
		}
	}
}

// By their interfaces: every port says so, no address does, and no node has to.
func TestPodsByInterface(t *testing.T) {
	links := desired.Links{Name: "veth", Prefix: true}
	c := cluster(service(), endpoint("10.0.0.1", "a"))
	for _, node := range c.Nodes {
		node.PodCIDRs = nil
	}
	got, problems := fresh(c, desired.Options{Node: "a", Pods: desired.PodDetection{Links: links}, MasqueradeAll: true})
	if len(got.Forwarding.Pods) > 0 || len(unknown(problems)) > 0 {
		t.Errorf("pods are %v, told %v; want neither", got.Forwarding.Pods, problems)
	}
	if len(got.Forwarding.Ports) == 0 {
		t.Fatal("no port")
	}
	for key, p := range got.Forwarding.Ports {
		if p.PodLinks != links || !p.MasqueradeAll {
			t.Errorf("%v: pods by %v, all masqueraded: %t", key, p.PodLinks, p.MasqueradeAll)
		}
	}
	if _, problems := fresh(c, desired.Options{Node: "a"}); len(unknown(problems)) == 0 {
		t.Error("without interfaces and addresses nobody is told")
	}
}

// A port is another one when it tells pods another way.
func TestPortsDifferInWhoIsAPod(t *testing.T) {
	p := desired.Port{Port: 80}
	byLink, byPrefix, all := p, p, p
	byLink.PodLinks = desired.Links{Name: "br0"}
	byPrefix.PodLinks = desired.Links{Name: "br0", Prefix: true}
	all.MasqueradeAll = true
	ports := []desired.Port{p, byLink, byPrefix, all}
	for i, a := range ports {
		for j, b := range ports {
			if a.Equal(b) != (i == j) {
				t.Errorf("%+v equals %+v: %t", a, b, a.Equal(b))
			}
		}
	}
}

// TestPodsOutsideOfWhatIsKnown tells of pods of this node that send from elsewhere, by an engine that sees each cluster
// after the others as by a fresh one.
func TestPodsOutsideOfWhatIsKnown(t *testing.T) {
	o := desired.Options{Node: "a"}
	engine := desired.NewEngine(o)
	pod := func(e *view.Endpoint) { e.Pod = true }
	for _, test := range []struct {
		name      string
		endpoints []view.Endpoint
		cidrs     []string // of this node; nil: of both families
		want      []string // that are named
	}{
		{"within", []view.Endpoint{endpoint("10.244.1.7", "a", pod), endpoint("fd00:244:1::7", "a", pod)}, nil, nil},
		{"outside", []view.Endpoint{endpoint("10.245.1.3", "a", pod), endpoint("10.245.1.2", "a", pod), endpoint("fd00:245::7", "a", pod)}, nil, []string{"10.245.1.2", "fd00:245::7"}},
		{"of one family", []view.Endpoint{endpoint("10.244.1.7", "a", pod), endpoint("fd00:245::7", "a", pod)}, nil, []string{"fd00:245::7"}},
		{"no pods", []view.Endpoint{endpoint("10.245.1.2", "a")}, nil, nil},
		{"of another node, which says so", []view.Endpoint{endpoint("10.245.1.2", "b", pod)}, nil, nil},
		{"on the node's network", []view.Endpoint{endpoint("192.168.0.1", "a", pod)}, nil, nil},
		{"the range has moved away", []view.Endpoint{endpoint("10.244.1.7", "a", pod)}, []string{"10.246.0.0/24"}, []string{"10.244.1.7"}},
		{"the same, and none of the other family is known", []view.Endpoint{endpoint("10.244.1.7", "a", pod), endpoint("fd00:244:1::7", "a", pod)}, []string{"10.246.0.0/24"}, []string{"10.244.1.7"}},
		{"gone", nil, nil, nil},
	} {
		c := cluster(service(), test.endpoints...)
		for name, node := range c.Nodes {
			node.PodCIDRs = nil
			if name == "a" {
				node.Addresses, node.PodCIDRs = ips("192.168.0.1"), prefixes("10.244.1.0/24", "fd00:244:1::/64")
			}
		}
		if test.cidrs != nil {
			c.Nodes["a"].PodCIDRs = prefixes(test.cidrs...)
		}
		for name, problems := range map[string]func() []problem.Problem{
			"one after another": func() []problem.Problem { _, p := engine.Decide(c); return p },
			"fresh":             func() []problem.Problem { _, p := fresh(c, o); return p },
		} {
			var told []string
			for _, p := range problems() {
				if p.Reason == desired.ReasonPodsOutside {
					told = append(told, p.Message)
				}
			}
			slices.Sort(told)
			if !slices.EqualFunc(told, test.want, func(text, a string) bool { return strings.Contains(text, " "+a+":") }) {
				t.Errorf("%s, %s: told %q, want %q", test.name, name, told, test.want)
			}
		}
	}
	_, problems := fresh(cluster(service(), endpoint("10.245.1.2", "a", pod)), desired.Options{Node: "a", Pods: desired.PodDetection{Links: desired.Links{Name: "cni0"}}})
	for _, p := range problems {
		if p.Reason == desired.ReasonPodsOutside {
			t.Errorf("told where interfaces tell pods: %s", p.Message)
		}
	}
}

func unknown(problems []problem.Problem) []string {
	var texts []string
	for _, p := range problems {
		if p.Reason == desired.ReasonPodsUnknown {
			texts = append(texts, p.Message)
		}
	}
	return texts
}
