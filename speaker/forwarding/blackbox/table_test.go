package blackbox_test

import (
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// What the pods see as the source.
const (
	itself = "itself" // the sender's own address
	masked = "masked" // an address of the node
)

type expectation struct {
	from    string // client, node, p1, p2, p3
	to      string // kind of destination: clusterIP, vip, nodePort
	n       byte   // Service
	servers string // who may answer, by name; "" for nobody
	seen    string
	err     error
}

// expectations are the tables in desired.Port, row by row.
func expectations() []expectation {
	refused, silence := netlab.ErrRefused, netlab.ErrSilence
	return []expectation{
		{"p1", "clusterIP", 1, "p1 p2 p3", itself, nil},
		{"node", "clusterIP", 1, "p1 p2 p3", masked, nil},
		{"client", "clusterIP", 1, "p1 p2 p3", masked, nil},
		{"client", "vip", 1, "p1 p2 p3", masked, nil},
		{"p2", "vip", 1, "p1 p2 p3", masked, nil},
		{"node", "vip", 1, "p1 p2 p3", masked, nil},
		{"client", "nodePort", 1, "p1 p2 p3", masked, nil},
		{"p1", "nodePort", 1, "p1 p2 p3", masked, nil},
		{"node", "nodePort", 1, "p1 p2 p3", masked, nil},

		{"client", "vip", 2, "p1", itself, nil},
		{"client", "nodePort", 2, "p1", itself, nil},
		{"p2", "vip", 2, "p1 p3", itself, nil},
		{"p2", "nodePort", 2, "p1 p3", itself, nil},
		{"node", "vip", 2, "p1 p3", masked, nil},
		{"node", "nodePort", 2, "p1 p3", masked, nil},
		{"p2", "clusterIP", 2, "p1 p3", itself, nil},

		{"client", "vip", 3, "", "", silence},
		{"client", "nodePort", 3, "", "", silence},
		{"p1", "vip", 3, "p3", itself, nil},
		{"node", "vip", 3, "p3", masked, nil},
		{"node", "nodePort", 3, "p3", masked, nil},

		{"client", "vip", 4, "", "", refused},
		{"client", "nodePort", 4, "", "", refused},
		{"client", "clusterIP", 4, "", "", refused},
		{"p1", "clusterIP", 4, "", "", refused},
		{"p1", "vip", 4, "", "", refused},
		{"p1", "nodePort", 4, "", "", refused},
		{"node", "clusterIP", 4, "", "", refused},
		{"node", "vip", 4, "", "", refused},
		{"node", "nodePort", 4, "", "", refused},

		{"client", "vip", 5, "p2", masked, nil},
		{"p1", "vip", 5, "", "", silence},
		{"node", "vip", 5, "", "", silence},
		{"client", "vip", 6, "", "", silence},
		{"client", "nodePort", 6, "p2", masked, nil},
		{"p1", "clusterIP", 6, "p2", itself, nil},

		{"p1", "clusterIP", 7, "p1", masked, nil},
		{"p1", "vip", 7, "p1", masked, nil},
		{"p1", "nodePort", 7, "p1", masked, nil},

		{"p2", "clusterIP", 8, "p1", itself, nil},
		{"client", "vip", 8, "p1 p3", masked, nil},
		{"p1", "clusterIP", 9, "", "", silence},
		{"client", "vip", 9, "p3", masked, nil},

		{"client", "vip", 10, "", "", refused},
		{"p1", "vip", 10, "", "", silence},
		{"p1", "clusterIP", 10, "", "", refused},
	}
}

// TestOracle holds the oracle, which the tests with packets believe, to a table
// that people can read.
func TestOracle(t *testing.T) {
	believe(t, blackbox.Forwarding(blackbox.Services()...), expectations())
}

// believe holds what the oracle says of a wanted state to a table.
func believe(t *testing.T, want desired.Forwarding, table []expectation) {
	t.Helper()
	for _, f := range addr.Families() {
		a := blackbox.Plan(f)
		o := oracle{a, want}
		own := map[string]netip.Addr{"client": a.Client, "node": a.Node, "p1": a.P1, "p2": a.P2, "p3": a.P3}
		for _, e := range table {
			to := map[string]netip.AddrPort{
				"clusterIP": netip.AddrPortFrom(blackbox.Nth(a.ClusterIPs, e.n), 80),
				"vip":       netip.AddrPortFrom(blackbox.Nth(a.VIPs, e.n), 80),
				"nodePort":  netip.AddrPortFrom(a.Node, 30000+uint16(e.n)),
			}[e.to]
			got, ok := o.verdict(question{view.TCP, own[e.from], to})
			want := reply{err: e.err, answers: map[answer]bool{}}
			for server := range strings.FieldsSeq(e.servers) {
				want.answers[answer{server, blackbox.ServePort, e.seen == masked || server == e.from}] = true
			}
			if !ok || !errors.Is(got.err, want.err) || !maps.Equal(got.answers, want.answers) {
				t.Errorf("%s: %s -> %s of Service %d: the oracle says %s, the table %s", f, e.from, e.to, e.n, got, want)
			}
		}
	}
}
