package nftables

import (
	"crypto/sha256"
	"fmt"
	"strings"

	nft "github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"fairlead.dev/fairlead/internal/addr"
)

// tableName is the table of each family that is ours, and all of it is.
const tableName = "fairlead"

// layout is what the table of one family looks like whatever Services there are. All
// rules are such as the nft program can show: some of its versions abort at others.
type layout struct {
	family addr.Family
	mark   uint32 // the one bit that asks for masquerade
	table  *nft.Table
	sets   [setCount]*nft.Set
	salt   []byte               // stands for the sets in the stamps of the rules
	made   map[classKey][]chain // by chains, of up to mostMade classes
}

type setID uint8

// The sets and maps. A destination is an address, a protocol and a port; of a
// NodePort it is protocol and port.
const (
	services               setID = iota // destination: chain
	endpoints                           // destination, slot: address and port of an endpoint
	affinityPorts                       // destination: id of a port with session affinity
	affinitySlots                       // destination, slot: affinity slot of an endpoint
	nodeServices                        // the same four for NodePorts
	nodeEndpoints                       //
	nodeAffinityPorts                   //
	nodeAffinitySlots                   //
	affinityEndpoints                   // affinity slot: address and port of an endpoint
	localAffinityEndpoints              // those of this node
	affinity                            // client, id: affinity slot. The kernel alone writes it
	addresses                           // destinations
	ports                               // those of NodePorts
	servers                             // an endpoint's address, twice, protocol and port: also of those that serve old flows alone
	ranges                              // destination, source: the clients of a VIP
	pods                                // where pods send from
	perhapsPods                         // where they may, while that is not known
	nodes                               // where NodePorts answer
	clusterIPs                          // addresses
	serviceRanges                       // where nothing but ClusterIPs can be
	setCount

	// chains is no set: the chains beside the static ones are items like elements.
	chains = setCount
)

// maxClients bounds what the kernel remembers for session affinity. A client more
// is served by chance.
const maxClients = 1 << 20

func newLayout(family addr.Family, mark uint32) *layout {
	l := &layout{family: family, mark: mark, made: map[classKey][]chain{}}
	l.table = &nft.Table{Name: tableName, Family: nft.TableFamilyIPv4}
	ip := nft.TypeIPAddr
	if family == addr.IPv6 {
		l.table.Family, ip = nft.TableFamilyIPv6, nft.TypeIP6Addr
	}
	proto, port, slot, affinitySlot := nft.TypeInetProto, nft.TypeInetService, nft.TypeMark, nft.TypeClassID
	row := nft.MustConcatSetType
	l.sets = [setCount]*nft.Set{
		services:               {Name: "services", KeyType: row(ip, proto, port), DataType: nft.TypeVerdict},
		endpoints:              {Name: "endpoints", KeyType: row(ip, proto, port, slot), DataType: row(ip, port)},
		affinityPorts:          {Name: "affinity-ports", KeyType: row(ip, proto, port), DataType: affinitySlot},
		affinitySlots:          {Name: "affinity-slots", KeyType: row(ip, proto, port, slot), DataType: affinitySlot},
		nodeServices:           {Name: "node-services", KeyType: row(proto, port), DataType: nft.TypeVerdict},
		nodeEndpoints:          {Name: "node-endpoints", KeyType: row(proto, port, slot), DataType: row(ip, port)},
		nodeAffinityPorts:      {Name: "node-affinity-ports", KeyType: row(proto, port), DataType: affinitySlot},
		nodeAffinitySlots:      {Name: "node-affinity-slots", KeyType: row(proto, port, slot), DataType: affinitySlot},
		affinityEndpoints:      {Name: "affinity-endpoints", KeyType: affinitySlot, DataType: row(ip, port)},
		localAffinityEndpoints: {Name: "local-affinity-endpoints", KeyType: affinitySlot, DataType: row(ip, port)},
		affinity:               {Name: "affinity", KeyType: row(ip, affinitySlot), DataType: affinitySlot, Dynamic: true, HasTimeout: true, Size: maxClients},
		addresses:              {Name: "addresses", KeyType: row(ip, proto, port)},
		ports:                  {Name: "ports", KeyType: row(proto, port)},
		servers:                {Name: "servers", KeyType: row(ip, ip, proto, port)},
		ranges:                 {Name: "ranges", KeyType: row(ip, proto, port, ip), Interval: true},
		pods:                   {Name: "pods", KeyType: ip, Interval: true},
		perhapsPods:            {Name: "perhaps-pods", KeyType: ip, Interval: true},
		nodes:                  {Name: "nodes", KeyType: ip, Interval: true},
		clusterIPs:             {Name: "cluster-ips", KeyType: ip},
		serviceRanges:          {Name: "service-ranges", KeyType: ip, Interval: true},
	}
	digest := sha256.New()
	for id, s := range l.sets {
		s.Table = l.table
		s.ID = uint32(id) + 1
		s.IsMap = s.DataType.Name != ""
		s.Concatenation = strings.Contains(s.KeyType.Name, " . ")
		if s.Interval {
			s.KeyByteOrder = binaryutil.BigEndian
		}
		shape := *s
		shape.Table = nil
		fmt.Fprintf(digest, "%+v\n", shape)
	}
	l.salt = digest.Sum(nil)
	return l
}

// as is the same layout for a table of another name.
func (l *layout) as(table string) *layout {
	other := *l
	other.table = &nft.Table{Name: table, Family: l.table.Family}
	for id, s := range l.sets {
		copied := *s
		copied.Table = other.table
		other.sets[id] = &copied
	}
	return &other
}

