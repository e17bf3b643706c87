package owner

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/linkcheck"
)

func (m *Machine) warn(message string, args ...any) { m.find(slog.LevelWarn, message, args) }

func (m *Machine) info(message string, args ...any) { m.find(slog.LevelInfo, message, args) }

func (m *Machine) find(level slog.Level, message string, args []any) {
	r := slog.NewRecord(m.now, level, message, 0)
	r.Add(args...)
	m.out.Findings = append(m.out.Findings, r)
}

// separate finds out about the links of which the mesh says nothing, takes those out of the reach that are cut off,
// and returns what is to be monitored.
func (m *Machine) separate(r reach, networks networks) linkcheck.Wanted {
	v, status := m.in.View, m.in.LinkCheck
	all, on := networks.all(), networks.apartFrom(m.table.NodeAddrs)
	before := m.isolation.cut
	m.isolation.judge(m.node, v, on, status)
	for _, l := range on {
		switch is := m.isolation.cut[l.Index]; {
		case is && !before[l.Index]:
			m.warn("no node is heard over an interface, and other nodes hear each other there: its addresses are left to them; "+
				"look at its cable, its VLAN and the port of the switch", "interface", l.Name)
		case !is && before[l.Index]:
			m.info("nodes are heard over the interface again", "interface", l.Name)
		}
	}
	m.told.connect(m.isolation.told(all, status))
	m.isolation.limit(r, m.table, v, status)
	return monitored(m.table, on)
}

// findAbsent finds which nodes count as dead without a hello, for the mesh to be told.
func (m *Machine) findAbsent() {
	dead := m.unheard.dead()
	if slices.Equal(dead, m.absent) {
		return
	}
	for _, node := range dead {
		if !slices.Contains(m.absent, node) {
			m.warn("a node was never heard and does not answer for its own addresses: it counts as dead, though Kubernetes says that it is ready",
				"node", node, "addresses", m.table.Peers[node].Addrs)
		}
	}
	for _, node := range m.absent {
		if !slices.Contains(dead, node) {
			m.info("the node is heard, or counts as Kubernetes says again", "node", node)
		}
	}
	m.absent, m.told.stale = dead, true
}

// findLeft tells of the addresses that are left to other nodes.
func (m *Machine) findLeft(left map[netip.Addr]bool) {
	before, news := m.state.Left, map[string][]netip.Addr{}
	for a := range left {
		if node := m.arbitration.of[a].with; before[a] != node {
			news[node] = append(news[node], a)
		}
	}
	for node, addresses := range news {
		slices.SortFunc(addresses, netip.Addr.Compare)
		m.warn("another node answers for addresses that are this one's by its table; they are left to that node: see whether both reach the API server",
			"addresses", addresses, "node", node, "heardInHellos", !m.arbitration.of[addresses[0]].mute)
	}
	over := slices.DeleteFunc(slices.Collect(maps.Keys(before)), func(a netip.Addr) bool { return left[a] })
	if len(over) > 0 {
		slices.SortFunc(over, netip.Addr.Compare)
		m.info("addresses are not left to another node any more", "addresses", over)
	}
}

// findMoves tells of the addresses that are answered for since now, and those that are not any more.
func (m *Machine) findMoves(last, next api.State, taken []netip.Addr) {
	var lost []netip.Addr
	for a := range last.Owned {
		if _, still := next.Owned[a]; !still {
			lost = append(lost, a)
		}
	}
	if len(taken)+len(lost) > 0 {
		m.info("answering for other addresses than before", "taken", some(taken), "lost", some(lost), "owned", len(next.Owned))
	}
}

// some are the first of the addresses for a line of the log, and how many there are beside them: tens
// of thousands may move at once.
func some(all []netip.Addr) []string {
	const most = 20
	slices.SortFunc(all, netip.Addr.Compare)
	var told []string
	for _, a := range all[:min(len(all), most)] {
		told = append(told, a.String())
	}
	if more := len(all) - most; more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	return told
}

// findContests tells which stations have addresses of ours, when that changes.
func (m *Machine) findContests(before, now map[netip.Addr]api.Contest) {
	for _, a := range slices.SortedFunc(maps.Keys(now), netip.Addr.Compare) {
		if c := now[a]; before[a] != c {
			m.warn("another station, or an interface of a node, has an address of ours", "address", a, "station", c.Station,
				"node", c.Node, "interface", c.Interface, "withheld", c.Withheld, "clientsLeftToIt", c.Yielded)
		}
	}
	for a, c := range before {
		if _, still := now[a]; !still {
			m.info("the address is contested no more", "address", a, "station", c.Station)
		}
	}
}

// findKernels tells which nodes go on without hellos, when that changes.
func (m *Machine) findKernels() {
	before := m.answering
	m.answering = m.dataplanes.answering()
	for _, node := range m.answering {
		if !slices.Contains(before, node) {
			m.info("the hellos of a node have ended and its kernel answers: connections that it has are still handed over to it", "node", node)
		}
	}
	for _, node := range before {
		if !slices.Contains(m.answering, node) {
			m.info("the node is heard again, or its kernel answers no more", "node", node)
		}
	}
}
