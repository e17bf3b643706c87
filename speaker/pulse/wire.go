package pulse

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/pulse/hello"
)

// The agent and pulse exchange messages of one kind in each direction: tables
// one way, states the other, each of them whole. A message is a header of 8
// bytes and JSON:
//
//	"FL"  version (16 bits)  length of the JSON (32 bits)
//
// Numbers are big endian. Fields that the reader does not know are ignored, so
// that the two sides may be of different releases; the version counts only
// changes that a reader cannot ignore.
const (
	wireVersion = 1
	headerSize  = 8
	// maxMessage bounds a message, in bytes. Ten thousand addresses with a thousand candidates
	// each make about 1 MB, or 40 MB for a pulse that has the lists of these written out.
	maxMessage = 32 << 20
	// maxTable bounds an encoded table, which needs an envelope.
	maxTable = maxMessage - 64
)

var magic = [2]byte{'F', 'L'}

// versionError says that the other side speaks another version.
type versionError uint16

func (v versionError) Error() string {
	return fmt.Sprintf("the other side speaks version %d of the pulse protocol, this one %d: "+
		"run the same image in the containers speaker and pulse", uint16(v), wireVersion)
}

// writeMessage sends one message.
func writeMessage(w io.Writer, body []byte) error {
	if len(body) > maxMessage {
		return fmt.Errorf("message of %d bytes: at most %d are allowed", len(body), maxMessage)
	}
	header := make([]byte, headerSize, headerSize+len(body))
	copy(header, magic[:])
	binary.BigEndian.PutUint16(header[2:], wireVersion)
	binary.BigEndian.PutUint32(header[4:], uint32(len(body)))
	_, err := w.Write(append(header, body...))
	return err
}

// readMessage receives one message. io.EOF says that the other side ended
// between two messages.
func readMessage(r io.Reader) ([]byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	if [2]byte(header[:2]) != magic {
		return nil, fmt.Errorf("message begins with %q, want %q: this is not the pulse protocol", header[:2], magic[:])
	}
	if v := binary.BigEndian.Uint16(header[2:]); v != wireVersion {
		return nil, versionError(v)
	}
	length := binary.BigEndian.Uint32(header[4:])
	if length > maxMessage {
		return nil, fmt.Errorf("message of %d bytes: at most %d are allowed", length, maxMessage)
	}
	// The buffer grows with what comes, not with what the header promises.
	body, err := io.ReadAll(io.LimitReader(r, int64(length)))
	if err == nil && len(body) < int(length) {
		err = io.ErrUnexpectedEOF
	}
	return body, err
}

// tableMessage carries a table. Number is chosen by the agent and comes back
// with the states that follow from this table.
type tableMessage struct {
	Number uint64    `json:"number"`
	Table  wireTable `json:"table"`
}

type wireTable struct {
	Node      string              `json:"node"`
	NodeAddrs []netip.Addr        `json:"nodeAddrs,omitempty"`
	Peers     map[string]wirePeer `json:"peers,omitempty"`
	Key       []byte              `json:"key,omitempty"`
	Serving   bool                `json:"serving"`
	Unable    []netip.Addr        `json:"unable,omitempty"`
	Leaving   bool                `json:"leaving,omitempty"`
	ShutsDown bool                `json:"shutsDown,omitempty"`
	// Names are the nodes that candidates are given by index of.
	Names []string `json:"names,omitempty"`
	// Sets are of such nodes, sorted, and Tiers of such sets: the order of candidates that claims share.
	Sets   [][]int     `json:"sets,omitempty"`
	Tiers  [][]int     `json:"tiers,omitempty"`
	Claims []wireClaim `json:"claims,omitempty"`
	// Elsewhere have no claim, since this node is no candidate for them.
	Elsewhere []netip.Addr `json:"elsewhere,omitempty"`
	// BFD has the sessions by BGPPeer name.
	BFD        map[string]wireBFD `json:"bfd,omitempty"`
	Unnumbered []string           `json:"unnumbered,omitempty"`
}

type wireBFD struct {
	Peer     netip.Addr `json:"peer"`
	Local    netip.Addr `json:"local,omitzero"`
	MultiHop bool       `json:"multiHop,omitempty"`
	// HopsByNetwork is unknown to a pulse that is older than it, which then has BFD over one hop, as
	// it had with such a router before.
	HopsByNetwork bool          `json:"hopsByNetwork,omitempty"`
	MinTTL        uint8         `json:"minTTL,omitempty"`
	Transmit      time.Duration `json:"transmit"` // ns, as Receive
	Receive       time.Duration `json:"receive"`
	Multiplier    uint8         `json:"multiplier"`
	Passive       bool          `json:"passive,omitempty"`
}

