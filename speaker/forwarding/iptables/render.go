package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/forwarding/nfnetlink"
)

// Names of chains. Those that begin with ours belong to this package, and no
// other chain does; built-in chains hold one jump each.
const (
	ours         = "FAIRLEAD-"
	maxChainName = 28

	chainDispatch    = ours + "DISPATCH"    // nat: to the Service of a packet
	chainPostrouting = ours + "POSTROUTING" // nat: masquerade
	chainInput       = ours + "INPUT"       // filter
	chainForward     = ours + "FORWARD"     // filter
	chainOutput      = ours + "OUTPUT"      // filter
	chainKnown       = ours + "KNOWN"       // filter: forwarded packets of flows that are known
	chainInvalid     = ours + "INVALID"     // filter: packets that conntrack makes no sense of
	chainRefuse      = ours + "REFUSE"      // filter: destinations that nobody serves
	chainReject      = ours + "REJECT"
	chainUnserved    = ours + "UNSERVED" // nat: to REFUSE as they are, past the ports of others
	chainDrop        = ours + "DROP"
	chainServices    = ours + "SERVICES"  // root of the tree of ClusterIPs and VIPs, in nat and filter
	chainNodePorts   = ours + "NODEPORTS" // root of the tree of NodePorts, in nat and filter
	chainStamp       = ours + "STAMP"     // never entered; its comment is a digest of all other chains
)

// jump is a rule that leads from a chain of others, such as a built-in one, to ours.
type jump struct{ from, rule string }

func natJumps() []jump {
	return []jump{
		{"PREROUTING", "-j " + chainDispatch}, {"OUTPUT", "-j " + chainDispatch}, {"POSTROUTING", "-j " + chainPostrouting},
	}
}

func filterJumps() []jump {
	return []jump{{"INPUT", "-j " + chainInput}, {"FORWARD", "-j " + chainForward}, {"OUTPUT", "-j " + chainOutput}}
}

// digest is 16 characters that stand for a text in the name of a chain.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:10])
}

// style is what rendering depends on besides the ports.
type style struct {
	family addr.Family
	mark   uint32 // the one bit that asks for masquerade
}

// setName names a set of this family that is there whatever Services exist.
func (s style) setName(of string) string { return fmt.Sprintf("%s%s%d", ours, of, s.family) }

// What the fixed sets are of.
const (
	ofPods         = "PODS"
	ofEndpoints    = "ENDPOINTS"
	ofDestinations = "SERVICES"
	ofNodePorts    = "NODEPORTS"
	ofHealthPorts  = "HEALTH"
)

// fixedSets makes the sets that are there whatever Services exist, empty, by what they
// are of.
func (s style) fixedSets() map[string]*set {
	sets, socket := map[string]*set{}, &nfnetlink.Conn{}
	for of, kind := range map[string]ipset.Type{
		ofPods:         ipset.HashNet,      // where pods send from
		ofEndpoints:    ipset.HashIPPortIP, // endpoint, port, the same endpoint
		ofDestinations: ipset.HashIPPort,   // ClusterIPs, ExternalIPs and VIPs with their ports
		ofNodePorts:    ipset.BitmapPort,
		ofHealthPorts:  ipset.BitmapPort, // healthCheckNodePorts
	} {
		sets[of] = newSet(s.setName(of), kind, s.family, socket)
	}
	return sets
}

func (s style) markRule() string {
	return fmt.Sprintf("-j MARK --set-xmark %#x/%#x", s.mark, s.mark)
}

// in is the match of packets that a set has.
func (s style) in(of, directions string) string {
	return fmt.Sprintf("-m set --match-set %s %s", s.setName(of), directions)
}

const fromNode = "-m addrtype --src-type LOCAL"

// rendering is what one port puts into the kernel.
type rendering struct {
	nat, filter part
	clients     []string // names of the sets that remember the clients of an endpoint
}

// part is what one port puts into one table.
type part struct {
	chains    map[string][]string
	services  map[destination]target // by address, protocol and port
	nodePorts map[destination]target // by protocol and port
}

