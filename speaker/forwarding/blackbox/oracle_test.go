package blackbox_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// question is one request.
type question struct {
	protocol view.Protocol
	from     netip.Addr
	to       netip.AddrPort
}

// reply is what must come of a question: an answer of one of several endpoints,
// or ErrRefused or ErrSilence.
type reply struct {
	err     error
	answers map[answer]bool
	why     string
}

// answer is who answers where, and whom he sees.
type answer struct {
	server string
	port   uint16
	masked bool // he sees an address of the node, else the sender's own
}

func (o reply) String() string {
	if o.err != nil {
		return fmt.Sprintf("%v (%s)", o.err, o.why)
	}
	var all []string
	for a := range o.answers {
		seen := "the sender"
		if a.masked {
			seen = "the node"
		}
		all = append(all, fmt.Sprintf("%s:%d sees %s", a.server, a.port, seen))
	}
	slices.Sort(all)
	return fmt.Sprintf("%s (%s)", strings.Join(all, " or "), o.why)
}

// oracle says what must come of requests that reach the node, from the wanted
// state alone. It is written after the comment of desired.Port and shares nothing
// with the backends.
type oracle struct {
	blackbox.Addresses
	want desired.Forwarding
}

// verdict is what must come of a question; false if that is not the backend's
// doing: the answer takes a way that does not lead back through the node.
func (o oracle) verdict(q question) (reply, bool) {
	service, ok := o.service(q)
	if !ok {
		return o.untouched(q), true
	}
	set, masked, refusal := o.treatment(service, q)
	if refusal.err != nil {
		return refusal, true
	}
	answers := map[answer]bool{}
	for _, e := range set {
		if !masked && e.Addr() != q.from && o.behindOther(q.from) && o.behindOther(e.Addr()) {
			return reply{}, false
		}
		// The node does not masquerade what ends at itself.
		own := o.host(e.Addr()) == "node" && o.host(q.from) != "node"
		answers[answer{o.host(e.Addr()), e.Port(), !own && (masked || e.Addr() == q.from)}] = true
	}
	return reply{answers: answers, why: refusal.why}, true
}

// service is the port that a request is for, by the kind of destination.
type service struct {
	desired.Port
	key  desired.PortKey
	kind string
}

// service finds who has the destination: addresses of Services come before
// NodePorts, ClusterIPs and VIPs before ExternalIPs, who serves strangers before who does not, and the
// lowest key before others.
func (o oracle) service(q question) (service, bool) {
	var keys []desired.PortKey
	for key := range maps.Keys(o.want.Ports) {
		if key.Family == o.Family && key.Protocol == q.protocol {
			keys = append(keys, key)
		}
	}
	serves := func(key desired.PortKey) int {
		if p := o.want.Ports[key]; p.ExternalLocal && len(p.Local) > 0 || !p.ExternalLocal && len(p.Cluster) > 0 {
			return 0
		}
		return 1
	}
	slices.SortFunc(keys, func(a, b desired.PortKey) int { return cmp.Or(cmp.Compare(serves(a), serves(b)), a.Compare(b)) })
	for _, kind := range []string{"given", "guest", "externalIP"} {
		for _, key := range keys {
			p := o.want.Ports[key]
			switch {
			case p.Port != q.to.Port():
			case kind == "externalIP" && slices.Contains(p.ExternalIPs, q.to.Addr()):
				return service{p, key, "externalIP"}, true
			case kind == "externalIP" || (kind == "guest") != slices.Contains(p.Guest, q.to.Addr()):
			case slices.Contains(p.VIPs, q.to.Addr()):
				return service{p, key, "vip"}, true
			case p.ClusterIP == q.to.Addr():
				return service{p, key, "clusterIP"}, true
			}
		}
	}
	if a := q.to.Addr(); a.IsLoopback() && !within(o.want.Loopback, a) ||
		!a.IsLoopback() && (!within(o.want.NodePorts, a) || !slices.Contains(o.OfNode, a)) {
		return service{}, false
	}
	for _, key := range keys {
		if p := o.want.Ports[key]; p.NodePort != 0 && p.NodePort == q.to.Port() {
			return service{p, key, "nodePort"}, true
		}
	}
	return service{}, false
}