// check refuses what no session can be made of.
func (b wireBFD) check() error {
	switch {
	case !b.Peer.IsValid() || b.Peer.Is4In6() || b.Peer.Zone() != "" && !b.Peer.IsLinkLocalUnicast():
		return fmt.Errorf("BFD session with the address %v", b.Peer)
	case b.Local.IsValid() && (b.Local.Is4() != b.Peer.Is4() || b.Local.Zone() != b.Peer.Zone()):
		return fmt.Errorf("BFD session from %v to %v", b.Local, b.Peer)
	case b.Transmit <= 0 || b.Receive < 0 || max(b.Transmit, b.Receive) > time.Hour || b.Multiplier == 0:
		return fmt.Errorf("BFD session with %v: every %v and %v, %d times", b.Peer, b.Transmit, b.Receive, b.Multiplier)
	}
	return nil
}

type wirePeer struct {
	Addrs []netip.Addr `json:"addrs,omitempty"`
	Ready bool         `json:"ready"`
}

type wireClaim struct {
	Address    netip.Addr `json:"address"`
	Candidates []int      `json:"candidates,omitempty"`
	Interfaces []string   `json:"interfaces,omitempty"`
	// Named are candidates, too. AllNamed is in their place if they are all of them.
	Named    []int `json:"named,omitempty"`
	AllNamed bool  `json:"allNamed,omitempty"`
	// Tiers are in the place of Candidates, and NamedSet in that of Named. All three are counted from 1; 0: none.
	// First is the node that comes before its tier.
	Tiers    int `json:"tiers,omitempty"`
	First    int `json:"first,omitempty"`
	NamedSet int `json:"namedSet,omitempty"`
	// AnnounceInterval, in ns, is absent from an agent that is older than it: such an agent's pulse
	// repeated no announcement either.
	AnnounceInterval time.Duration `json:"announceInterval,omitempty"`
}

// read gives the claim. It refuses what would have announcements without a pause.
func (c wireClaim) read(names []string) (desired.Candidacy, error) {
	claim := desired.Candidacy{Interfaces: c.Interfaces, AnnounceInterval: c.AnnounceInterval}
	switch {
	case !c.Address.IsValid():
		return claim, errors.New("a claim without an address")
	case c.AnnounceInterval != 0 && c.AnnounceInterval < time.Second:
		return claim, fmt.Errorf("claim for %s: announced every %v", c.Address, c.AnnounceInterval)
	}
	for _, list := range []struct {
		of   []int
		into *[]string
	}{{c.Candidates, &claim.Candidates}, {c.Named, &claim.Named}} {
		for _, i := range list.of {
			if i < 0 || i >= len(names) {
				return claim, fmt.Errorf("claim for %s: candidate %d of %d names", c.Address, i, len(names))
			}
			*list.into = append(*list.into, names[i])
		}
	}
	// An agent of an older release does not say of whom interfaces are named; then it is of all.
	if c.AllNamed || len(c.Interfaces) > 0 && len(claim.Named) == 0 {
		claim.Named = slices.Clone(claim.Candidates)
	}
	slices.Sort(claim.Named)
	return claim, nil
}

// encode renders a table with tiers, or for a pulse that cannot read these; equal tables give equal bytes.
func encode(t api.Table, tiers bool) ([]byte, error) {
	w := wireTable{
		Node: t.Node, NodeAddrs: t.NodeAddrs, Key: []byte(t.Key),
		Serving: t.Serving, Unable: t.Unable, Leaving: t.Leaving, ShutsDown: t.ShutsDown,
		Elsewhere: t.Elsewhere, Unnumbered: t.Unnumbered,
		Peers: make(map[string]wirePeer, len(t.Peers)),
	}
	for node, p := range t.Peers {
		w.Peers[node] = wirePeer(p)
	}
	if len(t.BFD) > 0 {
		w.BFD = make(map[string]wireBFD, len(t.BFD))
	}
	for name, b := range t.BFD {
		w.BFD[name] = wireBFD(b)
	}
	w.encodeClaims(t.Claims, tiers)
	return json.Marshal(w)
}

// encodeTableMessage wraps an encoded table.
func encodeTableMessage(number uint64, table json.RawMessage) ([]byte, error) {
	return json.Marshal(struct {
		Number uint64          `json:"number"`
		Table  json.RawMessage `json:"table"`
	}{number, table})
}

