package figures

import (
	"cmp"
	"fmt"
	"strings"
)

// Comparison is a table of how two contestants compare.
type Comparison struct {
	Text     string // what the figures are
	Measures []Measure
}

// Beside renders in Markdown how the two contestants, ours first, compare. What the
// results hold is of no Services.
func (r *Results) Beside(title string, s Setup, tables ...Comparison) string {
	p := page{Results: r, Setup: s, out: new(strings.Builder)}
	p.head(title)
	for _, t := range tables {
		p.compare(t)
	}
	return p.out.String()
}

// compare renders one table.
func (p page) compare(t Comparison) {
	ours, theirs := p.Contestants[0], p.Contestants[1]
	fmt.Fprintf(p.out, "\n%s: median / most (figures).\n\n| | %s | %s | theirs ÷ ours, medians |\n|---|---|---|---|\n", t.Text, ours.Name, theirs.Name)
	for _, m := range t.Measures {
		cell, times := p.upTo(m, 1), ratio(p.Median(theirs.Name, 0, m), p.Median(ours.Name, 0, m))
		fmt.Fprintf(p.out, "| %s | %s | %s | %s |\n", m, cmp.Or(cell(ours, 0), nothing), cmp.Or(cell(theirs, 0), nothing), cmp.Or(times, nothing))
	}
}

// Alone renders a table of the medians of one contestant, a column for each size.
func (r *Results) Alone(text, contestant string, sizes []int, measures []Measure) string {
	p := page{Results: r, Setup: Setup{Sizes: sizes}, out: new(strings.Builder)}
	fmt.Fprintf(p.out, "\n%s\n", text)
	for _, m := range measures {
		p.Contestants = append(p.Contestants, Contestant{Name: string(m)})
	}
	p.table("nodes", func(c Contestant, size int) string { return number(p.Median(contestant, size, Measure(c.Name))) })
	return p.out.String()
}
