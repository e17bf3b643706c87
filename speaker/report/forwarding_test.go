package report_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/report"
)

// board keeps the last of what is told of the forwarding.
type board struct {
	unread
	uid types.UID
	now v1beta1.NodeForwardingStatus
}

func (b *board) Forwarding(uid types.UID, f v1beta1.NodeForwardingStatus) { b.uid, b.now = uid, f }

// kernel is told by nft, and others changed so much of it.
type kernel map[addr.Family]int

// crowded is a kernel that cannot remember all clients of a family, if any.
type crowded struct {
	kernel
	family addr.Family
}

func (c crowded) AffinityOverflows(family addr.Family) int {
	if family == c.family {
		return 3
	}
	return 0
}

func (kernel) AffinityOverflows(addr.Family) int { return 0 }

func (kernel) Tool() string { return "iptables-nft" }

func (k kernel) Tally(family addr.Family) (rules, repairs int) { return 100, k[family] }

// says holds that these conditions are told, as "Type=Status Reason: message", and that
// those that are not named are True, as they must be.
func (b *board) says(t *testing.T, when string, want ...string) {
	t.Helper()
	var got []string
	for _, c := range b.now.Conditions {
		if c.Reason == "AsExpected" && c.Status == "True" {
			continue
		}
		got = append(got, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("%s:\n%s\nwant\n%s", when, a, b)
	}
}

// onNode is an outcome whose cluster has the node.
func onNode() agent.Outcome {
	o := anOutcome()
	o.Cluster.Nodes = map[string]*view.Node{"node1": {Name: "node1", UID: "uid"}}
	return o
}

// following is a reporter whose words about the forwarding go to a board.
func following(k kernel, off bool) (*report.Reporter, *board) {
	var b board
	c := toldTo(new(events))
	c.Mode, c.Kernel, c.Objects = "iptables", k, &b
	if off {
		c.Mode, c.Kernel = "none", nil
	}
	return report.New(c), &b
}

// TestConditionsTellWhatIsWrong goes through what can be wrong with the forwarding of a
// node: each is a condition with a reason, and is True again when it is over.
func TestConditionsTellWhatIsWrong(t *testing.T) {
	r, b := following(kernel{}, false)
	r.Report(onNode())
	if b.uid != "" {
		t.Error("told before other proxies were looked for")
	}
	r.Rivals(nil, nil)
	b.says(t, "all is well")
	if b.uid != "uid" || b.now.Mode != "iptables" || b.now.Tool != "iptables-nft" || b.now.Services != 1 || b.now.Ports != 1 || b.now.ProgrammedPorts != 1 || len(b.now.Conditions) != 7 {
		t.Errorf("of a node that is well: %+v", b)
	}

	key := desired.PortKey{Service: view.Ref{Namespace: "shop", Name: "web"}, Name: "http", Protocol: view.TCP, Family: addr.IPv4}
	tells := func(when string, err error, want ...string) {
		t.Helper()
		o := onNode()
		if o.Err = err; err != nil {
			o.Missing = outcome.Missing{{Service: key.Service, Protocol: view.TCP, Family: addr.IPv4}: {}}
		}
		r.Report(o)
		b.says(t, when, want...)
		if b.now.ProgrammedPorts+int32(len(o.Missing)) != 1 || int(b.now.Problems) != len(want) {
			t.Errorf("%s: %d ports are programmed, %d problems", when, b.now.ProgrammedPorts, b.now.Problems)
		}
		r.Report(onNode())
		b.says(t, "after "+when)
	}
	for reason, err := range map[string]error{
		"ForwardingFailed":   errors.New("it is broken"),
		"ProgramMissing":     outcome.Caused(outcome.ReasonProgramMissing, errors.New("install iptables")),
		"ForwardingDisabled": outcome.Caused(outcome.ReasonForwardingDisabled, errors.New("net.ipv4.ip_forward is 0")),
		"FeatureMissing":     errors.Join(errors.New("line 3 failed"), outcome.Caused(outcome.ReasonFeatureMissing, errors.New("no xt_set"))),
	} {
		tells(reason, &outcome.FamilyError{Family: addr.IPv4, Err: err},
			"Programmed=False "+reason+": what is forwarded of IPv4 is not all as wanted; it is tried again: "+err.Error())
	}
	tells("a setting", &outcome.SettingError{Err: errors.New("route_localnet is 0")},
		"Programmed=False SettingFailed: route_localnet is 0; it is tried again")
	tells("a port", &outcome.FamilyError{Family: addr.IPv4, Settled: true, Err: &outcome.RefusedError{Key: key, Err: errors.New("no")}},
		`Programmed=False ForwardingRefused: Service/shop/web: node node1: the kernel does not take port "http" (TCP, IPv4), which stays as it was: no`)

	stays := onNode()
	stays.Missing = outcome.Missing{{Service: key.Service, Name: "deleted", Protocol: view.TCP, Family: addr.IPv4}: {Port: 81}}
	stays.Err = &outcome.FamilyError{Family: addr.IPv4, Settled: true, Err: errors.New("busy")}
	r.Report(stays)
	b.says(t, "a port that is to go", "Programmed=False ForwardingFailed: what is forwarded of IPv4 is not all as wanted; it is tried again: busy")
	if b.now.ProgrammedPorts != 1 {
		t.Errorf("%d of 1 port are programmed though another one is to go", b.now.ProgrammedPorts)
	}
	r.Report(onNode())

	r.Rivals([]string{"nftables rules (IPv4)"}, errors.New("no iptables-legacy"))
	b.says(t, "a rival", "SoleProxy=False OtherProxy: kube-proxy has rules in this node's kernel besides Fairlead's: nftables rules (IPv4); "+
		"remove it and run kube-proxy --cleanup on the node, or set the Helm value forwarding.mode to none")
	r.Rivals(nil, errors.New("no iptables-legacy"))
	b.says(t, "one who cannot look", "SoleProxy=Unknown ProxiesUnknown: no iptables-legacy")
	r.Rivals(nil, nil)
	b.says(t, "no rival")
	r.Preempted("Cilium (interface cilium_host)")
	b.says(t, "one who is first", "SoleProxy=False OtherProxy: Cilium (interface cilium_host) translates what is sent to Services by eBPF, before Fairlead's rules see it: "+
		"leave forwarding to it with the Helm value forwarding.mode none, or turn off its replacement of kube-proxy")
	r.Preempted("")
	b.says(t, "none who is first")

	r.Faults([]forwarding.Fault{{Reason: outcome.ReasonBridgeBypassed, Message: "load br_netfilter"}, {Reason: outcome.ReasonRouteMissing, Message: "give it a route"}})
	b.says(t, "a host that is not as it should be", "Programmed=False BridgeBypassed: load br_netfilter; give it a route")
	r.Faults(nil)
	b.says(t, "a host that is")

	r.Handover("the kernel must have NFT_DUP_IPV4")
	b.says(t, "a kernel that cannot send packets twice", "HandsOver=False HandoverFailed: the kernel must have NFT_DUP_IPV4; it is tried again")
	r.Handover("")
	b.says(t, "a kernel that can")

	o := onNode()
	o.Problems = []problem.Problem{
		problem.New(problem.Object{Kind: "Node", Name: "node1"}, desired.ReasonPodsUnknown, "set clusterCIDRs"),
		problem.New(problem.Object{Kind: "Node", Name: "node1"}, desired.ReasonPodsOutside, "add 10.245.0.0/16"),
		problem.New(problem.Object{Kind: "Node", Name: "node1"}, desired.ReasonAddressUnknown, "say where"),
		problem.New(problem.Object{Kind: "Node", Name: "node2"}, desired.ReasonNodeSilent, "look after it"),
		problem.New(problem.Object{Kind: "BGPPeer", Name: "tor"}, "SecretMissing", "no Secret"),
	}
	r.Report(o)
	b.says(t, "strange pods on a node that is nowhere", "PodsKnown=False PodsOutside: add 10.245.0.0/16; set clusterCIDRs", "NodeKnown=False AddressUnknown: say where")
}

// TestTheFirstOfManyAreNamed has more unreadable objects than anybody reads of.
func TestTheFirstOfManyAreNamed(t *testing.T) {
	for _, off := range []bool{false, true} {
		r, b := following(kernel{}, off)
		r.Rivals(nil, nil)
		o := onNode()
		for i := range 20 {
			o.Cluster.Problems = append(o.Cluster.Problems, problem.New(
				problem.Object{Kind: "EndpointSlice", Namespace: "shop", Name: fmt.Sprintf("web-%02d", i)}, fromkube.ReasonUnreadable, "%s", strings.Repeat("é", 400)))
		}
		r.Report(o)
		c := b.now.Conditions[len(b.now.Conditions)-1]
		if c.Type != "Readable" || c.Status != "False" || c.Reason != "Unreadable" || b.now.Problems != 20 {
			t.Errorf("off %t: %d problems, %+v", off, b.now.Problems, c)
		}
		if !strings.HasPrefix(c.Message, "EndpointSlice/shop/web-00: éé") || len(c.Message) > 4096 {
			t.Errorf("a message of %d bytes: %s", len(c.Message), c.Message)
		}
		if off && (len(b.now.Conditions) != 1 || b.now.Mode != "none" || b.now.Tool != "" || b.now.Ports != 0) {
			t.Errorf("of a node that another proxy forwards for: %+v", b)
		}
	}
}

// TestADisturbanceIsToldForAWhile has others take rules away, twice.
func TestADisturbanceIsToldForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kernel{}
		r, b := following(k, false)
		r.Rivals(nil, nil)
		r.Report(onNode())
		b.says(t, "before")
		began := b.now.Conditions[1].LastTransitionTime
		for i := range 2 {
			k[addr.IPv4], k[addr.IPv6] = 3*(i+1), i+1
			time.Sleep(time.Minute)
			r.Report(onNode())
			b.says(t, "disturbed", fmt.Sprintf("Undisturbed=False RulesChanged: others changed the speaker's rules, last at %s: "+
				"%d chains, sets or elements on %d occasions since the speaker began; they are written again each time; "+
				"find who does it, such as a firewall that flushes all rules when it loads its own", time.Now().UTC().Format(time.RFC3339), 4*(i+1), i+1))
			if got := b.now.Conditions[1].LastTransitionTime; got.Sub(began.Time) != time.Minute {
				t.Errorf("False since %s, want the first time", got)
			}
		}
		time.Sleep(9 * time.Minute)
		r.Refresh()
		if b.now.Conditions[1].Status != "False" {
			t.Error("undisturbed, nine minutes later")
		}
		time.Sleep(2 * time.Minute)
		r.Refresh()
		b.says(t, "eleven minutes later")
	})
}

