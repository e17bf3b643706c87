package nftables

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	nft "github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// tableName is the table of each family that is ours, and all of it is.
const tableName = "fairlead"

// layout is what the table of one family looks like whatever Services there are. All
// rules are such as the nft program can show, and from 1.0.6 on read as it shows them, since a host may load what it has
// saved: some of its versions abort at others.
type layout struct {
	nftable.Table
	sets [setCount]*nft.Set
	made map[classKey][]chain // by chains, of up to mostMade classes
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
	affinityEndpoints                   // protocol, affinity slot: address and port of an endpoint
	localAffinityEndpoints              // those of this node
	affinity                            // client, id: affinity slot. The kernel alone writes it
	addresses                           // destinations whose senders keep their addresses
	alwaysMasked                        // those whose senders are masqueraded
	maskedUnlessPod                     // those whose senders are if they are no pods
	maskedFromNode                      // those whose senders are if this node is
	linked                              // destination that is in addresses, too: chain, where links tell pods
	ports                               // the same five for NodePorts
	portsAlwaysMasked                   //
	portsMaskedUnlessPod                // empty: a NodePort is no ClusterIP
	portsMaskedFromNode                 //
	linkedPorts                         //
	servers                             // an endpoint's address, twice, protocol and port: also of those that serve old flows alone
	ranges                              // destination, length of a prefix, the prefix: the clients of a VIP
	pods                                // where pods send from
	perhapsPods                         // where they may, while that is not known
	nodes                               // where NodePorts answer
	serviceIPs                          // ClusterIPs, and VIPs of which other ports are refused
	pinged                              // VIPs for which this node answers pings
	echo                                // the protocol of pings: address of this node that answers them
	sources                             // where a packet goes: the address that takes its source's place
	serviceRanges                       // where nothing but ClusterIPs can be
	refusedRanges                       // where nothing but VIPs can be
	setCount

	// chains is no set: the chains beside the static ones are items like elements.
	chains = setCount
)

// maxClients bounds what the kernel remembers for session affinity. A client more
// is served by chance.
const maxClients = 1 << 20