func (p *part) add(chain string, rules []string) string {
	if p.chains == nil {
		p.chains = map[string][]string{}
	}
	p.chains[chain] = rules
	return chain
}

func (p *part) dispatch(d destination, to target) {
	m := &p.services
	if !d.addr.IsValid() {
		m = &p.nodePorts
	}
	if *m == nil {
		*m = map[destination]target{}
	}
	(*m)[d] = to
}

// render turns one port into rules. See desired.Port for what they must do.
func (s style) render(key desired.PortKey, p desired.Port) rendering {
	r := portRenderer{style: s, key: key, port: p, id: digest(fmt.Sprintf("%v", key)), comment: comment(key)}
	r.internal()
	r.external()
	return r.out
}

// comment names the port in the rules that lead to it; the kernel takes up to
// 255 characters.
func comment(key desired.PortKey) string {
	text := key.Service.String()
	if key.Name != "" {
		text += ":" + key.Name
	}
	return text[:min(len(text), 255)]
}

type portRenderer struct {
	style
	key         desired.PortKey
	port        desired.Port
	id, comment string
	out         rendering
}

func (r *portRenderer) chain(kind string) string { return ours + kind + "-" + r.id }

func (r *portRenderer) to(chain string) target { return target{chain, r.comment} }

func (r *portRenderer) at(a netip.Addr) destination {
	return destination{a, r.key.Protocol, r.port.Port}
}

func (r *portRenderer) reachableFromOutside() bool {
	return len(r.port.VIPs)+len(r.port.ExternalIPs) > 0 || r.port.NodePort != 0
}

// internal renders what happens to packets for the ClusterIP.
func (r *portRenderer) internal() {
	if !r.port.ClusterIP.IsValid() {
		return
	}
	endpoints, kind := r.port.Cluster, "C"
	if r.port.InternalLocal {
		endpoints, kind = r.port.Local, "L"
	}
	if len(endpoints) == 0 {
		r.out.nat.dispatch(r.at(r.port.ClusterIP), r.to(chainUnserved))
		r.out.filter.dispatch(r.at(r.port.ClusterIP), r.to(r.refusal(r.port.InternalLocal)))
		return
	}
	rules := []string{fmt.Sprintf("-m set ! --match-set %s src %s", r.setName(ofPods), r.markRule())}
	if r.reachableFromOutside() { // then others use the same endpoints
		rules = append(rules, "-g "+r.endpointsChain(kind, endpoints))
	} else {
		rules = append(rules, r.shares(endpoints)...)
	}
	r.out.nat.dispatch(r.at(r.port.ClusterIP), r.to(r.out.nat.add(r.chain("I"), rules)))
}

// refusal is the verdict on packets that no endpoint of the set can take. They
// are dropped rather than rejected where another node could have served them:
// the sender's retry may go there.
func (r *portRenderer) refusal(local bool) string {
	if local && len(r.port.Local) == 0 && r.port.Anywhere {
		return chainDrop
	}
	return chainReject
}

// external renders what happens to packets for VIPs, ExternalIPs and the NodePort.
func (r *portRenderer) external() {
	if !r.reachableFromOutside() {
		return
	}
	p := r.port
	served := len(p.Cluster) > 0 || p.ExternalLocal && len(p.Local) > 0
	refused := len(p.Cluster) == 0 || p.ExternalLocal && len(p.Local) == 0
	if served {
		chain := r.out.nat.add(r.chain("X"), r.externalRules())
		r.unrestricted(&r.out.nat, chain)
		r.vips(&r.out.nat, chain, "-j ACCEPT")
	} else {
		r.unrestricted(&r.out.nat, chainUnserved)
		for _, a := range p.VIPs {
			r.out.nat.dispatch(r.at(a), r.to(chainUnserved))
		}
	}
	if refused {
		verdict := r.refusal(p.ExternalLocal)
		r.unrestricted(&r.out.filter, verdict)
		r.vips(&r.out.filter, verdict, "-j DROP")
	} else if p.Restricted {
		// Whoever may use the VIP got another destination in nat already.
		for _, a := range p.VIPs {
			r.out.filter.dispatch(r.at(a), r.to(chainDrop))
		}
	}
}

