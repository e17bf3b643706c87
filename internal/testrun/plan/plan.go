// Package plan says which tests there are in the gate and in the shares, and which of them words ask for.
package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Group is one run of go test.
type Group struct {
	Flags    string   // of go test
	Packages []string // patterns of go list; none: all packages that no other group names
	Gentle   bool     // it burns the processors, and gives way to what waits for timers beside it
}

// Lane is groups that run one after another.
type Lane []Group

// Phase is lanes beside one another: what waits for timers takes no time from what needs the processors. They are few: what runs
// at once takes each other's cache, and among ten tests and links an API server took 11 to 24 seconds of a processor to start, for 5 to 8 alone.
type Phase []Lane

// share is a part of all tests that takes a quarter of an hour at most.
type share struct {
	name string
	Phase
}

const (
	// short has testing.Short choose: BGP scripts in a pairwise choice of neighbourhoods, a tenth
	// of the simulated histories, a fifth of what properties are tried with, Kubernetes' tests
	// in one mode of forwarding, and a few of the faults.
	// A test has its own limits. Those of a package are for one that hangs, and hold on a machine of a third of the speed, too.
	short = "-short -timeout=40m "
	whole = "-race -timeout=60m "
	// Servers of GoBGP write variables of its packages when they start, always with the same
	// values: it alone is built without the race detector.
	bgpWhole = whole + "-gcflags=github.com/osrg/gobgp/v3/...=-race=false "

	// many has more packages tested at once than there are processors: most wait for an API server or for
	// timers, and two at a time left a processor idle for minutes.
	many = "-p=4 "

	// later is what the gate leaves out, minutes each: the scenarios about what Fairlead replaces and what replaces
	// it, what tries the lab and not Fairlead, a second cluster of Kubernetes' tests, in the lab what TestCrashes of
	// the controller does beside an API server, other pod networks, a cluster of one node, the scenarios about rare changes of a node, a node that flaps among
	// them, and about many connections, releases, an uninstall that waits for leases, the benches' tests, every way in which objects are restored,
	// a bridge with each of its settings, and going back to an older release.
	later = "IsReplacedAndComesBack$|^TestLab$|^TestAnotherCluster$|^TestControllersCrash$|^TestAnotherModeOfForwarding$" +
		"|^TestNetworkCardsComeAndGo$|^TestALinkFlaps$|^TestANodeThatFlapsComesLast$|^TestANodeDiesWhileTablesDiffer$|^TestWhatBreaksLayer2IsTold$|^TestAnUpgradeUnderManyConnections$" +
		"|^TestSpeakersRestartUnderLoad$|^TestLargePacketsPass$|^TestNetworkPolicies$|^TestFlannel$|^TestTwoReleasesAreTheSame$|^TestReleases$" +
		"|^TestMainScenariosOverIPv6Alone$|^TestOneNodeIsTheControlPlane$|^TestUninstallClearsStatuses$|^TestAllocationIsMeasured$|^TestForwardingIsMeasured$"
)

// The packages that have groups of their own.
var (
	bgp     = []string{"./speaker/bgp"}
	packets = []string{"./speaker/forwarding/blackbox", "./speaker/forwarding/iptables", "./speaker/forwarding/nftables"}
	hellos  = []string{"./speaker/pulse/hello"}
	waiting = []string{"./speaker/pulse/command", "./speaker/watch", "./speaker/report/statuswriter"}
	// burning simulate, render and read sources, which takes many times as long with the race detector: it is left to the shares.
	burning = []string{"./speaker/pulse", "./charts", "./api/v1beta1", "./internal/houserules", "./docs"}
	// concurrent are those in which goroutines share memory. A merge must pass the race detector in them; the shares have it in all. It doubles
	// what it takes to link a test, and that is a third of what a gate takes.
	concurrent = []string{
		"./controller/firstcontact", "./controller/leasefence", "./controller/ledger/configmaps", "./controller/reconcile", "./controller/uninstall",
		"./internal/apiservers", "./internal/asynclog", "./internal/gauge", "./internal/relist", "./internal/run", "./internal/serve/...",
		"./speaker", "./speaker/agent", "./speaker/bridge", "./speaker/forwarding", "./speaker/forwarding/conntrack", "./speaker/health", "./speaker/links/...",
		"./speaker/netfilter/kernelwatch", "./speaker/pulse/adjacency", "./speaker/pulse/bfd", "./speaker/pulse/handover", "./speaker/pulse/linkcheck",
		"./speaker/pulse/neighbour", "./speaker/pulse/socket", "./speaker/report", "./speaker/shutdown",
	}
	lab       = []string{"./e2e/lab", "./e2e/conformance", "./e2e/faults"}
	scenarios = []string{"./e2e/scenarios"}
	// others start labs of their own kind: with another pod network, without IPv4 and with one node.
	others = []string{"./e2e/podnetworks/policies", "./e2e/podnetworks/ipv6", "./e2e/podnetworks/onenode"}
	// released makes releases, which compiles all for six platforms.
	released = []string{"./e2e/released"}
	labs     = slices.Concat(lab, scenarios, others, released)
)

