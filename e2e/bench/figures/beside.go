package figures

import (
	"cmp"
	"fmt"
	"strings"
)

// Comparison is a table of how contestants compare.
type Comparison struct {
	Text     string // what the figures are
	Measures []Measure
}

// Beside renders in Markdown how the contestants, ours first, compare. What the
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
	ours, theirs := p.Contestants[0], p.Contestants[1:]
	fmt.Fprintf(p.out, "\n%s: median / most (figures).\n\n| |", t.Text)
	for _, c := range p.Contestants {
		fmt.Fprintf(p.out, " %s |", c.Name)
	}
	for _, c := range theirs {
		fmt.Fprintf(p.out, " %s ÷ ours, medians |", c.Name)
	}
	fmt.Fprintf(p.out, "\n|%s\n", strings.Repeat("---|", 2*len(p.Contestants)))
	for _, m := range t.Measures {
		cells := []string{string(m)}
		for _, c := range p.Contestants {
			cells = append(cells, cmp.Or(p.upTo(m, 1)(c, 0), nothing))
		}
		for _, c := range theirs {
			cells = append(cells, cmp.Or(ratio(p.Median(c.Name, 0, m), p.Median(ours.Name, 0, m)), nothing))
		}
		fmt.Fprintf(p.out, "| %s |\n", strings.Join(cells, " | "))
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
