package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

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
	r := portRenderer{style: s, key: key, port: p, id: digest(fmt.Sprintf("%v", key))}
	if !s.legacyLayout {
		r.comment = key.Label(255) // which is what the kernel takes
	}
	r.internal()
	r.external()
	return r.out
}

type portRenderer struct {
	style
	key         desired.PortKey
	port        desired.Port
	id, comment string
	out         rendering
}

func (r *portRenderer) chain(kind string) string { return ours + kind + "-" + r.id }

// dispatch leads from a destination to a chain. Those of the port itself name it in their first
// rule: a comment is longer than all else in a rule, and a port has several destinations.
func (r *portRenderer) dispatch(table *part, d destination, chain string) {
	to := target{chain: chain, comment: r.name(table), rank: r.port.Rank(d.addr)}
	if strings.HasSuffix(chain, r.id) {
		to.comment = ""
	}
	table.dispatch(d, to)
}

// name is the comment in a table: none in filter, where it would have nf_tables wait until what was taken away last is destroyed. What
// is refused there has its name in nat, by the same destination.
func (r *portRenderer) name(table *part) string {
	if table == &r.out.filter {
		return ""
	}
	return r.comment
}

// entrance adds a chain of the port to which destinations lead.
func (r *portRenderer) entrance(table *part, kind string, rules []string) string {
	if name := r.name(table); name != "" {
		rules[0] = fmt.Sprintf("-m comment --comment %q %s", name, rules[0])
	}
	return table.add(r.chain(kind), rules)
}

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
	endpoints := r.endpoints(r.port.InternalLocal)
	if len(endpoints) == 0 {
		r.dispatch(&r.out.nat, r.at(r.port.ClusterIP), chainSkipNAT)
		r.dispatch(&r.out.filter, r.at(r.port.ClusterIP), r.refusal(r.port.InternalLocal))
		return
	}
	marks := r.clusterIPMarks()
	if r.legacyLayout && len(marks) == 0 && len(endpoints) <= listed && r.port.Affinity == 0 && !r.reachableFromOutside() {
		r.out.nat.dispatch(r.at(r.port.ClusterIP), target{
			verdicts: strings.Join(r.sharesOf("", endpoints), "\n"), rank: r.port.Rank(r.port.ClusterIP),
		})
		return
	}
	rules := append(marks, r.shares(endpoints)...)
	r.dispatch(&r.out.nat, r.at(r.port.ClusterIP), r.entrance(&r.out.nat, kindInternal, rules))
}

// clusterIPMarks are the rules that ask for masquerade of packets for the ClusterIP where
// addresses do not tell: usually none, as that was asked for before.
func (r *portRenderer) clusterIPMarks() []string {
	if !r.port.MasqueradeAll && r.port.PodLinks == (desired.Links{}) {
		return nil
	}
	here := fmt.Sprintf("-d %s ", addr.HostPrefix(r.port.ClusterIP))
	marks := []string{here + r.markRule()}
	if !r.port.MasqueradeAll {
		marks = append(marks, here+r.fromPod()+" -j "+chainClearMasq)
	}
	return marks
}

// fromPod matches what pods send, fromOthers all else. What this node sends comes by no
// interface.
func (r *portRenderer) fromPod() string {
	if r.port.PodLinks == (desired.Links{}) {
		return r.in(ofPods, "src")
	}
	return arrivedBy(r.port.PodLinks)
}

func (r *portRenderer) fromOthers() string {
	if r.port.PodLinks == (desired.Links{}) {
		return r.notIn(ofPods, "src")
	}
	return "! " + arrivedBy(r.port.PodLinks)
}

func arrivedBy(links desired.Links) string {
	if links.Prefix {
		return "-i " + links.Name + "+"
	}
	return "-i " + links.Name
}

// inside tells whether the chain of the ClusterIP has the endpoints of this node, or those
// of the cluster.
func (r *portRenderer) inside(local bool) bool {
	return r.port.ClusterIP.IsValid() && r.port.InternalLocal == local && len(r.endpoints(local)) > 0
}

func (r *portRenderer) endpoints(local bool) []netip.AddrPort {
	if local {
		return r.port.Local
	}
	return r.port.Cluster
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
		chain := r.externalChain()
		r.unrestricted(&r.out.nat, chain)
		r.vips(&r.out.nat, chain, toSkipNAT)
	} else {
		chain := chainSkipNAT
		if r.key.Protocol == view.UDP && r.refusal(p.ExternalLocal) == chainReject {
			chain = chainRefuseUDP
		}
		r.externalIPs(&r.out.nat, chain)
		r.nodePort(&r.out.nat, chainSkipNAT)
		r.vips(&r.out.nat, chain, toSkipNAT)
	}
	if refused {
		verdict := r.refusal(p.ExternalLocal)
		r.unrestricted(&r.out.filter, verdict)
		r.vips(&r.out.filter, verdict, "-j DROP")
	} else if p.Restricted {
		// Packets of sources that the VIP admits have another destination since nat.
		for _, a := range p.VIPs {
			r.dispatch(&r.out.filter, r.at(a), chainDrop)
		}
	}
}

// unrestricted sends packets for the ExternalIPs and the NodePort to chain.
func (r *portRenderer) unrestricted(table *part, chain string) {
	r.externalIPs(table, chain)
	r.nodePort(table, chain)
}

func (r *portRenderer) externalIPs(table *part, chain string) {
	for _, a := range r.port.ExternalIPs {
		r.dispatch(table, r.at(a), chain)
	}
}