// gate is what a merge must pass. The lab comes first by the weight of its cgroups, and beside it run tests that a busy processor delays but does
// not fail. Those of routers whose BFD ends a session, and of iptables, whose programs are killed when they seem to hang, run after it.
func gate() []Phase {
	return []Phase{
		{
			{{Flags: short + "-p=1 -skip=" + later, Packages: slices.Concat(lab, scenarios)}},
			{{Flags: short, Packages: waiting}},
			{
				{Flags: short + "-skip=" + later, Packages: slices.Concat(hellos, burning), Gentle: true},
				{Flags: short + "-skip=" + later, Gentle: true},
			},
		},
		{
			{{Flags: short, Packages: bgp}},
			{{Flags: short + "-skip=" + later, Packages: packets}},
			{{Flags: short + "-race -skip=" + later, Packages: concurrent}},
		},
	}
}

// shares are all tests there are, in whole and with the race detector.
func shares() []share {
	return []share{
		{"all that is in no other share", Phase{
			{{Flags: whole + many}}, {{Flags: whole, Packages: concurrent}, {Flags: whole, Packages: slices.Concat(packets, burning), Gentle: true}},
		}},
		{"BGP", Phase{{{Flags: bgpWhole, Packages: bgp}}}},
		{"hellos, and what waits longest", Phase{{{Flags: whole, Packages: hellos, Gentle: true}}, {{Flags: whole, Packages: waiting}}}},
		{"scenarios", Phase{{{Flags: whole, Packages: scenarios}}}},
		{"the lab, Kubernetes' tests and faults", Phase{{{Flags: whole + "-p=1", Packages: lab}}}},
		{"another pod network, and one node", Phase{{{Flags: whole + "-p=1", Packages: others}}}},
		{"releases", Phase{{{Flags: whole, Packages: released}}}},
	}
}

// Of is what the words ask for, one after the other. It tells out which shares these are.
// An error names the word that asks for nothing.
func Of(words []string, out io.Writer) ([]Phase, error) {
	all := shares()
	var phases []Phase
	add := func(i int) {
		fmt.Fprintf(out, "share %d of %d: %s\n", i+1, len(all), all[i].name)
		phases = append(phases, all[i].Phase)
	}
	for _, word := range words {
		number, notNumber := strconv.Atoi(word)
		hash, isHash := new(big.Int).SetString(word, 16)
		switch {
		case word == "gate":
			phases = append(phases, gate()...)
		case word == "all":
			for i := range all {
				add(i)
			}
		case notNumber == nil && 1 <= number && number <= len(all):
			add(number - 1)
		case isHash && len(word) == 40:
			add(int(hash.Mod(hash, big.NewInt(int64(len(all)))).Int64()))
		default:
			return nil, fmt.Errorf("%q is not gate, all, a share from 1 to %d or the hash of a commit", word, len(all))
		}
	}
	if phases == nil {
		return nil, errors.New("say what to run: gate, all, the number of a share or the hash of a commit")
	}
	return phases, nil
}

// Groups are those of all lanes.
func (p Phase) Groups() []Group { return slices.Concat(p...) }

// Listed are the packages of the group, or an error of go list.
func (g Group) Listed(ctx context.Context) ([]string, error) {
	if g.Packages != nil {
		return g.Packages, nil
	}
	all, err := goList(ctx, "./...")
	if err != nil {
		return nil, err
	}
	named, err := goList(ctx, slices.Concat(bgp, packets, hellos, waiting, burning, concurrent, labs)...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p string) bool { return slices.Contains(named, p) }), nil
}

func goList(ctx context.Context, patterns ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"list"}, patterns...)...).Output()
	return strings.Fields(string(out)), err
}

// String is how the group is told of.
func (g Group) String() string {
	packages := "the other packages"
	if g.Packages != nil {
		packages = strings.Join(g.Packages, " ")
	}
	return "go test " + strings.TrimSpace(g.Flags) + " " + packages
}