func newLayout(family addr.Family) *layout {
	l := &layout{Table: nftable.New(family, tableName), made: map[classKey][]chain{}}
	ip := nft.TypeIPAddr
	if family == addr.IPv6 {
		ip = nft.TypeIP6Addr
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
		affinityEndpoints:      {Name: "affinity-endpoints", KeyType: row(proto, affinitySlot), DataType: row(ip, port)},
		localAffinityEndpoints: {Name: "local-affinity-endpoints", KeyType: row(proto, affinitySlot), DataType: row(ip, port)},
		affinity:               {Name: "affinity", KeyType: row(ip, affinitySlot), DataType: affinitySlot, Dynamic: true, HasTimeout: true, Size: maxClients},
		addresses:              {Name: "addresses", KeyType: row(ip, proto, port)},
		alwaysMasked:           {Name: "masked", KeyType: row(ip, proto, port)},
		maskedUnlessPod:        {Name: "masked-unless-pod", KeyType: row(ip, proto, port)},
		maskedFromNode:         {Name: "masked-from-node", KeyType: row(ip, proto, port)},
		linked:                 {Name: "masked-by-link", KeyType: row(ip, proto, port), DataType: nft.TypeVerdict},
		ports:                  {Name: "ports", KeyType: row(proto, port)},
		portsAlwaysMasked:      {Name: "node-masked", KeyType: row(proto, port)},
		portsMaskedUnlessPod:   {Name: "node-masked-unless-pod", KeyType: row(proto, port)},
		portsMaskedFromNode:    {Name: "node-masked-from-node", KeyType: row(proto, port)},
		linkedPorts:            {Name: "node-masked-by-link", KeyType: row(proto, port), DataType: nft.TypeVerdict},
		servers:                {Name: "servers", KeyType: row(ip, ip, proto, port)},
		ranges:                 {Name: "ranges", KeyType: row(ip, proto, port, slot, ip)},
		pods:                   {Name: "pods", KeyType: ip, Interval: true},
		perhapsPods:            {Name: "perhaps-pods", KeyType: ip, Interval: true},
		nodes:                  {Name: "nodes", KeyType: ip, Interval: true},
		serviceIPs:             {Name: "service-ips", KeyType: ip},
		pinged:                 {Name: "pinged", KeyType: ip},
		echo:                   {Name: "echo", KeyType: proto, DataType: ip},
		sources:                {Name: "sources", KeyType: ip, DataType: ip, Interval: true},
		serviceRanges:          {Name: "service-ranges", KeyType: ip, Interval: true},
		refusedRanges:          {Name: "refused-ranges", KeyType: ip, Interval: true},
	}
	digest := sha256.New()
	for id, s := range l.sets {
		s.Table = l.NFT
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
	l.Salt = digest.Sum(nil)
	return l
}

// as is the same layout for a table of another name.
func (l *layout) as(table string) *layout {
	other := *l
	other.NFT = &nft.Table{Name: table, Family: l.NFT.Family}
	for id, s := range l.sets {
		copied := *s
		copied.Table = other.NFT
		other.sets[id] = &copied
	}
	return &other
}

type (
	chain = nftable.Chain
	hook  = nftable.Hook
	rule  = nftable.Rule
	batch = nftable.Batch
)

// element is a chain as an item: its value tells all rules.
func (l *layout) element(c chain) element { return element{item{chains, c.Name}, l.Content(c)} }

// static are the chains that are always there.
func (l *layout) static() []chain {
	dispatch := []rule{
		{Says: "find the Service", Exprs: flat(l.destination(byAddress), l.follow(services))},
		{Says: "find the NodePort", Exprs: flat(l.ifNode(), l.destination(byNodePort), l.follow(nodeServices))},
		// The first packet of a flow of ICMP is a request.
		{Says: "this node answers pings of a VIP", Exprs: flat(protocol(0), l.lookup(echo, endpointAt), l.destinationAddress(0),
			l.find(pinged, false), l.dnatAddress(endpointAt))},
	}
	stray := []rule{
		{Says: "a protocol without ports, to a Service", Exprs: flat(l.destinationAddress(0), l.find(serviceIPs, false), ifNoPorts(), ifNotLocal(), goTo(rejecting))},
		{Says: "a protocol without ports, to where VIPs are", Exprs: flat(l.destinationAddress(0), l.find(refusedRanges, false), ifNoPorts(), ifNotLocal(), goTo(rejecting))},
		// One that it has is met by what began before the Service was there, and is not translated.
		{Says: "to a port that a Service does not have", Exprs: flat(l.destinationAddress(0), l.find(serviceIPs, false),
			l.destination(byAddress), l.findNone(byAddress), ifNotLocal(), goTo(rejecting))},
		{Says: "to where VIPs are, and no port of one", Exprs: flat(l.destinationAddress(0), l.find(refusedRanges, false),
			l.destination(byAddress), l.findNone(byAddress), ifNotLocal(), goTo(rejecting))},
		{Says: "to an address that no Service has", Exprs: flat(l.destinationAddress(0), l.find(serviceRanges, false), ifNotLocal(), drop())},
	}
	// The kernel asks about resets, too, with which it refuses what is not translated yet.
	answer := rule{Says: "an answer", Exprs: flat(ifReply(), leave())}
	strange := func(states uint32) []rule {
		return []rule{{Says: "what NAT keeps its hands off", Exprs: flat(ifState(states), goTo("invalid"))}}
	}
	return append(l.bySource(), []chain{
		{Name: "prerouting", At: hook{Kind: nft.ChainTypeNAT, Number: *nft.ChainHookPrerouting, Priority: beforeNAT}, Rules: dispatch},
		{Name: "output", At: hook{Kind: nft.ChainTypeNAT, Number: *nft.ChainHookOutput, Priority: beforeNAT}, Rules: append([]rule{answer}, dispatch...)},
		{Name: "stray-prerouting", At: hook{Kind: nft.ChainTypeNAT, Number: *nft.ChainHookPrerouting, Priority: afterNAT}, Rules: stray},
		{Name: "stray-output", At: hook{Kind: nft.ChainTypeNAT, Number: *nft.ChainHookOutput, Priority: afterNAT}, Rules: append([]rule{answer}, stray...)},
		{Name: "arriving", At: hook{Kind: nft.ChainTypeFilter, Number: *nft.ChainHookPrerouting, Priority: *nft.ChainPriorityMangle}, Rules: strange(inInvalid | inUntracked)},
		{Name: "leaving", At: hook{Kind: nft.ChainTypeFilter, Number: *nft.ChainHookOutput, Priority: *nft.ChainPriorityMangle}, Rules: strange(inInvalid)},
		{Name: "invalid", Rules: []rule{
			// No machine but this one has the address: it would come back.
			{Says: "to a Service's address", Exprs: flat(l.destinationAddress(0), l.find(serviceIPs, false), ifNotLocal(), drop())},
			{Says: "to where VIPs are", Exprs: flat(l.destinationAddress(0), l.find(refusedRanges, false), ifNotLocal(), drop())},
			// The kernel never tracks neighbour discovery and MLD, which anybody can send from elsewhere.
			{Says: "of no connection on purpose", Exprs: flat(ifState(inUntracked), leave())},
			{Says: "without a SYN before it: half a flow of others", Exprs: flat(ifTCPFlags(synFlag|ackFlag), leave())},
			{Says: "a reset harms nobody", Exprs: flat(ifTCPFlags(rstFlag), leave())},
			{Says: "from an endpoint: the client would see its own address", Exprs: flat(l.fromServer(), drop())},
			{Says: "to what no Service has by its address", Exprs: flat(l.destination(byAddress), l.findNone(byAddress), goTo("invalid-node"))},
			{Says: "to a Service: whoever has its address would answer", Exprs: drop()},
		}},
		{Name: "invalid-node", Rules: []rule{
			{Says: "to no NodePort", Exprs: flat(l.destination(byNodePort), l.findNone(byNodePort), leave())},
			{Says: "to a NodePort: this node would answer", Exprs: flat(l.ifNode(), drop())},
		}},
		{Name: rejecting, Rules: []rule{
			// The kernel limits the rate of ICMP errors to a sender, and not that of resets.
			{Says: "nobody serves", Exprs: flat(ifTCP(), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})},
			{Says: "nobody serves", Exprs: []expr.Any{l.reject()}},
		}},
		{Name: dropping, Rules: []rule{{Says: "another node may serve", Exprs: drop()}}},
	}...)
}