// unrestricted sends packets for the ExternalIPs and the NodePort to chain.
func (r *portRenderer) unrestricted(table *part, chain string) {
	for _, a := range r.port.ExternalIPs {
		table.dispatch(r.at(a), r.to(chain))
	}
	if r.port.NodePort != 0 {
		table.dispatch(r.atNodePort(), r.to(chain))
	}
}

func (r *portRenderer) atNodePort() destination {
	return destination{protocol: r.key.Protocol, port: r.port.NodePort}
}

// vips sends packets for the VIPs to chain if their source is allowed, and lets
// others meet the rule otherwise.
func (r *portRenderer) vips(table *part, chain, otherwise string) {
	if len(r.port.VIPs) == 0 {
		return
	}
	if r.port.Restricted {
		var rules []string
		for _, source := range r.port.SourceRanges {
			rules = append(rules, fmt.Sprintf("-s %s -g %s", source, chain))
		}
		chain = table.add(r.chain("V"), append(rules, otherwise))
	}
	for _, a := range r.port.VIPs {
		table.dispatch(r.at(a), r.to(chain))
	}
}

// externalRules end in a verdict: no packet for a port may fall out to the NodePort
// of another one.
func (r *portRenderer) externalRules() []string {
	cluster := "-j ACCEPT"
	if len(r.port.Cluster) > 0 {
		cluster = "-g " + r.endpointsChain("C", r.port.Cluster)
	}
	if !r.port.ExternalLocal {
		return []string{r.markRule(), cluster}
	}
	rules := []string{
		r.in(ofPods, "src") + " " + cluster,
		fromNode + " " + r.markRule(),
		fromNode + " " + cluster,
	}
	if len(r.port.Local) > 0 {
		return append(rules, "-g "+r.endpointsChain("L", r.port.Local))
	}
	return append(rules, "-j ACCEPT")
}

func (r *portRenderer) endpointsChain(kind string, endpoints []netip.AddrPort) string {
	return r.out.nat.add(r.chain(kind), r.shares(endpoints))
}

// shares gives each endpoint the same share of new flows: the first of n is
// taken with probability 1/n, the next with 1/(n-1), the last always. With
// affinity a client that an endpoint remembers goes there again.
func (r *portRenderer) shares(endpoints []netip.AddrPort) []string {
	rules := make([]string, 0, len(endpoints))
	verdicts := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		verdicts[i] = r.dnat(endpoint)
		if r.port.Affinity > 0 {
			chain, clients := r.remembering(endpoint)
			verdicts[i] = "-g " + chain
			rules = append(rules, fmt.Sprintf("-m set --match-set %s src %s", clients, verdicts[i]))
		}
	}
	for i, verdict := range verdicts {
		if left := len(verdicts) - i; left > 1 {
			verdict = fmt.Sprintf("-m statistic --mode random --probability %.10f %s", 1/float64(left), verdict)
		}
		rules = append(rules, verdict)
	}
	return rules
}

func (r *portRenderer) dnat(to netip.AddrPort) string {
	return fmt.Sprintf("-p %s -j DNAT --to-destination %s", strings.ToLower(string(r.key.Protocol)), to)
}

// remembering is the chain that sends a client to an endpoint and has it remembered
// from now on, and the set of the clients that are. Cluster and Local endpoints
// share them, so that a client keeps its endpoint whichever way it came.
func (r *portRenderer) remembering(endpoint netip.AddrPort) (chain, clients string) {
	id := digest(fmt.Sprintf("%v %s", r.key, endpoint))
	chain, clients = ours+"E-"+id, fmt.Sprintf("%sC%d-%s", ours, r.family, id)
	if !slices.Contains(r.out.clients, clients) {
		r.out.clients = append(r.out.clients, clients)
	}
	return r.out.nat.add(chain, []string{
		fmt.Sprintf("-j SET --add-set %s src --exist --timeout %d", clients, max(int(r.port.Affinity.Seconds()), 1)),
		r.dnat(endpoint),
	}), clients
}