// treatment is the set of endpoints that serve a request and whether it is
// masqueraded, or the refusal.
func (o oracle) treatment(s service, q question) (set []netip.AddrPort, masked bool, refusal reply) {
	pod := o.pod(s.Port, q.from)
	node := o.host(q.from) == "node"
	local := false
	switch {
	case s.kind == "clusterIP":
		local, masked = s.InternalLocal, !pod && o.podsKnown(s.Port) || s.MasqueradeAll
	case s.kind == "vip" && s.Restricted && !within(s.SourceRanges, q.from):
		return nil, false, reply{err: netlab.ErrSilence, why: fmt.Sprintf("the VIP of %s does not admit the sender", s.key.Service.Name)}
	case !s.ExternalLocal:
		masked = true
	case pod: // the short circuits
	case node:
		masked = true
	default:
		local = true
	}
	set = s.Cluster
	if local {
		set = s.Local
	}
	why := reply{why: fmt.Sprintf("%s of %s", s.kind, s.key.Service.Name)}
	switch {
	case len(set) > 0:
	case local && s.Anywhere:
		why.err = netlab.ErrSilence
	default:
		why.err = netlab.ErrRefused
	}
	return set, masked, why
}

// pod tells whether a port takes the sender for a pod.
func (o oracle) pod(p desired.Port, from netip.Addr) bool {
	if p.PodLinks == (desired.Links{}) {
		return within(o.want.Pods, from)
	}
	by := o.arrivesBy(from)
	return by == p.PodLinks.Name || p.PodLinks.Prefix && strings.HasPrefix(by, p.PodLinks.Name)
}

// podsKnown tells whether a port can take anybody for a pod.
func (o oracle) podsKnown(p desired.Port) bool {
	return p.PodLinks != (desired.Links{}) ||
		slices.ContainsFunc(o.want.Pods, func(p netip.Prefix) bool { return addr.FamilyOf(p.Addr()) == o.Family })
}

// arrivesBy is the interface of the node by which packets from an address come.
func (o oracle) arrivesBy(from netip.Addr) string {
	switch host := o.host(from); host {
	case "node":
		return ""
	case "p1", "p2":
		return host
	case "p3", "other":
		return "peer"
	default:
		return "lan"
	}
}

// untouched is what comes of a request that is for no Service.
func (o oracle) untouched(q question) reply {
	to := q.to.Addr()
	host := o.host(to)
	passes := host != "node" && (host == "" || host != o.host(q.from))
	switch {
	case passes && o.clusterIP(to):
		return reply{err: netlab.ErrRefused, why: "a port that the ClusterIP does not have"}
	case passes && (o.announced(to) || within(o.want.Refused, to)):
		return reply{err: netlab.ErrRefused, why: "a port that the VIP does not have"}
	case passes && within(o.want.ServiceRanges, to):
		return reply{err: netlab.ErrSilence, why: "an address of ClusterIPs that no Service has"}
	case host == "": // goes to the default router, which is none
		return reply{err: netlab.ErrSilence, why: "of no Service"}
	case !slices.Contains(listening(host), q.to.Port()):
		return reply{err: netlab.ErrRefused, why: "of no Service"}
	default:
		return reply{answers: map[answer]bool{{host, q.to.Port(), false}: true}, why: "of no Service"}
	}
}

// clusterIP tells whether a Service has the address as its ClusterIP.
func (o oracle) clusterIP(a netip.Addr) bool {
	for key, p := range o.want.Ports {
		if key.Family == o.Family && p.ClusterIP == a {
			return true
		}
	}
	return false
}

// announced tells whether nodes announce the address as a VIP.
func (o oracle) announced(a netip.Addr) bool {
	for key, p := range o.want.Ports {
		if key.Family == o.Family && slices.Contains(p.Announced, a) {
			return true
		}
	}
	return false
}