// TestClientsThatAreForgottenAreToldOf has no room to remember more clients of a family: that is
// an Event and a problem that goes again, and no condition, as all that is wanted is in place.
func TestClientsThatAreForgottenAreToldOf(t *testing.T) {
	var got events
	var b board
	k := &crowded{kernel: kernel{}, family: addr.IPv6}
	c := toldTo(&got)
	c.Mode, c.Kernel, c.Objects = "iptables", k, &b
	r := report.New(c)
	r.Rivals(nil, nil)
	for range 2 { // it is told once
		r.Report(onNode())
	}
	b.says(t, "full")
	if text := strings.Join(got, "\n"); strings.Count(text, "AffinityFull") != 1 || !strings.Contains(text, "IPv6 clients") {
		t.Errorf("the Events are\n%s\nwant one of IPv6", text)
	}
	k.family = 0
	r.Report(onNode())
	k.family = addr.IPv4
	r.Report(onNode())
	if text := strings.Join(got, "\n"); strings.Count(text, "AffinityFull") != 2 || !strings.Contains(text, "IPv4 clients") {
		t.Errorf("the Events are\n%s\nwant another of IPv4", text)
	}
}

// TestALongStoryIsAnEvent: the API server takes 1024 bytes of it.
func TestALongStoryIsAnEvent(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	r.Rivals([]string{strings.Repeat("é", 2000)}, nil)
	_, note, _ := strings.Cut(strings.Join(got, ""), ": ")
	if len(note) > 1024 || !strings.HasSuffix(note, "é…") {
		t.Errorf("a note of %d bytes: %s", len(note), note)
	}
}
