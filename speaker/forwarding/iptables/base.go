package iptables

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// surroundings are what the chains that are always there depend on, of one family.
type surroundings struct {
	nodePorts, loopback []netip.Prefix // where NodePorts answer
	health              []netip.Prefix // where healthCheckNodePorts do
	echo                netip.Addr     // answers pings of VIPs; invalid: they are refused
	own                 netip.Addr     // of the node, which refuses datagrams to VIPs; invalid: it has none
	discard             uint16         // the port where it does
	sources             []desired.Source
	guard               bool // of loopback addresses
	pods                bool // it is known where they send from
}

func surroundingsOf(family addr.Family, want desired.Forwarding) surroundings {
	mine := func(prefixes []netip.Prefix) []netip.Prefix {
		own := slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return addr.FamilyOf(p.Addr()) != family })
		slices.SortFunc(own, netip.Prefix.Compare)
		return slices.Compact(own)
	}
	first := func(some []netip.Addr) netip.Addr {
		if at := slices.IndexFunc(some, func(a netip.Addr) bool { return addr.FamilyOf(a) == family }); at >= 0 {
			return some[at]
		}
		return netip.Addr{}
	}
	sources := slices.DeleteFunc(slices.Clone(want.Sources), func(s desired.Source) bool { return addr.FamilyOf(s.To.Addr()) != family })
	return surroundings{
		sources: sources, echo: first(want.Echo), own: first(want.Own), nodePorts: mine(want.NodePorts), loopback: mine(want.Loopback), health: mine(want.HealthPrefixes()),
		guard: want.Guard && family == addr.IPv4, pods: want.PodsKnown(family),
	}
}

func (s surroundings) equal(o surroundings) bool {
	return slices.Equal(s.nodePorts, o.nodePorts) && slices.Equal(s.loopback, o.loopback) && slices.Equal(s.health, o.health) &&
		slices.Equal(s.sources, o.sources) && s.echo == o.echo && s.own == o.own && s.discard == o.discard && s.guard == o.guard && s.pods == o.pods
}

// natBase renders the chains of the nat table that are there whatever Services exist.
//
// The masquerade mark is set before the Service of a packet is looked up, and cleared for packets that match none
// and where policy is Local: to set it in the chain of each port would take two rules a port, a quarter of the
// table, and the time of a repair, and of each change with legacy iptables, grows with the rules. A packet that
// others marked with the same bit goes another way, and has it again unless it is for a Service.
func (s style) natBase(around surroundings) map[string][]string {
	unmark := fmt.Sprintf("-j MARK --set-xmark 0x0/%#x", s.mark)
	var rest []string // of what is for the own addresses, and for no port of a Service
	refuseUDP := []string{unmark, "-j ACCEPT"}
	if around.echo.IsValid() {
		// The first packet of a flow of ICMP is a request.
		rest = append(rest, fmt.Sprintf("-p %s %s -j DNAT --to-destination %s", s.icmp(), s.in(ofPinged, "dst"), around.echo))
	}
	if around.own.IsValid() {
		stray := " " + s.notIn(ofDestinations, "dst,dst") + notLocal + "-g " + chainRefuseUDP
		rest = append(rest, "-p udp "+s.in(ofVIPs, "dst")+stray, "-p udp "+s.in(ofRefused, "dst")+stray)
		refuseUDP = []string{unmark, fmt.Sprintf("-p udp -j DNAT --to-destination %s", netip.AddrPortFrom(around.own, around.discard))}
	}
	return map[string][]string{
		chainDispatch:   append([]string{s.marked() + "-g " + chainOthersMark, "-j " + chainMarkMasq, "-j " + chainLookup, "-j " + chainClearMasq}, rest...),
		chainOthersMark: append([]string{s.perhapsPods(around) + " -j " + chainClearMasq, "-j " + chainLookup, s.markRule()}, rest...),
		chainLookup:     s.dispatchRules(around, "-j "+chainServices, "-j "+chainNodePorts),
		chainPostrouting: append([]string{
			// An endpoint that reaches itself by a Service must not see its own address as the client's.
			"-m conntrack --ctstate DNAT " + s.in(ofEndpoints, "dst,dst,src") + " " + s.markRule(),
			fmt.Sprintf("-m mark ! --mark %#x/%#x -j RETURN", s.mark, s.mark),
			// Others mark with the same bit, as wg-quick does by 0xca6c, and translate, as to host ports.
			"-m conntrack ! --ctstate DNAT -j RETURN",
			s.notIn(ofEndpoints, "dst,dst,dst") + " -j RETURN",
			// Cleared, lest a tunnel masquerade the packet that carries this one.
			unmark,
		}, masquerade(around.sources)...),
		// What pods send to a ClusterIP keeps its source.
		chainMarkMasq:  {s.perhapsPods(around) + " -j RETURN", s.markRule()},
		chainClearMasq: {unmark},
		chainSkipNAT:   {unmark, "-j ACCEPT"},
		chainRefuseUDP: refuseUDP,
	}
}

