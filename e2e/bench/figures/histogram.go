package figures

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The picture, in pixels, and its axis, in milliseconds: logarithmic, with so many bars
// to a power of ten.
const (
	barWidth, barHeight  = 12, 26
	barsToADecade        = 10
	firstDecade, decades = 0, 5 // 1 ms to 100 s
	left, top, low       = 130, 34, 26
)

// Histograms draws as SVG how often each contestant had which figure, in milliseconds, a
// panel for each measure that there are figures of. What the results hold is of no Services.
func (r *Results) Histograms(s Setup, measures []Measure) string {
	var panels strings.Builder
	y := 0
	for _, m := range measures {
		if !slices.ContainsFunc(s.Contestants, func(c Contestant) bool { return r.Count(c.Name, 0, m) > 0 }) {
			continue
		}
		r.panel(&panels, s, m, y)
		y += top + len(s.Contestants)*barHeight + low
	}
	const width = left + barWidth*barsToADecade*decades + 30
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, width, y+10, panels.String())
}

// panel draws the contestants' figures of one measure, one above the other.
func (r *Results) panel(out *strings.Builder, s Setup, m Measure, y int) {
	fmt.Fprintf(out, `<text x="10" y="%d" font-weight="bold">%s</text>`+"\n", y+20, html.EscapeString(string(m)))
	for i, c := range s.Contestants {
		name, colour := c.Name, []string{"#2a7", "#c63", "#36c"}[i%3]
		base := y + top + (i+1)*barHeight
		fmt.Fprintf(out, `<text x="10" y="%d">%s</text>`+"\n", base-4, html.EscapeString(name))
		fmt.Fprintf(out, `<line x1="%d" y1="%d" x2="%d" y2="%[2]d" stroke="#999"/>`+"\n", left, base, left+barWidth*barsToADecade*decades)
		counts := bins(r.series[key{name, 0, m}])
		for bin, n := range counts {
			if n == 0 {
				continue
			}
			// The least bar can still be seen.
			height := max(3, (barHeight-4)*n/r.Count(name, 0, m))
			fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"><title>%s: %d</title></rect>`+"\n",
				left+bin*barWidth, base-height, barWidth-1, height, colour, html.EscapeString(name), n)
		}
	}
	for d := range decades + 1 {
		x, base := left+d*barWidth*barsToADecade, y+top+len(s.Contestants)*barHeight
		label := fmt.Sprintf("%.0f ms", math.Pow10(d+firstDecade))
		if d+firstDecade >= 3 {
			label = fmt.Sprintf("%.0f s", math.Pow10(d+firstDecade-3))
		}
		fmt.Fprintf(out, `<line x1="%d" y1="%d" x2="%[1]d" y2="%[3]d" stroke="#ccc"/><text x="%[1]d" y="%[4]d" text-anchor="middle" fill="#555" font-size="10">%[5]s</text>`+"\n",
			x, y+top, base, base+14, label)
	}
}

// bins counts the figures for each bar; what is beyond the ends of the axis is at them.
func bins(values []float64) []int {
	counts := make([]int, barsToADecade*decades)
	for _, v := range values {
		bin := 0
		if v > 0 {
			bin = int(math.Floor((math.Log10(v) - firstDecade) * barsToADecade))
		}
		counts[min(max(bin, 0), len(counts)-1)]++
	}
	return counts
}