// table reads a table and its number.
func (r *reader) table(body []byte) (api.Table, uint64, error) {
	var m tableMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return api.Table{}, 0, fmt.Errorf("table message: %w", err)
	}
	w := m.Table
	if w.Node == "" {
		return api.Table{}, 0, errors.New("table message: it names no node")
	}
	t := api.Table{
		Node: w.Node, NodeAddrs: w.NodeAddrs, Key: view.Secret(w.Key),
		Serving: w.Serving, Unable: w.Unable, Leaving: w.Leaving, ShutsDown: w.ShutsDown,
		Elsewhere: w.Elsewhere, Unnumbered: w.Unnumbered,
		Peers: make(map[string]hello.Peer, len(w.Peers)),
		BFD:   make(map[string]desired.BFD, len(w.BFD)),
	}
	for name, b := range w.BFD {
		if err := b.check(); err != nil {
			return api.Table{}, 0, fmt.Errorf("table message: %w", err)
		}
		t.BFD[name] = desired.BFD(b)
	}
	for node, p := range w.Peers {
		t.Peers[node] = hello.Peer(p)
	}
	var err error
	if t.Claims, err = r.claims(w); err != nil {
		return api.Table{}, 0, fmt.Errorf("table message: %w", err)
	}
	return t, m.Number, nil
}

// stateMessage carries a state. Number is that of the table which the state
// follows from; 0 while no table came over this connection.
type stateMessage struct {
	Number uint64    `json:"number"`
	State  wireState `json:"state"`
	// Tiers: the sender reads tables with tiers.
	Tiers bool `json:"tiers,omitempty"`
}

type wireState struct {
	Settled bool         `json:"settled"`
	Alive   []string     `json:"alive,omitempty"`
	Silent  []string     `json:"silent,omitempty"`
	Owned   []wireOwned  `json:"owned,omitempty"`
	Unable  []netip.Addr `json:"unable,omitempty"`
	CutOff  []netip.Addr `json:"cutOff,omitempty"`
	// CutLinks are names of interfaces.
	CutLinks []string `json:"cutLinks,omitempty"`
	// Left is by node.
	Left map[string][]netip.Addr `json:"left,omitempty"`
	// Handover is why connections are not handed over.
	Handover string `json:"handover,omitempty"`

	Contested []wireContest `json:"contested,omitempty"`
	Doubted   []wireDoubt   `json:"doubted,omitempty"`

	BFD map[string]bfd.Status `json:"bfd,omitempty"`

	Adjacent map[string]wireAdjacency `json:"adjacent,omitempty"`
}

type wireAdjacency struct {
	Local   netip.Addr `json:"local,omitzero"`
	Router  netip.Addr `json:"router,omitzero"`
	Trouble string     `json:"trouble,omitempty"`
}

// check refuses what is no adjacency over the interface.
func (a wireAdjacency) check(over string) error {
	for _, address := range []netip.Addr{a.Local, a.Router} {
		if address.IsValid() && (!address.Is6() || !address.IsLinkLocalUnicast() || address.Zone() != over) {
			return fmt.Errorf("adjacency over %s with the address %v", over, address)
		}
	}
	if a.Router.IsValid() && !a.Local.IsValid() {
		return fmt.Errorf("adjacency over %s with %v from no address", over, a.Router)
	}
	return nil
}

type wireContest struct {
	Address   netip.Addr `json:"address"`
	Station   string     `json:"station"`
	Node      string     `json:"node,omitempty"`
	Interface string     `json:"interface"`
	Since     time.Time  `json:"since"`
	Withheld  bool       `json:"withheld,omitempty"`
}

type wireDoubt struct {
	Address   netip.Addr `json:"address"`
	Owner     string     `json:"owner"`
	Node      string     `json:"node,omitempty"`
	Station   string     `json:"station,omitempty"`
	Alone     bool       `json:"alone,omitempty"`
	Interface string     `json:"interface"`
	Since     time.Time  `json:"since"`
}

type wireOwned struct {
	Address    netip.Addr `json:"address"`
	Interfaces []string   `json:"interfaces,omitempty"`
	Since      time.Time  `json:"since"`
	Dead       []string   `json:"dead,omitempty"`
	Unable     []string   `json:"unable,omitempty"`
	Distant    []string   `json:"distant,omitempty"`
	Next       string     `json:"next,omitempty"`
}

