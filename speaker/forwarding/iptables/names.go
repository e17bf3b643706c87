package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/ipset"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// Names of chains. Those that begin with ours belong to this package, and no
// other chain does; built-in chains hold one jump each.
const (
	ours         = "FAIRLEAD-"
	maxChainName = 28

	chainDispatch       = ours + "DISPATCH"     // nat: sets the masquerade mark, then to the Service of a packet
	chainLookup         = ours + "LOOKUP"       // nat: to the Service of a packet
	chainMarkMasq       = ours + "MARK-MASQ"    // nat: sets the masquerade mark
	chainClearMasq      = ours + "CLEAR-MASQ"   // nat: clears it
	chainOthersMark     = ours + "OTHERS-MARK"  // nat: as DISPATCH, of packets that come with it
	chainSkipNAT        = ours + "SKIP-NAT"     // nat: no endpoints: on to NO-ENDPOINTS untranslated, past the NodePorts
	chainRefuseUDP      = ours + "REFUSE-UDP"   // nat: datagrams to be refused go to the node, past the NodePorts
	chainPostrouting    = ours + "POSTROUTING"  // nat: masquerades
	chainInput          = ours + "INPUT"        // filter
	chainForward        = ours + "FORWARD"      // filter
	chainOutput         = ours + "OUTPUT"       // filter
	chainInvalid        = ours + "INVALID"      // filter: packets of no connection that conntrack knows
	chainNoEndpoints    = ours + "NO-ENDPOINTS" // filter: destinations without endpoints
	chainUnknownService = ours + "UNKNOWN-SVC"  // filter: ports that a ClusterIP or VIP has not, addresses that no Service has
	chainReject         = ours + "REJECT"
	chainDrop           = ours + "DROP"
	chainServices       = ours + "SERVICES"  // root of the tree of ClusterIPs and VIPs, in nat and filter
	chainNodePorts      = ours + "NODEPORTS" // root of the tree of NodePorts, in nat and filter
)

// What the chains of a port are for; their names go on with a digest of its key.
const (
	kindInternal = "SVC" // the ClusterIP, and all that goes to the same endpoints
	kindExternal = "EXT" // VIPs, ExternalIPs and the NodePort, where they have endpoints of their own
	kindVIP      = "FW"  // a VIP that admits some sources only
	kindSources  = "SRC" // these, where they are more than a few
	kindCluster  = "ALL" // endpoints of the whole cluster, for pods and this node under policy Local
	kindEndpoint = "SEP" // an endpoint that remembers its clients
)

// jump is a rule that leads from a chain of others, such as a built-in one, to ours.
type jump struct {
	from, rule string
	handle     uint64 // by which nf_tables knows it
}

// same tells whether another rule of the chain does the same.
func (j jump) same(o jump) bool { return j.from == o.from && j.rule == o.rule }

func natJumps() []jump {
	return []jump{
		{from: "PREROUTING", rule: "-j " + chainDispatch},
		{from: "OUTPUT", rule: "-j " + chainDispatch},
		{from: "POSTROUTING", rule: "-j " + chainPostrouting},
	}
}

func filterJumps() []jump {
	return []jump{
		{from: "INPUT", rule: "-j " + chainInput}, {from: "FORWARD", rule: "-j " + chainForward}, {from: "OUTPUT", rule: "-j " + chainOutput},
	}
}

// digest is 15 characters that stand for a text in the name of a chain.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:10])[:15]
}

// style is what rendering depends on besides the ports.
type style struct {
	family addr.Family
	mark   uint32 // the one bit that asks for masquerade
	// legacyLayout makes rules as few and as short as can be: legacy iptables copies the whole table and checks
	// each rule of it at each change. They name no Service, as the kernel has 288 bytes
	// for a comment: what leads to a chain says for which destination. And they give a ClusterIP
	// a chain of its own, with its head, its end and the rule that leads to it, only if more
	// than that leads there or it has many endpoints.
	legacyLayout bool
}

// leaf is how many rules a chain of a tree may list. Each costs a packet some ten nanoseconds
// with nf_tables and three with legacy iptables. Each chain costs a transaction of nf_tables as
// many, whatever it is about, and legacy iptables as much as two rules.
func (s style) leaf() int {
	if s.legacyLayout {
		return 64
	}
	return 16
}

// listed is how many endpoints a tree may list in place of a chain of their own.
const listed = 16

// setName names a set of this family that is there whatever Services exist.
func (s style) setName(of string) string { return fmt.Sprintf("%s%s%d", ours, of, s.family) }

// What the fixed sets are of.
const (
	ofPods         = "PODS"
	ofEndpoints    = "ENDPOINTS"
	ofDestinations = "SERVICES"
	ofNodePorts    = "NODEPORTS"
	ofHealthPorts  = "HEALTHPORTS"
	ofClusterIPs   = "CLUSTERIPS"
	ofRanges       = "SERVICECIDRS"
	ofVIPs         = "VIPS"
	ofPinged       = "PINGED"
	ofRefused      = "REFUSED"
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
		ofClusterIPs:   ipset.HashIP,
		ofRanges:       ipset.HashNet, // where nothing but ClusterIPs can be
		ofVIPs:         ipset.HashIP,  // those of which other ports are refused
		ofPinged:       ipset.HashIP,  // those of them for which this node answers pings
		ofRefused:      ipset.HashNet, // where nothing but VIPs can be
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

func (s style) notIn(of, directions string) string {
	return fmt.Sprintf("-m set ! --match-set %s %s", s.setName(of), directions)
}

const (
	fromNode  = "-m addrtype --src-type LOCAL"
	toSkipNAT = "-g " + chainSkipNAT
)
