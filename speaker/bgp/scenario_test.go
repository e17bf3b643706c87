package bgp

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"fairlead.dev/fairlead/internal/testenv/netlab"
)

// cell is one kind of neighbourhood in which a scenario is tried.
type cell struct {
	router string // frr or bird
	as     string // ebgp or ibgp
	hops   string // single or multihop
	family string // ipv4, ipv6 or both, on one session over IPv4
}

// dimensions are the values of a cell, in the order of its fields.
func dimensions() [4][]string {
	return [4][]string{{"frr", "bird"}, {"ebgp", "ibgp"}, {"single", "multihop"}, {"ipv4", "ipv6", "both"}}
}

func (c cell) values() []string { return []string{c.router, c.as, c.hops, c.family} }

// String is its name in that of the test.
func (c cell) String() string { return strings.Join(c.values(), "-") }

// matrix reads in which cells a script is tried: in those of its line "# matrix: ..." with one of
// the values that are named of each dimension, or with any where none is named.
func matrix(script string) ([]cell, error) {
	_, line, found := strings.Cut(script, "\n# matrix:")
	if !found {
		return nil, fmt.Errorf("no line with %q", "# matrix: ")
	}
	line, _, _ = strings.Cut(line, "\n")
	all := dimensions()
	var chosen [4][]string
	for word := range strings.FieldsSeq(line) {
		at := slices.IndexFunc(all[:], func(values []string) bool { return slices.Contains(values, word) })
		if at < 0 && word != "all" {
			return nil, fmt.Errorf("the matrix has no %q: its values are %v", word, all)
		}
		if at >= 0 {
			chosen[at] = append(chosen[at], word)
		}
	}
	for i := range chosen {
		if chosen[i] == nil {
			chosen[i] = all[i]
		}
	}
	var cells []cell
	for _, router := range chosen[0] {
		for _, as := range chosen[1] {
			for _, hops := range chosen[2] {
				for _, family := range chosen[3] {
					cells = append(cells, cell{router, as, hops, family})
				}
			}
		}
	}
	return cells, nil
}

// pairwise chooses few of a script's cells, in which any two values meet that do in one of all.
// The script's name decides which, so that the scripts together meet all cells.
func pairwise(script string, cells []cell) (fewest []cell) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(script)) // it never fails
	random := rand.New(rand.NewPCG(hash.Sum64(), 0))
	for range 20 {
		cells = slices.Clone(cells)
		random.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
		if chosen := covering(cells); fewest == nil || len(chosen) < len(fewest) {
			fewest = chosen
		}
	}
	return fewest
}

// covering takes the cell in which most values meet for the first time, until all have met.
func covering(cells []cell) (chosen []cell) {
	met := map[[2]string]bool{}
	unmet := func(c cell) (pairs [][2]string) {
		for i, one := range c.values() {
			for _, two := range c.values()[i+1:] {
				if !met[[2]string{one, two}] {
					pairs = append(pairs, [2]string{one, two})
				}
			}
		}
		return pairs
	}
	for {
		most := slices.MaxFunc(cells, func(a, b cell) int { return len(unmet(a)) - len(unmet(b)) })
		pairs := unmet(most)
		if len(pairs) == 0 {
			return chosen
		}
		chosen = append(chosen, most)
		for _, pair := range pairs {
			met[pair] = true
		}
	}
}

// TestScenarios runs each script of testdata/scenarios in each cell of its matrix, or with -short
// in a pairwise choice of them, against a real router. The README there says how to read them.
func TestScenarios(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatal("there are no scripts", err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		cells, err := matrix(string(text))
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		name := strings.TrimSuffix(filepath.Base(script), ".txt")
		if testing.Short() && os.Getenv(apart) == "" { // a process of its own has been told which one to play
			cells = pairwise(name, cells)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range cells {
				t.Run(c.String(), func(t *testing.T) {
					if runsApart(t) {
						return
					}
					if !netlab.IsIsolated() {
						t.Skip("needs CAP_SYS_ADMIN and CAP_NET_ADMIN for network namespaces")
					}
					play(t, script, c)
				})
			}
		})
	}
}

// play runs one script in one cell.
func play(t *testing.T, script string, c cell) {
	var s *scene
	perform := func(do func(s *scene, neg bool, args []string)) func(*testscript.TestScript, bool, []string) {
		return func(ts *testscript.TestScript, neg bool, args []string) {
			s.fail, s.read = ts.Fatalf, ts.ReadFile
			do(s, neg, args)
		}
	}
	commands := map[string]func(*testscript.TestScript, bool, []string){}
	for name, do := range sceneCommands() {
		commands[name] = perform(do)
	}
	testscript.RunT(scripted{t}, testscript.Params{
		Files: []string{script}, Cmds: commands,
		Setup: func(e *testscript.Env) error {
			s = newScene(e.T().(scripted).T, c)
			return nil
		},
		Condition: func(name string) (bool, error) {
			for _, values := range dimensions() {
				if slices.Contains(values, name) {
					return slices.Contains(c.values(), name), nil
				}
			}
			return false, fmt.Errorf("the matrix has no %q", name)
		},
	})
}

// scripted makes tests of testscript's.
type scripted struct{ *testing.T }

// Run runs a subtest.
func (s scripted) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(scripted{t}) })
}

// Verbose tells whether all is to be told.
func (s scripted) Verbose() bool { return testing.Verbose() }

