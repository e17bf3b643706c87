package nftables

import (
	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/desired"
)

// treatment is what becomes of the source of a flow. That is decided when it leaves, by the set in which the destination
// is that the client had sent it to, which conntrack knows. No mark tells it on the way: each bit of that is others'.
type treatment uint8

const (
	keep          treatment = iota // unless an endpoint reaches itself
	always                         // masquerade
	unlessPod                      // masquerade unless a pod sends
	fromNodeAlone                  // masquerade what this node sends and no pod
	byLink                         // as one of these two, where links tell pods: what a chain of its own says
)

// The chains of what is masqueraded, and of what keeps its source unless an endpoint reaches itself.
const (
	masquerading = "other-source"
	hairpin      = "hairpin"
)

// source is what becomes of the source of what goes to a destination of the class.
func (c class) source() treatment {
	return [...]treatment{plain: keep, internal: unlessPod, masked: always, outside: fromNodeAlone}[c.entry]
}

// linked tells whether links have a say in it.
func (c class) linked() bool { return c.pods != (desired.Links{}) && c.source() > always }

// bySource are the chains that masquerade.
func (l *layout) bySource() []chain {
	at := hook{Kind: nft.ChainTypeNAT, Number: *nft.ChainHookPostrouting, Priority: *nft.ChainPriorityNATSource}
	rest := rule{Says: "an endpoint that reaches itself", Exprs: goTo(hairpin)}
	all := []chain{
		{Name: "postrouting", At: at, Rules: []rule{{Says: "what was translated", Exprs: flat(ifDNAT(), goTo("translated"))}}},
		{Name: "translated", Rules: []rule{
			{Says: "of TCP", Exprs: flat(ifProtocol(unix.IPPROTO_TCP), goTo("translated-tcp"))},
			{Says: "of UDP", Exprs: flat(ifProtocol(unix.IPPROTO_UDP), goTo("translated-udp"))},
			{Says: "of SCTP", Exprs: flat(ifProtocol(unix.IPPROTO_SCTP), goTo("translated-sctp"))},
			rest,
		}},
		{Name: masquerading, Rules: []rule{
			{Says: "from the address that the route asks for", Exprs: flat(l.destinationAddress(0), l.lookup(sources, endpointAt), l.snat(endpointAt))},
			{Says: "from that of the link", Exprs: masquerade()},
		}},
		{Name: hairpin, Rules: []rule{{Says: "masquerade an endpoint that reaches itself", Exprs: flat(l.toItself(), masquerade())}}},
	}
	for _, p := range []struct {
		name   string
		number byte
	}{{"tcp", unix.IPPROTO_TCP}, {"udp", unix.IPPROTO_UDP}, {"sctp", unix.IPPROTO_SCTP}} {
		all = append(all, l.translated("translated-"+p.name, p.number, rest)...)
	}
	return all
}

// translated are the chains for what a Service has translated of one protocol. Each rule that loads the port that the
// client had sent to says the protocol again, since nft until 1.0.6 reads no such rule without.
func (l *layout) translated(name string, number byte, rest rule) []chain {
	only := func(says string, exprs ...[]expr.Any) rule {
		return rule{Says: says, Exprs: flat(ifProtocol(number), flat(exprs...))}
	}
	return []chain{
		{Name: name, Rules: []rule{
			only("masquerade what was sent to a Service", l.ifSentTo(byAddress, always), goTo(masquerading)),
			only("or to a ClusterIP, unless a pod sends", l.ifNoPod(desired.Links{}), l.ifSentTo(byAddress, unlessPod), goTo(masquerading)),
			only("or by this node, under policy Local", l.byNode(), l.ifSentTo(byAddress, fromNodeAlone), goTo(masquerading)),
			only("where links tell pods", l.sentTo(byAddress), l.follow(linked)),
			// What a Service has by its address is no NodePort's.
			only("what was sent to a NodePort", l.sentToNode(), l.toServer(), l.sentTo(byAddress), l.findNone(byAddress), goTo(name+"-node")),
			rest,
		}},
		{Name: name + "-node", Rules: []rule{
			only("masquerade what was sent to a NodePort", l.ifSentTo(byNodePort, always), goTo(masquerading)),
			only("or by this node, under policy Local", l.byNode(), l.ifSentTo(byNodePort, fromNodeAlone), goTo(masquerading)),
			only("where links tell pods", l.sentTo(byNodePort), l.follow(linkedPorts)),
			rest,
		}},
	}
}

// bySourceLink is the chain that masquerades for a class in which links tell pods.
func (l *layout) bySourceLink(c class) chain {
	name, who := "unless-pod", []expr.Any(nil)
	if c.source() == fromNodeAlone {
		name, who = "from-node", fromNode()
	}
	return chain{Name: c.telling() + name, Rules: []rule{
		{Says: "masquerade " + name, Exprs: flat(l.ifNoPod(c.pods), who, goTo(masquerading))},
		{Says: "an endpoint that reaches itself", Exprs: goTo(hairpin)},
	}}
}

// byNode ends the rule unless this node sends, and no pod does.
func (l *layout) byNode() []expr.Any { return flat(l.source(0), l.find(pods, true), fromNode()) }

// ifSentTo ends the rule unless the client sent to a destination whose senders are treated like this.
func (l *layout) ifSentTo(w matchKind, as treatment) []expr.Any {
	return flat(l.sentTo(w), l.find(w.known(as), false))
}

// sentTo loads the destination that the client sent the first packet of the flow to, whatever it is now.
func (l *layout) sentTo(w matchKind) []expr.Any {
	port := func(at uint32) []expr.Any {
		return append(protocol(at), &expr.Ct{Register: reg(at + 1), Key: expr.CtKeyPROTODST})
	}
	if w == byNodePort {
		return port(0)
	}
	return flat(sentToAddress(), port(l.words()))
}

// sentToNode ends the rule unless the client sent to where NodePorts answer.
func (l *layout) sentToNode() []expr.Any { return flat(sentToAddress(), l.find(nodes, false)) }

// sentToAddress loads the address that the client sent to. The direction, 0, is the original one.
func sentToAddress() []expr.Any {
	return []expr.Any{&expr.Ct{Register: reg(0), Key: expr.CtKeyDST}}
}