func (r *portRenderer) nodePort(table *part, chain string) {
	if r.port.NodePort != 0 {
		r.dispatch(table, r.atNodePort(), chain)
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
		chain = r.entrance(table, kindVIP, r.admission(table, chain, otherwise))
	}
	for _, a := range r.port.VIPs {
		r.dispatch(table, r.at(a), chain)
	}
}

// fewRanges is how many source ranges each lead to the endpoints. At each change, nf_tables follows every rule that leads
// to a chain through that chain, kernels of 2025 and before each time anew: a thousand ranges and a thousand endpoints make a million rules.
const fewRanges = 4

// admission sends packets to chain if their source is allowed, and lets others meet the rule otherwise.
func (r *portRenderer) admission(table *part, chain, otherwise string) []string {
	verdict := "-g " + chain
	many := len(r.port.SourceRanges) > fewRanges
	if many {
		verdict = "-j RETURN"
	}
	rules := make([]string, 0, len(r.port.SourceRanges)+1)
	for _, source := range r.port.SourceRanges {
		from := ""
		if source.Bits() > 0 {
			from = fmt.Sprintf("-s %s ", source.Masked())
		}
		rules = append(rules, from+verdict)
	}
	rules = append(rules, otherwise)
	if !many {
		return rules
	}
	return []string{"-j " + table.add(r.chain(kindSources), rules), "-g " + chain}
}

// externalChain is where packets for VIPs, ExternalIPs and the NodePort go that are let in.
func (r *portRenderer) externalChain() string {
	if !r.port.ExternalLocal && r.inside(false) {
		return r.chain(kindInternal)
	}
	return r.entrance(&r.out.nat, kindExternal, r.externalRules())
}

// externalRules end in a verdict: no packet for a port may fall out to the NodePort
// of another one. All packets come with a mark that asks for masquerade.
func (r *portRenderer) externalRules() []string {
	if !r.port.ExternalLocal {
		return r.shares(r.port.Cluster)
	}
	cluster := r.clusterVerdict()
	rules := []string{
		r.fromOthers() + " " + fromNode + " " + cluster,
		"-j " + chainClearMasq,
		r.fromPod() + " " + cluster,
	}
	switch {
	case len(r.port.Local) == 0:
		return append(rules, toSkipNAT)
	case r.inside(true):
		return append(rules, "-g "+r.chain(kindInternal))
	default:
		return append(rules, r.shares(r.port.Local)...)
	}
}

// clusterVerdict sends pods and this node to the endpoints of the whole cluster.
func (r *portRenderer) clusterVerdict() string {
	switch {
	case len(r.port.Cluster) == 0:
		return toSkipNAT
	case r.inside(false):
		return "-g " + r.chain(kindInternal)
	default:
		return "-g " + r.out.nat.add(r.chain(kindCluster), r.shares(r.port.Cluster))
	}
}

// shares gives each endpoint the same share of new flows: the first of n is
// taken with probability 1/n, the next with 1/(n-1), the last always. With
// affinity a client that an endpoint remembers goes there again.
func (r *portRenderer) shares(endpoints []netip.AddrPort) []string {
	return r.sharesOf(r.protocol(), endpoints)
}

// sharesOf are the shares of what of matches, which is the protocol or nothing where that was asked for.
func (r *portRenderer) sharesOf(of string, endpoints []netip.AddrPort) []string {
	rules := make([]string, 0, len(endpoints))
	verdicts := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		verdicts[i] = dnat(endpoint)
		if r.port.Affinity > 0 {
			chain, clients := r.remembering(endpoint)
			of, verdicts[i] = "", "-g "+chain
			rules = append(rules, fmt.Sprintf("-m set --match-set %s src %s", clients, verdicts[i]))
		}
	}
	for i, verdict := range verdicts {
		if left := len(verdicts) - i; left > 1 {
			verdict = fmt.Sprintf("-m statistic --mode random --probability %.11f %s", probability(left), verdict)
		}
		rules = append(rules, of+verdict)
	}
	return rules
}

// probability is one of so many, as a multiple of what the kernel can tell apart.
func probability(of int) float64 {
	const unit = 1 << 31
	return math.Round(unit/float64(of)) / unit
}

// protocol is the match without which DNAT takes no port.
func (r *portRenderer) protocol() string {
	return "-p " + strings.ToLower(string(r.key.Protocol)) + " "
}

func dnat(to netip.AddrPort) string { return fmt.Sprintf("-j DNAT --to-destination %s", to) }

// remembering is the chain that sends a client to an endpoint and has it remembered
// from now on, and the set of the clients that are. Cluster and Local endpoints
// share them, so that a client keeps its endpoint whichever way it came.
func (r *portRenderer) remembering(endpoint netip.AddrPort) (chain, clients string) {
	id := digest(fmt.Sprintf("%v %s", r.key, endpoint))
	chain, clients = ours+kindEndpoint+"-"+id, fmt.Sprintf("%sAFF%d-%s", ours, r.family, id)
	if !slices.Contains(r.out.clients, clients) {
		r.out.clients = append(r.out.clients, clients)
	}
	return r.out.nat.add(chain, []string{
		fmt.Sprintf("-j SET --add-set %s src --exist --timeout %d", clients, max(int(r.port.Affinity.Seconds()), 1)),
		r.protocol() + dnat(endpoint),
	}), clients
}
