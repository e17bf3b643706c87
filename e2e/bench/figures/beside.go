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
	ours, theirs := p.Contestants[0].Name, p.Contestants[1].Name
	fmt.Fprintf(p.out, "\n%s: median / most (figures).\n\n| | %s | %s | theirs ÷ ours, medians |\n|---|---|---|---|\n", t.Text, ours, theirs)
	cell := func(contestant string, m Measure) string {
		n := p.Count(contestant, 0, m)
		if n == 0 {
			return nothing
		}
		return fmt.Sprintf("%s / %s (%d)", number(p.Median(contestant, 0, m)), number(p.Quantile(contestant, 0, m, 1)), n)
	}
	for _, m := range t.Measures {
		times := cmp.Or(ratio(p.Median(theirs, 0, m), p.Median(ours, 0, m)), nothing)
		fmt.Fprintf(p.out, "| %s | %s | %s | %s |\n", m, cell(ours, m), cell(theirs, m), times)
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
