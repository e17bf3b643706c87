package iptables

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
)

// cluster is a network whose node has this backend.
type cluster struct {
	*blackbox.Cluster
	t       testing.TB
	backend *Backend // the latest
	variant Variant
}

func newCluster(t testing.TB, variant Variant) *cluster {
	t.Helper()
	c := &cluster{t: t, variant: variant}
	c.Cluster = blackbox.NewCluster(t, func() (blackbox.Backend, error) {
		c.backend = New(Config{Log: blackbox.Quiet(), Variant: variant})
		return c.backend, nil
	})
	return c
}

// eachVariant runs a test on a cluster of its own for each variant.
func eachVariant(t *testing.T, test func(t *testing.T, c *cluster)) {
	for _, variant := range variants {
		t.Run(string(variant), func(t *testing.T) {
			t.Parallel()
			test(t, newCluster(t, variant))
		})
	}
}

var variants = []Variant{NFT, Legacy}

// rules are all rules and sets of the node, without counters and comments of
// the tools, chains in order.
func (c *cluster) rules() string {
	c.t.Helper()
	var b strings.Builder
	for _, f := range addr.Families() {
		for _, table := range []string{"nat", "filter"} {
			out := c.Run((commands{c.variant, f}).program("save"), "-t", table)
			var lines []string
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, ":") || strings.HasPrefix(line, "-A") {
					line, _, _ = strings.Cut(line, " [")
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(chainOf(a), chainOf(b)) })
			fmt.Fprintf(&b, "%s %s\n%s\n", f, table, strings.Join(lines, "\n"))
		}
	}
	sets := strings.Split(c.Run("ipset", "save"), "\n")
	for i := range sets { // what is left are names and elements
		if strings.HasPrefix(sets[i], "create") {
			sets[i] = strings.Join(strings.Fields(sets[i])[:3], " ")
		}
	}
	slices.Sort(sets)
	b.WriteString(strings.Join(sets, "\n"))
	return b.String()
}

func chainOf(line string) string {
	if name, ok := strings.CutPrefix(line, ":"); ok {
		return strings.Fields(name)[0]
	}
	return strings.Fields(line)[1]
}