// spoken are the words of scripts that stand for something of the cell, of each of its families
// or of the session.
type spoken struct {
	prefixes  map[string]netip.Prefix // VIP, VIP2 and NET
	hop, hop2 netip.Addr              // by which the router's kernel reaches node 1 and 2
	afi       string
}

var (
	words     = regexp.MustCompile(`\b(VIP2?|NET|HOP2?|AFI|NODE2?|LOOPBACK|ASN|SESSION[46]?)\b`)
	perFamily = regexp.MustCompile(`\b(VIP2?|NET|HOP2?|AFI)\b`)
)

// each calls do once with the arguments as they are meant, or for each family of the cell if a
// word in them stands for something else in each.
func (s *scene) each(args []string, do func(args []string)) {
	families := s.families()
	if !slices.ContainsFunc(args, perFamily.MatchString) {
		families = families[:1]
	}
	for _, f := range families {
		do(s.translate(args, f))
	}
}

// meant is what the arguments stand for where no word in them is of a family.
func (s *scene) meant(args []string) []string { return s.translate(args, s.families()[0]) }

func (s *scene) translate(args []string, f spoken) []string {
	meant := make([]string, 0, len(args))
	for _, a := range args {
		meant = append(meant, words.ReplaceAllStringFunc(a, func(word string) string { return s.meaning(word, f) }))
	}
	return meant
}

func (s *scene) meaning(word string, f spoken) string {
	switch word {
	case "NODE":
		return s.neighbourName(1)
	case "NODE2":
		return s.neighbourName(2)
	case "LOOPBACK":
		if s.local().Is6() {
			return "::1"
		}
		return "127.0.0.1"
	case "AFI":
		return f.afi
	case "ASN":
		return fmt.Sprint(s.asn())
	case "SESSION", "SESSION4", "SESSION6":
		return s.reaches(strings.TrimPrefix(word, "SESSION"))
	case "HOP":
		if s.setup.unnumbered {
			return linkLocal(s.t)
		}
		return f.hop.String()
	case "HOP2":
		if s.setup.daemon && s.frrd != nil && s.cell.as == "ebgp" && f.afi == "ipv6" {
			return linkLocal(s.t) // of the two addresses that such a daemon names (RFC 2545) FRR takes this one
		}
		return f.hop2.String()
	default:
		return f.prefixes[word].String()
	}
}

// reaches are the fields of a BGPPeer by which nodes reach the router, for a session of its own family alone if one is given.
func (s *scene) reaches(family string) string {
	address, alone := s.local(), s.cell.family != "both" || family != ""
	switch {
	case family == "6" && s.cell.hops == "multihop":
		address = farRouter6
	case family == "6":
		address = router6
	}
	return fmt.Sprintf("peerAddress: %q, dualStackAddressFamily: %t, ebgpMultiHop: %t",
		address, !alone, s.cell.hops == "multihop" && s.cell.as == "ebgp")
}

// families are those of the cell.
func (s *scene) families() []spoken {
	prefix := netip.MustParsePrefix
	four := spoken{
		prefixes: map[string]netip.Prefix{"VIP": prefix(vip), "VIP2": prefix(vip2), "NET": prefix("198.51.100.0/25")},
		hop:      node4, hop2: node4b, afi: "ipv4",
	}
	six := spoken{
		prefixes: map[string]netip.Prefix{"VIP": prefix(vip6), "VIP2": prefix("2001:db8:a::11/128"), "NET": prefix("2001:db8:b::/64")},
		hop:      node6, hop2: node6b, afi: "ipv6",
	}
	if s.cell.hops == "multihop" {
		four.hop, six.hop, four.hop2, six.hop2 = far4, far6, far4b, far6b
	}
	switch s.cell.family {
	case "ipv4":
		return []spoken{four}
	case "ipv6":
		return []spoken{six}
	default:
		return []spoken{four, six}
	}
}

func TestMatrix(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"# title\n# matrix: all\n": 24, "# title\n# matrix: single ipv4 ipv6\n": 8,
		"# title\n# matrix: frr ibgp multihop both\nrouter\n": 1,
	} {
		if got, err := matrix(line); err != nil || len(got) != want {
			t.Errorf("%q: %v, %v, want %d", line, got, err, want)
		}
	}
	for _, wrong := range []string{"router\n", "# title\n# matrix: quagga\n"} {
		if got, err := matrix(wrong); err == nil {
			t.Errorf("%q: %v", wrong, got)
		}
	}
}

// TestPairwise: any two values meet in few of the cells, and all cells are met by scripts that
// have different names.
func TestPairwise(t *testing.T) {
	t.Parallel()
	met := map[cell]bool{}
	for line, most := range map[string]int{"all": 7, "single ipv4 ipv6": 5, "frr ibgp multihop both": 1} {
		all, err := matrix("\n# matrix: " + line)
		if err != nil {
			t.Fatal(err)
		}
		for script := range 40 {
			cells := pairwise(fmt.Sprint("script ", script), all)
			if len(cells) > most {
				t.Errorf("%s: %d cells: %v", line, len(cells), cells)
			}
			for _, c := range cells {
				met[c] = true
			}
			for _, c := range all {
				for i, one := range c.values() {
					for _, two := range c.values()[i+1:] {
						if !slices.ContainsFunc(cells, func(c cell) bool {
							return slices.Contains(c.values(), one) && slices.Contains(c.values(), two)
						}) {
							t.Errorf("%s: %s and %s do not meet in %v", line, one, two, cells)
						}
					}
				}
			}
		}
	}
	if len(met) != 24 {
		t.Errorf("only %d cells are met", len(met))
	}
}
