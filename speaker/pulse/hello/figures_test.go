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
	figuresLoss  = flag.String("loss", "0,1,10,30", "and so many percent of loss, with -figures")
)

// figure is what a simulation of so many nodes found.
type figure struct {
	nodes, loss    int // percent of all datagrams
	watched        float64
	packets, bytes float64       // that a node sends, a second
	quiet          time.Duration // for which packets and false alarms were counted
	alarms         int           // nodes taken for dead that lived, summed over all nodes
	took           []time.Duration
	missed         int // deaths not known after the longest time
}

// simulate runs nodes as shipped: 50 ms × 3, a full mesh of up to 50.
func simulate(nodes, loss int, quiet time.Duration, deaths int) figure {
	w := newWorld(nodes, uint64(nodes+loss))
	w.every, w.times = 50*time.Millisecond, 3
	f := figure{nodes: nodes, loss: loss, quiet: quiet}
	for i := range nodes {
		w.start(i)
		w.run(time.Millisecond)
	}
	w.run(3 * time.Second)
	w.lose = func(int, int) bool { return loss > 0 && w.random.IntN(100) < loss }
	w.run(3 * time.Second) // in which nodes learn what to expect
	died := func() (n int) {
		for _, h := range w.hosts {
			if h.state != nil {
				n += int(h.state.stats.Deaths)
			}
		}
		return n
	}
	before, sent, bytes := died(), 0, 0
	w.left = func(_, _ int, datagram []byte) { sent++; bytes += len(datagram) }
	w.run(quiet)
	w.left = nil
	seconds := quiet.Seconds() * float64(nodes)
	f.packets, f.bytes, f.alarms = float64(sent)/seconds, float64(bytes)/seconds, died()-before
	for _, h := range w.hosts {
		f.watched += float64(h.state.figures().Watched) / float64(nodes)
	}
	for i := range deaths {
		victim := (i*nodes/deaths + 1) % nodes
		w.hosts[victim].state = nil
		knows := make([]bool, nodes)
		for ms := 1; ms <= 1500; ms++ {
			w.run(time.Millisecond)
			for j, h := range w.hosts {
				if h.state != nil && !knows[j] && !w.alive(j, victim) {
					knows[j] = true
					f.took = append(f.took, time.Duration(ms)*time.Millisecond)
				}
			}
		}
		for j, h := range w.hosts {
			if h.state != nil && !knows[j] {
				f.missed++
			}
		}
	}
	slices.Sort(f.took)
	return f
}

func (f figure) quantile(q float64) string {
	if len(f.took) == 0 {
		return "–"
	}
	return fmt.Sprint(f.took[min(int(q*float64(len(f.took))), len(f.took)-1)].Milliseconds())
}

// TestFigures: above fifty nodes what each sends stays the same, a death is known to all within
// a detection time and a few hops, and a tenth of loss kills nobody.
func TestFigures(t *testing.T) {
	if *figuresFile != "" {
		write(t)
		return
	}
	for _, nodes := range []int{50, 100} {
		f := simulate(nodes, 0, time.Second, 2)
		t.Logf("%+v", f)
		most := 150*time.Millisecond + 50*time.Millisecond
		if nodes <= fullMesh {
			most = 155 * time.Millisecond
		}
		switch {
		case f.alarms > 0 || f.missed > 0:
			t.Errorf("%d nodes: %d false alarms, %d deaths missed", nodes, f.alarms, f.missed)
		case f.took[0] < 100*time.Millisecond || f.took[len(f.took)-1] > most:
			t.Errorf("%d nodes: a death was known after %v to %v, want at most %v", nodes, f.took[0], f.took[len(f.took)-1], most)
		case nodes > fullMesh && f.packets > 300:
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

// write makes the table of the documentation.
func write(t *testing.T) {
	var b strings.Builder
	b.WriteString("| nodes | loss, % | watched by each | packets/s | KB/s | known after, ms: median | 99 % | most | not within 1.5 s | false alarms in |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	for _, nodes := range numbers(t, *figuresNodes) {
		for _, loss := range numbers(t, *figuresLoss) {
			quiet, deaths := 10*time.Second, 4
			switch {
			case nodes > 300:
				quiet, deaths = time.Second, 1
			case nodes > 100:
				quiet, deaths = 3*time.Second, 2
			}
			began := time.Now()
			f := simulate(nodes, loss, quiet, deaths)
			fmt.Fprintf(&b, "| %d | %d | %.1f | %.0f | %.1f | %s | %s | %s | %d | %d in %v |\n", nodes, loss, f.watched, f.packets, f.bytes/1000,
				f.quantile(0.5), f.quantile(0.99), f.quantile(1), f.missed, f.alarms, quiet)
			t.Logf("%d nodes, %d %% lost: %v", nodes, loss, time.Since(began).Round(time.Second))
			if err := os.WriteFile(*figuresFile, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