// masquerade puts an address of this node in the place of the sender's.
func masquerade(sources []desired.Source) []string {
	const byInterface = "-j MASQUERADE --random-fully"
	rules := make([]string, 0, len(sources)+1)
	for _, s := range sources {
		to, with := fmt.Sprintf("-d %s ", s.To), byInterface
		if s.To.Bits() == 0 {
			to = ""
		}
		if s.From.IsValid() {
			with = fmt.Sprintf("-j SNAT --to-source %s --random-fully", s.From)
		}
		rules = append(rules, to+with)
	}
	return append(rules, byInterface)
}

// marked matches packets with the bit that asks for masquerade, whichever program set it.
func (s style) marked() string { return fmt.Sprintf("-m mark --mark %#x/%#x ", s.mark, s.mark) }

const notLocal = " -m addrtype ! --dst-type LOCAL "

// discard is the port of RFC 863, to which datagrams are translated that INPUT refuses. What FORWARD refuses, the kernel
// has answered with a redirect where it would leave by the interface where it came in, and that takes from the
// sender, however rare its datagrams, what it may have of ICMP errors. Where a process of the node serves a Service there, as
// relays of Wake-on-LAN do, it is the next port.
const discard = 9

// perhapsPods matches what pods send to a ClusterIP; while the addresses of pods are not known, all packets to
// one that do not come from a loopback address.
func (s style) perhapsPods(around surroundings) string {
	if around.pods {
		return s.in(ofClusterIPs, "dst") + " " + s.in(ofPods, "src")
	}
	return fmt.Sprintf("! -s %s %s", s.loopback(), s.in(ofClusterIPs, "dst"))
}

