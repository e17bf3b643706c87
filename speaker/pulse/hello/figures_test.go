package hello

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// figuresFile is where TestFigures writes what it finds, as make bench-hellos has it.
var (
	figuresFile  = flag.String("figures", "", "simulate clusters and write the figures to this file")
	figuresNodes = flag.String("nodes", "10,50,100,300,1000", "of so many nodes, with -figures")
	figuresLoss  = flag.String("loss", "0,1,10,30", "and so many percent of loss, in ascending order, with -figures")
	figuresSeeds = flag.Int("seeds", 1, "and so many histories of each, with -figures")
)

// traffic is what nodes send while nobody dies.
type traffic struct {
	watched        float64
	packets, bytes float64 // that a node sends, a second
	alarms         int     // nodes taken for dead that lived, summed over all nodes
}

// death is what the living find of some nodes that die at one moment.
type death struct {
	took   []time.Duration // until one of the living knew of one of the dead, sorted
	missed int             // of which none knew within the longest time
	alarms int             // others that were taken for dead meanwhile
}

// settled runs nodes as shipped until all know of each other: 50 ms × 3.
func settled(nodes int, seed uint64) *world {
	w := newWorld(nodes, seed)
	w.every, w.times = 50*time.Millisecond, 3
	for i := range nodes {
		w.start(i)
		w.run(time.Millisecond)
	}
	w.run(3 * time.Second)
	return w
}

// buried is how often any node took another one for dead.
func (w *world) buried() (n int) {
	for _, h := range w.hosts {
		if h.state != nil {
			n += int(h.state.stats.Deaths)
		}
	}
	return n
}

func (w *world) living() (n float64) {
	for _, h := range w.hosts {
		if h.state != nil {
			n++
		}
	}
	return n
}

// observe counts for a while in which nobody dies.
func (w *world) observe(quiet time.Duration) (f traffic) {
	before, sent, bytes := w.buried(), 0, 0
	w.left = func(_, _ int, datagram []byte) { sent++; bytes += len(datagram) }
	w.run(quiet)
	w.left = nil
	seconds := quiet.Seconds() * w.living()
	f.packets, f.bytes, f.alarms = float64(sent)/seconds, float64(bytes)/seconds, w.buried()-before
	for _, h := range w.hosts {
		if h.state != nil {
			f.watched += float64(h.state.figures().Watched) / w.living()
		}
	}
	return f
}

// kill ends nodes at one moment, and sees when the others know.
func (w *world) kill(victims []int) (d death) {
	before := w.buried()
	for _, i := range victims {
		before -= int(w.hosts[i].state.stats.Deaths)
		w.hosts[i].state = nil
	}
	knows := map[[2]int]bool{}
	for ms := 1; ms <= 1500; ms++ {
		w.run(time.Millisecond)
		for _, victim := range victims {
			for j, h := range w.hosts {
				if h.state != nil && !knows[[2]int{j, victim}] && !w.alive(j, victim) {
					knows[[2]int{j, victim}] = true
					d.took = append(d.took, time.Duration(ms)*time.Millisecond)
				}
			}
		}
	}
	slices.Sort(d.took)
	d.missed = int(w.living())*len(victims) - len(d.took)
	d.alarms = w.buried() - before - len(d.took)
	for _, i := range victims {
		w.start(i)
	}
	w.run(time.Second)
	return d
}

// watcher is a node that watches another one.
func (w *world) watcher(of int) int {
	if watchers := w.watchers(of); len(watchers) > 0 {
		return watchers[0]
	}
	return (of + 1) % len(w.hosts)
}

func (d death) quantile(q float64) int64 {
	return d.took[min(int(q*float64(len(d.took))), len(d.took)-1)].Milliseconds()
}

func (d death) String() string {
	if len(d.took) == 0 {
		return "–"
	}
	return fmt.Sprintf("%d, %d", d.quantile(0.5), d.quantile(1))
}

// TestFigures: what each node sends does not grow with the cluster, a death is known to all within
// a detection time and a few hops, and a tenth of loss kills nobody.
func TestFigures(t *testing.T) {
	if *figuresFile != "" {
		write(t)
		return
	}
	sizes := []int{2, 3, 10, 50, 100}
	if testing.Short() {
		sizes = sizes[:4]
	}
	for _, nodes := range sizes {
		w := settled(nodes, uint64(nodes))
		f := w.observe(time.Second)
		d := w.kill([]int{1})
		t.Logf("%d nodes: %+v, %v", nodes, f, d)
		most := 200 * time.Millisecond
		if nodes <= 50 {
			most = 170 * time.Millisecond
		}
		switch {
		case f.alarms+d.alarms > 0 || d.missed > 0:
			t.Errorf("%d nodes: %d false alarms, %d deaths missed", nodes, f.alarms+d.alarms, d.missed)
		case d.took[0] < 100*time.Millisecond || d.took[len(d.took)-1] > most:
			t.Errorf("%d nodes: a death was known after %v to %v, want at most %v", nodes, d.took[0], d.took[len(d.took)-1], most)
		case f.packets > 200:
			t.Errorf("%d nodes: each sends %.0f packets a second", nodes, f.packets)
		}
	}
}

func numbers(t *testing.T, list string) (all []int) {
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// write makes the table of the documentation. Each cluster is started once for each seed, and what is
// lost grows while it runs.
func write(t *testing.T) {
	var b strings.Builder
	b.WriteString("| nodes | seed | loss, % | watched by each | packets/s | KB/s | false alarms in | one dies: median, most | with one that watches it | ten at once | not within 1.5 s |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, nodes := range numbers(t, *figuresNodes) {
		for seed := range *figuresSeeds {
			began := time.Now()
			w := settled(nodes, uint64(nodes+seed))
			t.Logf("%d nodes, seed %d: settled after %v", nodes, seed, time.Since(began).Round(time.Second))
			next := 0
			victims := func(n int) (some []int) { // others each time
				for range n {
					some = append(some, next%nodes)
					next++
				}
				return some
			}
			for _, loss := range numbers(t, *figuresLoss) {
				w.lose = func(int, int) bool { return loss > 0 && w.random.IntN(100) < loss }
				w.run(3 * time.Second) // in which nodes learn what to expect
				quiet := min(10*time.Second, 1000*time.Second/time.Duration(nodes))
				f := w.observe(quiet)
				one := w.kill(victims(1))
				first := victims(1)[0]
				both := w.kill([]int{first, w.watcher(first)})
				rack := death{}
				if nodes >= 50 {
					rack = w.kill(victims(10))
				}
				fmt.Fprintf(&b, "| %d | %d | %d | %.1f | %.0f | %.1f | %d in %v | %s | %s | %s | %d |\n", nodes, seed, loss, f.watched, f.packets, f.bytes/1000,
					f.alarms+one.alarms+both.alarms+rack.alarms, quiet, one, both, rack, one.missed+both.missed+rack.missed)
				t.Logf("%d nodes, seed %d, %d %% lost: %v", nodes, seed, loss, time.Since(began).Round(time.Second))
				if err := os.WriteFile(*figuresFile, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