// chain is one chain of ours, and where the kernel enters it by itself, if it does.
type chain struct {
	name  string
	at    hook
	rules []rule
}

// hook is a place in the path of packets; the zero value is none.
type hook struct {
	kind     nft.ChainType
	number   nft.ChainHook
	priority nft.ChainPriority
}

func (h hook) String() string {
	if h.kind == "" {
		return ""
	}
	return describeHook(string(h.kind), uint32(h.number), int32(h.priority), acceptPolicy)
}

// acceptPolicy is NF_ACCEPT.
const acceptPolicy = 1

func describeHook(kind string, number uint32, priority int32, policy uint32) string {
	return fmt.Sprint(kind, " ", number, " ", priority, " ", policy)
}

// rule is one rule and what it does, in words.
type rule struct {
	says  string
	exprs []expr.Any
}

// element is a chain as an item: its value tells all rules.
func (l *layout) element(c chain) element {
	value := []string{c.at.String()}
	for _, r := range c.rules {
		value = append(value, l.stamp(r))
	}
	return element{item{chains, c.name}, strings.Join(value, "\n")}
}

// static are the chains that are always there.
func (l *layout) static() []chain {
	dispatch := []rule{
		{"find the Service", flat(l.destination(byAddress), l.follow(services))},
		{"find the NodePort", flat(l.ifNode(), l.destination(byNodePort), l.follow(nodeServices))},
	}
	stray := []rule{
		// One that it has is met by what began before the Service was there, and is not translated.
		{"to a port that a ClusterIP does not have", flat(l.destinationAddress(0), l.find(clusterIPs, false),
			l.destination(byAddress), l.find(addresses, true), ifNotLocal(), goTo(rejecting))},
		{"to an address that no Service has", flat(l.destinationAddress(0), l.find(serviceRanges, false), ifNotLocal(), drop())},
	}
	strange := []rule{{"what NAT keeps its hands off", flat(ifInvalid(), goTo("invalid"))}}
	return []chain{
		{"prerouting", hook{nft.ChainTypeNAT, *nft.ChainHookPrerouting, *nft.ChainPriorityNATDest}, dispatch},
		{"output", hook{nft.ChainTypeNAT, *nft.ChainHookOutput, *nft.ChainPriorityNATDest}, dispatch},
		{"stray-prerouting", hook{nft.ChainTypeNAT, *nft.ChainHookPrerouting, afterNAT}, stray},
		{"stray-output", hook{nft.ChainTypeNAT, *nft.ChainHookOutput, afterNAT}, stray},
		{"postrouting", hook{nft.ChainTypeNAT, *nft.ChainHookPostrouting, *nft.ChainPriorityNATSource}, []rule{
			{"masquerade what is marked", flat(l.ifMarked(), l.clearMark(), masquerade())},
			{"masquerade an endpoint that reaches itself", flat(ifDNAT(), l.hairpin(), masquerade())},
		}},
		{"arriving", hook{nft.ChainTypeFilter, *nft.ChainHookPrerouting, *nft.ChainPriorityMangle}, strange},
		{"leaving", hook{nft.ChainTypeFilter, *nft.ChainHookOutput, *nft.ChainPriorityMangle}, strange},
		{name: "invalid", rules: []rule{
			{"without a SYN before it: half a flow of others", flat(ifTCPFlags(synFlag|ackFlag), leave())},
			{"a reset harms nobody", flat(ifTCPFlags(rstFlag), leave())},
			{"from an endpoint: the client would see its own address", flat(l.fromServer(), drop())},
			{"to a Service: whoever has its address would answer", flat(l.destination(byAddress), l.find(addresses, false), drop())},
			{"to a NodePort: this node would answer", flat(l.ifNode(), l.destination(byNodePort), l.find(ports, false), drop())},
		}},
		{name: rejecting, rules: []rule{{"nobody serves", []expr.Any{l.reject()}}}},
		{name: dropping, rules: []rule{{"another node may serve", drop()}}},
	}
}

// afterNAT is behind all that translates destinations. The kernel asks the chains of type nat
// about the first packet of a flow alone, and none behind one that translates it.
const afterNAT = -100 + 50

const guarding = "guard"

// guard is the chain that has 127.0.0.0/8 to this host alone. It comes before all
// translation: what is translated to a loopback address later, as an answer to this host
// is, is not addressed to one here.
func (l *layout) guard() chain {
	return chain{guarding, hook{nft.ChainTypeFilter, *nft.ChainHookPrerouting, *nft.ChainPriorityMangle}, []rule{
		{"to a loopback address, from elsewhere", flat(l.destinationAddress(0), ifLoopback(), ifFromElsewhere(), drop())},
		{"in the name of a loopback address, from elsewhere", flat(l.source(0), ifLoopback(), ifFromElsewhere(), drop())},
	}}
}

// Chains of those without endpoints.
const (
	rejecting = "reject"
	dropping  = "drop"
)

// lost ends chains that send each packet somewhere. Only a packet that saw half of a
// change comes so far; its sender tries again.
func lost() rule {
	return rule{"came during a change: the next try meets all of it", drop()}
}

// matchKind is how a packet finds its Service: by the destination, or by protocol and port
// alone, on an address of this node.
type matchKind uint8

const (
	byAddress matchKind = iota
	byNodePort
)

// of is the set of a kind of match that is to it what s is to destinations.
func (w matchKind) of(s setID) setID { return s + setID(w)*(nodeServices-services) }

func (w matchKind) prefix() string {
	if w == byNodePort {
		return "node-"
	}
	return ""
}