func encodeStateMessage(number uint64, s api.State) ([]byte, error) {
	w := wireState{Settled: s.Settled, Alive: s.Alive, Silent: s.Silent, Unable: s.Unable, CutOff: s.CutOff, CutLinks: s.CutLinks, Handover: s.Handover, BFD: s.BFD}
	for a, o := range s.Owned {
		w.Owned = append(w.Owned, wireOwned{a, o.Interfaces, o.Since, o.Dead, o.Unable, o.Distant, o.Next})
	}
	slices.SortFunc(w.Owned, func(a, b wireOwned) int { return a.Address.Compare(b.Address) })
	for a, c := range s.Contested {
		w.Contested = append(w.Contested, wireContest{a, c.Station, c.Node, c.Interface, c.Since, c.Withheld})
	}
	w.Left = byNode(s.Left)
	if len(s.Adjacent) > 0 {
		w.Adjacent = make(map[string]wireAdjacency, len(s.Adjacent))
	}
	for over, a := range s.Adjacent {
		w.Adjacent[over] = wireAdjacency(a)
	}
	slices.SortFunc(w.Contested, func(a, b wireContest) int { return a.Address.Compare(b.Address) })
	for a, d := range s.Doubted {
		w.Doubted = append(w.Doubted, wireDoubt{a, d.Owner, d.Node, d.Station, d.Alone, d.Interface, d.Since})
	}
	slices.SortFunc(w.Doubted, func(a, b wireDoubt) int { return a.Address.Compare(b.Address) })
	return json.Marshal(stateMessage{Number: number, State: w, Tiers: true})
}

// byNode turns a map round; its lists are sorted. nil if there is nothing in it.
func byNode(nodes map[netip.Addr]string) map[string][]netip.Addr {
	if len(nodes) == 0 {
		return nil
	}
	addresses := map[string][]netip.Addr{}
	for a, node := range nodes {
		addresses[node] = append(addresses[node], a)
	}
	for _, some := range addresses {
		slices.SortFunc(some, netip.Addr.Compare)
	}
	return addresses
}

// byAddress turns it back.
func byAddress(addresses map[string][]netip.Addr) (map[netip.Addr]string, error) {
	nodes := map[netip.Addr]string{}
	for node, some := range addresses {
		for _, a := range some {
			if !a.IsValid() {
				return nil, fmt.Errorf("no address with node %q", node)
			}
			nodes[a] = node
		}
	}
	return nodes, nil
}

func decodeStateMessage(body []byte) (api.State, uint64, error) {
	var m stateMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return api.State{}, 0, fmt.Errorf("state message: %w", err)
	}
	s := api.State{
		Settled: m.State.Settled, Alive: m.State.Alive, Silent: m.State.Silent, Unable: m.State.Unable, CutOff: m.State.CutOff, CutLinks: m.State.CutLinks,
		Handover: m.State.Handover, BFD: m.State.BFD,
		Owned:     make(map[netip.Addr]api.Ownership, len(m.State.Owned)),
		Contested: make(map[netip.Addr]api.Contest, len(m.State.Contested)),
		Doubted:   make(map[netip.Addr]api.Doubt, len(m.State.Doubted)),
		Adjacent:  make(map[string]view.Adjacency, len(m.State.Adjacent)),
	}
	for over, a := range m.State.Adjacent {
		if err := a.check(over); err != nil {
			return api.State{}, 0, fmt.Errorf("state message: %w", err)
		}
		s.Adjacent[over] = view.Adjacency(a)
	}
	var err error
	if s.Left, err = byAddress(m.State.Left); err != nil {
		return api.State{}, 0, fmt.Errorf("state message: left: %w", err)
	}
	for _, c := range m.State.Contested {
		if !c.Address.IsValid() {
			return api.State{}, 0, errors.New("state message: a contest without an address")
		}
		s.Contested[c.Address] = api.Contest{Station: c.Station, Node: c.Node, Interface: c.Interface, Since: c.Since, Withheld: c.Withheld}
	}
	for _, d := range m.State.Doubted {
		if !d.Address.IsValid() {
			return api.State{}, 0, errors.New("state message: a doubt about no address")
		}
		s.Doubted[d.Address] = api.Doubt{Owner: d.Owner, Node: d.Node, Station: d.Station, Alone: d.Alone, Interface: d.Interface, Since: d.Since}
	}
	for _, o := range m.State.Owned {
		if !o.Address.IsValid() {
			return api.State{}, 0, errors.New("state message: an owned entry without an address")
		}
		s.Owned[o.Address] = api.Ownership{Interfaces: o.Interfaces, Since: o.Since, Dead: o.Dead, Unable: o.Unable, Distant: o.Distant, Next: o.Next}
	}
	return s, m.Number, nil
}
