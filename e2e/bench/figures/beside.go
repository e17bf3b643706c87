package figures

import (
	"cmp"
	"fmt"
	"strings"
)

// Beside renders in Markdown how the two contestants, ours first, compare in measures of
// milliseconds. What the results hold is of no Services.
func (r *Results) Beside(title string, s Setup, measures []Measure) string {
	p := page{Results: r, Setup: s, out: new(strings.Builder)}
	ours, theirs := s.Contestants[0].Name, s.Contestants[1].Name
	p.head(title)
	fmt.Fprintf(p.out, "\nMilliseconds: median / most (figures).\n\n| | %s | %s | theirs ÷ ours, medians |\n|---|---|---|---|\n", ours, theirs)
	cell := func(contestant string, m Measure) string {
		n := p.Count(contestant, 0, m)
		if n == 0 {
			return nothing
		}
		return fmt.Sprintf("%s / %s (%d)", number(p.Median(contestant, 0, m)), number(p.Quantile(contestant, 0, m, 1)), n)
	}
	for _, m := range measures {
		times := cmp.Or(ratio(p.Median(theirs, 0, m), p.Median(ours, 0, m)), nothing)
		fmt.Fprintf(p.out, "| %s | %s | %s | %s |\n", m, cell(ours, m), cell(theirs, m), times)
	}
	return p.out.String()
}
