package blackbox_test

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/iptables"
	"fairlead.dev/fairlead/speaker/forwarding/nftables"
)

// TestMain has more tests run side by side than there are processors: most of the
// time they wait for silence.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	netlab.LocksApart(m.Run)
}

// answerIn is long enough for any answer, silenceAfter for a machine under load to have answered.
var (
	answerIn     = netlab.Patience(blackbox.AnswerIn)
	silenceAfter = netlab.Patience(250 * time.Millisecond)
)

// contender is a backend under test.
type contender struct {
	name   string
	create func() (blackbox.Backend, error)
	// flush is a shell command by which somebody else removes all rules.
	flush string
	// firewall is the program whose policies and rules the backend overrules, if it
	// overrules any.
	firewall map[addr.Family]string
	// takes is the bit of the mark that the backend takes of packets of Services.
	takes uint32
	// latest is what create made last, where a test has to get at it.
	latest *blackbox.Backend
}

// contenders are all backends; a new one gets its line here.
var contenders = inPortions(0)

// inPortions are all backends that write so many rows at a time of a large Service; 0: as they do.
func inPortions(portion int) []contender {
	return []contender{
		ipt(iptables.NFT, portion),
		ipt(iptables.Legacy, portion),
		{ // what another table drops it cannot accept
			name: "nftables",
			create: func() (blackbox.Backend, error) {
				return nftables.New(nftables.Config{Log: blackbox.Quiet(), Portion: portion}), nil
			},
			flush: "nft flush ruleset",
		},
	}
}

func ipt(variant iptables.Variant, portion int) contender {
	v4, v6 := "iptables-"+string(variant), "ip6tables-"+string(variant)
	return contender{
		name: v4,
		create: func() (blackbox.Backend, error) {
			return iptables.New(iptables.Config{Log: blackbox.Quiet(), Variant: variant, Portion: portion, Patience: netlab.Patience(10 * time.Second)}), nil
		},
		flush:    strings.NewReplacer("v4", v4, "v6", v6).Replace("v4 -t nat -F && v6 -t nat -F && v4 -F && v6 -F"),
		firewall: map[addr.Family]string{addr.IPv4: v4, addr.IPv6: v6}, takes: desired.MasqueradeMark,
	}
}

// cluster is a network whose node has the backend under test.
type cluster struct {
	*blackbox.Cluster
	contender
	t *testing.T
}

// eachBackend runs a test for each backend, on a cluster of its own.
func eachBackend(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Parallel()
	each(t, contenders, test)
}

// eachInFirewall is eachBackend for those whose rules are in the tables of the host's
// firewall: what another table drops nobody can accept.
func eachInFirewall(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Parallel()
	each(t, slices.DeleteFunc(slices.Clone(contenders), func(b contender) bool { return b.firewall == nil }), test)
}

func each(t *testing.T, backends []contender, test func(t *testing.T, c *cluster)) {
	t.Helper()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, &cluster{blackbox.NewCluster(t, b.create), b, t})
		})
	}
}