// beforeNAT is before all that others translate destinations by: of chains of one priority the kernel asks the
// one first that was made last, and a Service's own address is no host port of others.
const beforeNAT = -100 - 1

// afterNAT is behind all that translates destinations. The kernel asks the chains of type nat
// about the first packet of a flow alone, and none behind one that translates it.
const afterNAT = -100 + 50

const guarding = "guard"

// guard is the chain that has 127.0.0.0/8 to this host alone. It comes before all
// translation: what is translated to a loopback address later, as an answer to this host
// is, is not addressed to one here.
func (l *layout) guard() chain {
	return chain{Name: guarding, At: hook{Kind: nft.ChainTypeFilter, Number: *nft.ChainHookPrerouting, Priority: *nft.ChainPriorityMangle}, Rules: []rule{
		{Says: "to a loopback address, from elsewhere", Exprs: flat(l.destinationAddress(0), ifLoopback(), ifFromElsewhere(), drop())},
		{Says: "in the name of a loopback address, from elsewhere", Exprs: flat(l.source(0), ifLoopback(), ifFromElsewhere(), drop())},
	}}
}

// Chains of those without endpoints. No chain has a word of nft's language for a name, which it could not read.
const (
	rejecting = "refuse"
	dropping  = "discard"
)

// lost ends chains that send each packet somewhere. Only a packet that saw half of a
// change comes so far; its sender tries again.
func lost() rule {
	return rule{Says: "came during a change: the next try meets all of it", Exprs: drop()}
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

// known is the set of the destinations of a kind of match whose senders are treated like this.
func (w matchKind) known(as treatment) setID {
	return addresses + setID(as) + setID(w)*(ports-addresses)
}

func (w matchKind) prefix() string {
	if w == byNodePort {
		return "node-"
	}
	return ""
}

// The nft program reads a set as it shows it if the types have names. A number that a rule chooses has none: of sets of
// slots the user data says by which expressions the keys are made, as nft itself has that for "typeof". The kernel keeps
// user data and does not read it. This is all of nft's format that is needed (its sources: src/expression.c, and udata.h of libnftnl).
const (
	setDataOrder  = 1 // of a set: how its values are ordered,
	setKeyTypeof  = 3 // what makes its keys,
	setDataTypeof = 4 // and its values
	hostOrder     = 1

	exprPayload = 7
	exprMeta    = 9
	exprConcat  = 13
	exprNumgen  = 23

	headerTransport = 11
	headerIPv4      = 12
	headerIPv6      = 13
	portField       = 2
)

func userData(kind byte, value ...byte) []byte {
	return append([]byte{kind, byte(len(value))}, value...)
}

func userNumber(kind byte, n uint32) []byte { return userData(kind, number(n)...) }

// exprData is an expression: its kind, and what it is made of.
func exprData(kind uint32, of ...[]byte) []byte {
	return append(userNumber(0, kind), userData(1, slices.Concat(of...)...)...)
}

func metaData(key uint32) []byte { return exprData(exprMeta, userNumber(0, key)) }

func payloadData(header, field uint32) []byte {
	return exprData(exprPayload, userNumber(0, header), userNumber(1, field))
}

func concatData(parts ...[]byte) []byte {
	for i, p := range parts {
		parts[i] = userData(byte(i), p...)
	}
	return exprData(exprConcat, parts...)
}

// userData is by what nft knows how to read a set again, nil where the types say all.
func (l *layout) userData(id setID) []byte {
	header, destination := uint32(headerIPv4), uint32(12)
	if l.Family == addr.IPv6 {
		header, destination = headerIPv6, 9
	}
	address, port := payloadData(header, destination), payloadData(headerTransport, portField)
	key := [][]byte{address, metaData(unix.NFT_META_L4PROTO), port, exprData(exprNumgen, userNumber(0, unix.NFT_NG_RANDOM), userNumber(1, 1), userNumber(2, 0))}
	switch id {
	case nodeEndpoints, nodeAffinitySlots:
		key = key[1:]
	default:
	}
	switch id {
	case endpoints, nodeEndpoints:
		return append(userData(setKeyTypeof, concatData(key...)...), userData(setDataTypeof, concatData(address, port)...)...)
	case affinitySlots, nodeAffinitySlots:
		return slices.Concat(userNumber(setDataOrder, hostOrder),
			userData(setKeyTypeof, concatData(key...)...), userData(setDataTypeof, metaData(unix.NFT_META_PRIORITY)...))
	case affinityPorts, nodeAffinityPorts, affinity:
		return userNumber(setDataOrder, hostOrder)
	default:
		return nil
	}
}