// filterBase renders the chains of the filter table that are always there. They are done
// first with packets of known flows, which are nearly all: every match costs each of them.
// What is forwarded for a Service, also before the first answer, meets one match, which asks two things of its connection:
// it is confirmed once its first packet has passed, and the mark is on none but that one, since
// it alone goes through nat. Only the guard comes before, since a
// forged packet may seem to belong to such a flow. Then comes what is left of the translated ones, the
// first packets: what has been translated has a destination that serves, and is not refused.
func (s style) filterBase(around surroundings) map[string][]string {
	refuse := "-m conntrack --ctstate NEW -j " + chainNoEndpoints
	reject := "icmp-port-unreachable"
	if s.family == addr.IPv6 {
		reject = "icmp6-port-unreachable"
	}
	invalid := "-m conntrack --ctstate INVALID -j " + chainInvalid
	stray := "-m conntrack --ctstate NEW -j " + chainUnknownService
	const known = "-m conntrack --ctstate RELATED,ESTABLISHED "
	const translated = "-m conntrack --ctstate DNAT -j RETURN"
	input := append(s.admitHealth(around), known+"-j RETURN", invalid, refuse)
	if around.own.IsValid() {
		input = append(input, fmt.Sprintf("-p udp -d %s -m udp --dport %d -m conntrack --ctstate DNAT -j %s", addr.HostPrefix(around.own), around.discard, chainReject))
	}
	forward := []string{
		"-m conntrack --ctstate DNAT --ctstatus CONFIRMED -j ACCEPT",
		// Also of flows that are for no Service: hosts that admit one direction rely on it.
		known + "-j ACCEPT",
		s.marked() + "-m conntrack --ctstate DNAT " + s.in(ofEndpoints, "dst,dst,dst") + " -j ACCEPT",
		translated,
		"-m conntrack --ctstate INVALID,UNTRACKED -j " + chainInvalid,
		refuse,
		stray,
	}
	if around.guard {
		from := fmt.Sprintf("-s %s ! -i lo -j DROP", addr.Loopback())
		// What is translated to a loopback address, as an answer to this host is, passes. Of
		// other flows that are there, this host alone sends the packets.
		to := fmt.Sprintf("-d %s ! -i lo -m conntrack ! --ctstate SNAT,DNAT -j DROP", addr.Loopback())
		input, forward = slices.Insert(input, 0, from, to), slices.Insert(forward, 0, from)
	}
	return map[string][]string{
		chainNoEndpoints: s.dispatchRules(around, "-j "+chainServices, "-j "+chainNodePorts),
		chainInvalid: append([]string{
			// No machine but this one has the address: it would come back.
			s.in(ofVIPs, "dst") + notLocal + "-j DROP",
			s.in(ofRefused, "dst") + notLocal + "-j DROP",
			// The kernel never tracks neighbour discovery and MLD, which anybody can send from elsewhere.
			"-m conntrack --ctstate UNTRACKED -j RETURN",
			// Without a SYN before it this begins half a flow of others, and a reset does no harm.
			"-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK -j RETURN",
			"-p tcp -m tcp --tcp-flags RST RST -j RETURN",
			s.in(ofEndpoints, "src,src,src") + " -j DROP",
		},
			s.dispatchRules(around, s.in(ofDestinations, "dst,dst")+" -j DROP", s.in(ofNodePorts, "dst")+" -j DROP")...),
		chainInput: input,
		// The kernel sends a redirect for what leaves by the interface where it came in before it asks FORWARD,
		// which refuses it.
		chainOutput:  {known + "-j RETURN", translated, s.redirect() + " -j DROP", invalid, refuse, stray},
		chainForward: forward,
		chainUnknownService: {
			// To a port that the ClusterIP has goes what began before the Service was there: it
			// is not translated until its flow is forgotten, and must not end.
			s.in(ofClusterIPs, "dst") + " " + s.notIn(ofDestinations, "dst,dst") + notLocal + "-g " + chainReject,
			s.in(ofVIPs, "dst") + " " + s.notIn(ofDestinations, "dst,dst") + notLocal + "-g " + chainReject,
			s.in(ofRefused, "dst") + " " + s.notIn(ofDestinations, "dst,dst") + notLocal + "-g " + chainReject,
			s.in(ofRanges, "dst") + notLocal + "-j DROP",
		},
		// The kernel limits the rate of ICMP errors to a sender, and not that of resets.
		chainReject: {"-p tcp -j REJECT --reject-with tcp-reset", "-j REJECT --reject-with " + reject},
		chainDrop:   {"-j DROP"},
	}
}

// icmp is the protocol of pings.
func (s style) icmp() string {
	if s.family == addr.IPv6 {
		return "ipv6-icmp"
	}
	return "icmp"
}

// redirect matches ICMP redirects.
func (s style) redirect() string {
	if s.family == addr.IPv6 {
		return "-p ipv6-icmp -m icmp6 --icmpv6-type 137"
	}
	return "-p icmp -m icmp --icmp-type 5"
}

// admitHealth admits health checks of Services, on the addresses that answer them.
func (s style) admitHealth(around surroundings) []string {
	admit := "-p tcp " + s.in(ofHealthPorts, "dst") + " -j ACCEPT"
	var rules []string
	for _, p := range around.health {
		if p.Bits() == 0 { // of the whole family
			return []string{admit}
		}
		rules = append(rules, fmt.Sprintf("-d %s %s", p, admit))
	}
	return rules
}

// dispatchRules does one thing to packets that may be for a Service's own addresses,
// another to those for the node's addresses on which NodePorts answer. Of a packet to a
// loopback address the kernel knows in OUTPUT alone where it goes out: what arrives is
// never taken for a NodePort's.
func (s style) dispatchRules(around surroundings, services, nodes string) []string {
	rules := []string{services}
	for _, p := range around.loopback {
		rules = append(rules, fmt.Sprintf("-d %s -o lo -m addrtype --dst-type LOCAL %s", p, nodes))
	}
	for _, p := range around.nodePorts {
		if !p.IsSingleIP() {
			rules = append(rules, fmt.Sprintf("-d %s -j RETURN", s.loopback()))
			break
		}
	}
	for _, p := range around.nodePorts {
		rules = append(rules, fmt.Sprintf("-d %s -m addrtype --dst-type LOCAL %s", p, nodes))
	}
	return rules
}

// loopback is where a host talks to itself.
func (s style) loopback() netip.Prefix {
	if s.family == addr.IPv6 {
		return addr.HostPrefix(netip.IPv6Loopback())
	}
	return addr.Loopback()
}
