package houserules_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// ban keeps packages from what its paths match: from importing what is of the
// standard library, and from depending on all else, through others too. Tests
// are free. A path stands for itself and all below it.
type ban struct {
	packages []string
	from     []string
	except   []string // packages that may all the same
	because  string
}

var (
	// pure packages decide and touch nothing.
	pure = []string{
		"controller/verify", "controller/ledger",
		"controller/allocation", "speaker/desired", "speaker/election",
		"internal/view", "internal/peering", "internal/addr", "internal/problem",
	}
	// impure are packages below pure ones that do for them what these cannot.
	impure = []string{"internal/view/fromkube", "controller/ledger/configmaps"}
	// effects are what a pure package does without.
	effects = []string{"context", "log", "math/rand", "net", "os", "sync", "syscall", "github.com", module + "/api"}
	// appliers each bring one part of a node's wanted state about.
	appliers = []string{"speaker/forwarding", "speaker/bgp", "speaker/pulse", "speaker/health"}
	// kubernetes are all modules that know its API.
	kubernetes = []string{"k8s.io", "sigs.k8s.io"}
)

var bans = []ban{
	{
		packages: pure,
		from:     slices.Concat(effects, kubernetes),
		except:   impure,
		because:  "a decision depends on the snapshot alone, so that the same cluster always gives the same answer",
	},
	{
		packages: append([]string{"speaker/links", "speaker/netfilter"}, appliers...),
		from:     append([]string{module + "/api", module + "/internal/view/fromkube", module + "/internal/status"}, kubernetes...),
		because:  "an applier gets a whole wanted state; what is in Kubernetes is no business of the kernel's or a router's",
	},
	{
		packages: []string{"speaker/desired", "speaker/election", "speaker/watch"},
		from:     []string{module + "/speaker/outcome"},
		because:  "what a node is to do depends on the cluster alone, and not on how its last attempt went",
	},
	{
		packages: []string{"internal/view", "speaker/desired", "speaker/election", "speaker/watch"},
		from: []string{
			module + "/speaker/forwarding", module + "/speaker/bgp", module + "/speaker/pulse", module + "/speaker/health",
			module + "/speaker/agent", module + "/speaker/bridge", module + "/speaker/report",
		},
		because: "what is decided goes from the cluster to the appliers; what an applier knows by itself it also writes itself",
	},
	{
		packages: []string{"speaker/pulse/owner"},
		from:     []string{"context", "math/rand", "net", "os", "sync", "syscall"},
		because:  "which node answers is decided from what pulse collected, and pulse alone acts on it",
	},
	{
		packages: []string{"speaker/outcome"},
		from:     append([]string{"context", "log", "math/rand", "net", "os", "sync", "syscall", module + "/api"}, kubernetes...),
		because:  "appliers of all kinds say by it what became of their part, each with a clock of its own",
	},
	{
		packages: []string{"controller"},
		from:     []string{module + "/speaker"},
		because:  "the programs are released and restarted apart; what both need is in internal",
	},
	{
		packages: []string{"speaker"},
		from:     []string{module + "/controller"},
		because:  "the programs are released and restarted apart; what both need is in internal",
	},
	{
		packages: []string{"controller", "speaker"},
		from:     []string{module + "/internal/metallb", module + "/cmd"},
		because:  "MetalLB's objects are translated once, by who moves; a cluster that runs knows our kinds alone",
	},
	{
		packages: []string{"cmd"},
		from:     []string{module + "/controller", module + "/speaker"},
		because:  "a tool on somebody's desk is released apart from what runs in the cluster",
	},
	{
		packages: []string{"internal/metallb"},
		from:     []string{"context", "log", "math/rand", "net", "os", "sync", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", module + "/internal/view"},
		because:  "a translation depends on the objects alone, wherever they were read",
	},
	{
		packages: []string{"api"},
		from:     []string{module + "/internal", module + "/controller", module + "/speaker", "k8s.io/client-go", "sigs.k8s.io/controller-runtime/pkg/client"},
		because:  "others import the API; it must not bring our insides or a client along",
	},
	{
		packages: []string{""},
		from:     []string{"github.com/osrg/gobgp"},
		except:   []string{"speaker", "speaker/bgp"},
		because:  "one package knows the BGP library, so that it can be replaced",
	},
	{
		packages: []string{""},
		from:     []string{"github.com/mdlayher/arp", "github.com/mdlayher/ndp", "github.com/mdlayher/ethernet", "github.com/mdlayher/packet"},
		except: []string{
			"speaker", "speaker/pulse",
			"e2e/bench", // which runs pulse processes and speaks to them as the agent does
		},
		because: "frames are the business of pulse alone",
	},
	{
		packages: []string{"", "speaker"},
		from:     []string{"testing", "pgregory.net/rapid", module + "/internal/testenv", module + "/e2e"},
		except: []string{
			"internal/testenv", "e2e", "speaker/links/linkstest",
			"speaker/forwarding/blackbox", // the cluster that the tests of all backends share
		},
		because: "what helps tests is not shipped",
	},
}

// owned are the modules that some packages, or those below them, import, and nobody else.
var owned = map[string][]string{
	"github.com/osrg/gobgp":        {"speaker/bgp"},
	"github.com/google/nftables":   {"speaker/netfilter/nftable", "speaker/forwarding/nftables", "speaker/forwarding/reusedports", "speaker/pulse/handover", "speaker/pulse/untracked"},
	"github.com/mdlayher/netlink":  {"speaker/netfilter", "speaker/forwarding"},
	"github.com/mdlayher/arp":      {"speaker/pulse"},
	"github.com/mdlayher/ndp":      {"speaker/pulse"},
	"github.com/mdlayher/ethernet": {"speaker/pulse"},
	"github.com/mdlayher/packet":   {"speaker/pulse"},
}

// under reports whether path is prefix or below it.
func under(path, prefix string) bool {
	return prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

func underAny(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return under(path, prefix) })
}

