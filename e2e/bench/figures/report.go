package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Setup is what was measured, where.
type Setup struct {
	Command     string
	Facts       []string // about machine, kernel and versions
	Sizes       []int
	Contestants []Contestant
}

// Contestant is a row of the tables.
type Contestant struct {
	Name  string
	NoNAT bool   // it only routes
	Rival string // the row to compare with, "" for none
	Ours  bool
}

// Report renders the results in Markdown.
func (r *Results) Report(s Setup) string {
	p := page{Results: r, Setup: s, out: new(strings.Builder)}
	p.head("Forwarding")
	p.flows()
	p.changes()
	p.fills()
	p.memory()
	return p.out.String()
}

type page struct {
	*Results
	Setup
	out   *strings.Builder
	names map[int]string // of columns that are no numbers of Services
}

// head renders what was measured, where.
func (p page) head(title string) {
	fmt.Fprintf(p.out, "# %s\n\nMade by `%s`, which writes this page.\n\n", title, p.Command)
	for _, fact := range p.Facts {
		fmt.Fprintf(p.out, "- %s\n", fact)
	}
	for _, note := range p.notes {
		fmt.Fprintf(p.out, "- %s\n", note)
	}
}

func (p page) chapter(title, text string) {
	fmt.Fprintf(p.out, "\n## %s\n\n%s\n", title, text)
}

// nothing is what a cell says if there is no figure.
const nothing = "–"

// table renders a row for each contestant for which there is anything to say.
func (p page) table(title string, cell func(c Contestant, size int) string) {
	fmt.Fprintf(p.out, "\n| %s |", title)
	for _, size := range p.Sizes {
		fmt.Fprintf(p.out, " %s |", cmp.Or(p.names[size], strconv.Itoa(size)))
	}
	fmt.Fprintf(p.out, "\n|---|%s\n", strings.Repeat("---|", len(p.Sizes)))
	for _, c := range p.Contestants {
		var cells []string
		for _, size := range p.Sizes {
			cells = append(cells, cmp.Or(cell(c, size), nothing))
		}
		if slices.ContainsFunc(cells, func(text string) bool { return text != nothing }) {
			fmt.Fprintf(p.out, "| %s | %s |\n", c.Name, strings.Join(cells, " | "))
		}
	}
}

func (p page) flows() {
	p.chapter("New connections", `One client makes TCP flows one after another: connect, one byte there, four bytes back, close. Client, server and
all that lies between them share one CPU, so that the time of a flow is what it costs. The Service is the last
in the list that kube-proxy's iptables mode walks through; in the other modes all are alike, and it is the last one
created. The client is a pod, so nothing is masqueraded. Modes take turns, with no proxy running meanwhile: in each of
many short passes every mode comes once. A ratio is the median of those of the passes, so that whatever else slows
the machine for a while, its hypervisor included, bears on both sides of it.`)
	p.table("flows a second (quartiles)", func(c Contestant, size int) string {
		if p.Count(c.Name, size, Rate) == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f (%.0f–%.0f)", p.Median(c.Name, size, Rate),
			p.Quantile(c.Name, size, Rate, 0.25), p.Quantile(c.Name, size, Rate, 0.75))
	})
	p.table("median µs: whole flow / connect alone", func(c Contestant, size int) string {
		if p.Count(c.Name, size, Whole) == 0 {
			return ""
		}
		return fmt.Sprintf("%.1f / %.1f", p.Median(c.Name, size, Whole), p.Median(c.Name, size, Connect))
	})
	for _, other := range p.Contestants {
		switch {
		case other.NoNAT:
			p.table("rate ÷ rate without NAT", func(c Contestant, size int) string {
				if c.NoNAT {
					return ""
				}
				return number(p.Share(size, c.Name, Rate, other.Name, Rate))
			})
		case !other.Ours:
			p.table("our rate ÷ rate of "+other.Name, ours(func(c Contestant, size int) string {
				return number(p.Share(size, c.Name, Rate, other.Name, Rate))
			}))
			p.table("connect alone: time of "+other.Name+" ÷ ours", ours(func(c Contestant, size int) string {
				return number(p.Share(size, other.Name, Connect, c.Name, Connect))
			}))
		}
	}
	if len(p.Sizes) > 1 {
		p.table(fmt.Sprintf("rate ÷ own rate with %d Services, in the same passes", p.Sizes[0]), func(c Contestant, size int) string {
			return number(p.Share(size, c.Name, Rate, c.Name, RateFirst))
		})
	}
}

func (p page) changes() {
	p.chapter("A change of endpoints", `All endpoints of one Service are replaced by others, of a Service after another. The time runs from the change (the API
server's answer, or the event on a watch of the benchmark's own if that comes first) to the first flow that one of the
new endpoints answers. A client tries every 0.2 ms, so that a figure is up to 0.4 ms too long.`)
	p.table("ms: median / 99th percentile (changes)", p.upTo(Change, 0.99))
	p.table("kube-proxy in the same mode ÷ ours: median / 99th percentile", ours(func(c Contestant, size int) string {
		median := ratio(p.Median(c.Rival, size, Change), p.Median(c.Name, size, Change))
		if median == "" {
			return ""
		}
		return median + " / " + ratio(p.Quantile(c.Rival, size, Change, 0.99), p.Quantile(c.Name, size, Change, 0.99))
	}))
	p.table("CPU time a change, ms", p.median(ChangeCPU))
}