// host is whose address it is. Nobody but the node asks about loopback ones.
func (o oracle) host(a netip.Addr) string {
	if slices.Contains(o.OfNode, a) || a.IsLoopback() {
		return "node"
	}
	return map[netip.Addr]string{o.Client: "client", o.Other: "other", o.P1: "p1", o.P2: "p2", o.P3: "p3"}[a]
}

func listening(host string) []uint16 {
	switch host {
	case "p1", "p2", "p3":
		return []uint16{blackbox.ServePort, blackbox.SecondPort}
	default:
		return []uint16{blackbox.HostPort}
	}
}

// behindOther tells whether packets between two such addresses pass the other
// node alone.
func (o oracle) behindOther(a netip.Addr) bool { return a == o.Other || a == o.P3 }

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// sender is a host that asks from one of its addresses.
type sender struct {
	name string
	host *netlab.Host
	from netip.Addr
}

// senders are all kinds of them, in one family.
func (c *cluster) senders(f addr.Family) []sender {
	a := blackbox.Plan(f)
	return []sender{
		{"client", c.Client, a.Client},
		{"crowd", c.Client, blackbox.Nth(a.Crowd, 7)},
		{"node", c.Node, a.Node},
		{"other", c.Other, a.Other},
		{"p1", c.P1, a.P1},
		{"p2", c.P2, a.P2},
		{"p3", c.P3, a.P3},
		{"node", c.Node, a.Bound[0]}, // as the kernel chooses who asks itself there
	}
}

// expect asks and returns how the outcome differs from what the oracle says.
func (c *cluster) expect(s sender, protocol view.Protocol, to netip.AddrPort, want desired.Forwarding) error {
	o := oracle{blackbox.Plan(addr.FamilyOf(to.Addr())), want}
	expected, ours := o.verdict(question{protocol, s.from, to})
	if !ours {
		return nil
	}
	timeout := answerIn
	if errors.Is(expected.err, netlab.ErrSilence) {
		timeout = silenceAfter
	}
	got, err := ask(s, protocol, to, timeout)
	var seen answer
	if err == nil {
		seen = answer{got.Server, got.Port, got.Seen != s.from.String()}
		if seen.masked && !slices.Contains(o.OfNode, netip.MustParseAddr(got.Seen)) {
			err = fmt.Errorf("%s sees %s", got.Server, got.Seen)
		}
		if s.name == "node" && (got.Server == "client" || got.Server == "node") {
			seen.masked = expected.answers[answer{got.Server, got.Port, true}] // by the address that it has anyway
		}
	}
	if errors.Is(err, expected.err) && (err != nil || expected.answers[seen]) {
		return nil
	}
	return fmt.Errorf("%s: %s (%s) -> %s: %s, want %s", protocol, s.name, s.from, to, said(got, err), expected)
}

// said is what came of a question.
func said(got netlab.Answer, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s:%d sees %s", got.Server, got.Port, got.Seen)
}

// ask asks on a new flow.
func ask(s sender, protocol view.Protocol, to netip.AddrPort, timeout time.Duration) (netlab.Answer, error) {
	flow, err := s.dial(protocol, to, timeout)
	if err != nil {
		return netlab.Answer{}, err
	}
	defer flow.Close()
	return flow.Ask()
}

// askOnce is ask where a question that is lost must not be sent again.
func askOnce(s sender, protocol view.Protocol, to netip.AddrPort, timeout time.Duration) (netlab.Answer, error) {
	flow, err := s.dial(protocol, to, timeout)
	if err != nil {
		return netlab.Answer{}, err
	}
	defer flow.Close()
	return flow.Once().Ask()
}

// dial opens a flow from the sender's address.
func (s sender) dial(protocol view.Protocol, to netip.AddrPort, timeout time.Duration) (*netlab.Conn, error) {
	return s.host.Dial(strings.ToLower(string(protocol)), netip.AddrPortFrom(s.from, 0), to, timeout)
}