// standard reports whether an import path is of the standard library.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func TestNobodyImportsWhatIsBanned(t *testing.T) {
	for _, p := range packages(t) {
		for _, ban := range bans {
			if !underAny(p.name(), ban.packages) || underAny(p.name(), ban.except) {
				continue
			}
			for _, path := range p.Deps {
				if path == "net/netip" || standard(path) && !slices.Contains(p.Imports, path) {
					continue // netip is plain values, unlike the rest of net
				}
				if underAny(path, ban.from) {
					t.Errorf("%s depends on %s, but %s", p.ImportPath, path, ban.because)
				}
			}
		}
	}
}

// A rule about a package that is gone or has another name guards nothing.
func TestRulesAreAboutPackagesThatExist(t *testing.T) {
	all := packages(t)
	named := slices.Concat(pure, impure, appliers, slices.Concat(slices.Collect(maps.Values(owned))...))
	for _, ban := range bans {
		named = slices.Concat(named, ban.packages, ban.except)
		for _, path := range ban.from {
			if own, ours := strings.CutPrefix(path, module+"/"); ours {
				named = append(named, own)
			}
		}
	}
	slices.Sort(named)
	for _, name := range slices.Compact(named) {
		if !slices.ContainsFunc(all, func(p goPackage) bool { return under(p.name(), name) }) {
			t.Errorf("a rule is about %s, and there is no such package", name)
		}
	}
}

func TestOnlyItsOwnerImportsAModule(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			for of, owners := range owned {
				if under(path, of) && !underAny(p.name(), owners) {
					t.Errorf("%s imports %s, which %s alone knows, so that it can be replaced", p.ImportPath, path, strings.Join(owners, " and "))
				}
			}
		}
	}
}

func TestAppliersDoNotKnowEachOther(t *testing.T) {
	for _, p := range packages(t) {
		for _, own := range appliers {
			if !under(p.name(), own) {
				continue
			}
			for _, other := range appliers {
				if other != own && slices.ContainsFunc(p.Imports, func(path string) bool { return under(path, module+"/"+other) }) {
					t.Errorf("%s imports %s, but only the agent knows the order in which appliers work", p.ImportPath, other)
				}
			}
		}
	}
}