func (p page) fills() {
	p.chapter("From nothing to all Services", `From the start of the process to the first flow that is answered through each of some Services spread over all, the last one
created among them; then every single one is asked, and has to answer. The caches are synced when the log
says so.`)
	p.table("s since the start", p.median(Fill))
	p.table("s since the caches have synced", p.median(FillSynced))
	p.table("since synced: kube-proxy in the same mode ÷ ours", p.against(FillSynced))
	p.table("CPU time, s", p.median(FillCPU))
}

func (p page) memory() {
	p.chapter("Memory", "After the changes of endpoints above, MiB.")
	p.table("VmRSS", p.median(Resident))
	p.table("of that RssAnon", p.median(Anonymous))
	p.table("VmHWM, the most that VmRSS ever was", p.median(Peak))
	p.table("VmRSS: kube-proxy in the same mode ÷ ours", p.against(Resident))
}

func (p page) median(m Measure) func(Contestant, int) string {
	return func(c Contestant, size int) string { return number(p.Median(c.Name, size, m)) }
}

// against is how many times ours the rival's figure is.
func (p page) against(m Measure) func(Contestant, int) string {
	return ours(func(c Contestant, size int) string {
		return ratio(p.Median(c.Rival, size, m), p.Median(c.Name, size, m))
	})
}

// ours is a cell in the rows of ours alone.
func ours(cell func(Contestant, int) string) func(Contestant, int) string {
	return func(c Contestant, size int) string {
		if !c.Ours {
			return ""
		}
		return cell(c, size)
	}
}

// upTo is the median, a higher quantile, and how many figures there are.
func (p page) upTo(m Measure, q float64) func(Contestant, int) string {
	return func(c Contestant, size int) string {
		n := p.Count(c.Name, size, m)
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%s / %s (%d)", number(p.Median(c.Name, size, m)), number(p.Quantile(c.Name, size, m, q)), n)
	}
}

// ratio is a/b, "" if there is none.
func ratio(a, b float64) string {
	if math.IsNaN(a) || math.IsNaN(b) || b == 0 {
		return ""
	}
	return number(a / b)
}

// number renders three digits, or all those before the point; "" for no number.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

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

// Pool is a column of the pools' tables.
type Pool struct {
	Name string
	Bits int // of an address that are free, by which its figures are kept
}

// Allocation renders what was measured of controllers in Markdown.
func (r *Results) Allocation(s Setup, pools []Pool) string {
	p := page{Results: r, Setup: s, out: new(strings.Builder)}
	p.head("Allocation")
	p.chapter("In bulk", `Services of type LoadBalancer are created by 16 clients at a time, through a real API server on etcd, while the
controller is at work. All three share the machine. A Service has its address when a watch shows it in the status.`)
	p.table("s to create them all", p.median(Creating))
	p.table("s until all have addresses", p.median(Giving))
	p.table("the second ÷ the first (aim of ours: at most 1.2)", p.median(Factor))
	p.table("CPU time of the controller, s", p.median(GivingCPU))
	for _, other := range p.Contestants {
		if !other.Ours {
			p.table("time until all have addresses: "+other.Name+" ÷ ours", p.against(Giving))
		}
	}
	p.chapter("One among many", `One Service after another is created beside all these. The time runs from the event of its creation to the event that
shows its address, both on a watch of the benchmark's own. Aim of ours: 50 ms for 99 of 100.`)
	p.table("ms: median / 99th percentile (Services)", p.upTo(Single, 0.99))
	p.chapter("Memory", "After all of these, MiB. Aim of ours: less than 120 with 10,000 Services.")
	p.table("VmRSS", p.median(Resident))
	p.table("of that RssAnon", p.median(Anonymous))
	p.table("VmHWM, the most that VmRSS ever was", p.median(Peak))
	p.pools(pools)
	return p.out.String()
}

// pools renders what large pools cost.
func (p page) pools(pools []Pool) {
	p.chapter("Large pools", `A controller without any Service gets one pool, and then a Service. The time runs from the creation of the pool to the
event that shows the Service's address; so a part of it is for two writes. Aim of ours: no cost.`)
	p.Sizes, p.names = nil, map[int]string{}
	for _, pool := range pools {
		p.Sizes = append(p.Sizes, pool.Bits)
		p.names[pool.Bits] = pool.Name
	}
	p.table("ms to the first address", p.median(FirstOfPool))
	p.table("VmRSS, MiB", p.median(PoolResident))
	p.table("VmHWM, MiB", p.median(PoolPeak))
}
