package asynclog_test

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairlead.dev/fairlead/internal/asynclog"
)

// reader is what a log is written to. It takes lines while nobody holds it up by taking its turn.
type reader struct {
	turn  chan struct{} // one slot, full
	lines []string
}

func newReader() *reader {
	r := &reader{turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

func (r *reader) Write(line []byte) (int, error) {
	<-r.turn
	defer func() { r.turn <- struct{}{} }()
	r.lines = append(r.lines, string(line))
	return len(line), nil
}

func lost(to io.Writer, lines uint64) { fmt.Fprintf(to, "%d lost", lines) }

// log writes the lines with these numbers.
func log(t *testing.T, w *asynclog.Writer, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		if _, err := fmt.Fprintf(w, "line %d", i); err != nil {
			t.Error(err)
		}
	}
}

// Who logs goes on while nobody reads; what there was room for is read afterwards, and how many lines
// are missing where.
func TestALogThatNobodyReadsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		w := asynclog.New(r, len("line 0")*3, lost)
		log(t, w, 0, 0)
		synctest.Wait()
		<-r.turn
		log(t, w, 1, 1)
		time.Sleep(time.Second) // line 1 is on its way
		log(t, w, 2, 9)
		r.turn <- struct{}{}
		synctest.Wait()
		log(t, w, 5, 5)
		w.Close(time.Minute)
		want := []string{"line 0", "line 1", "line 2", "line 3", "line 4", "5 lost", "line 5"}
		if !slices.Equal(r.lines, want) {
			t.Errorf("read %q, want %q", r.lines, want)
		}
		if got := testutil.ToFloat64(w.Lost()); got != 5 {
			t.Errorf("the metric of lost lines is %v, want 5", got)
		}
	})
}

// What was logged is written when the program ends, and a reader that stands still does not keep it,
// whether it has been given a line by then or not. What is logged afterwards is no loss to tell of.
func TestTheEndWaitsForWhatWasLoggedButNotForEver(t *testing.T) {
	for name, test := range map[string]struct{ stuck, begun bool }{
		"reads":                    {},
		"has read":                 {begun: true},
		"stands still":             {stuck: true},
		"stands still over a line": {stuck: true, begun: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader()
				w := asynclog.New(r, 1000, lost)
				if test.stuck {
					<-r.turn
				}
				log(t, w, 0, 0)
				if test.begun {
					synctest.Wait()
				}
				log(t, w, 1, 9)
				begun := time.Now()
				w.Close(time.Second)
				took := time.Since(begun)
				log(t, w, 0, 9) // after the end: nothing
				if test.stuck {
					r.turn <- struct{}{}
				}
				synctest.Wait()
				if len(r.lines) != 10 {
					t.Errorf("read %q", r.lines)
				}
				if want := map[bool]time.Duration{true: time.Second}[test.stuck]; took != want {
					t.Errorf("it took %s, want %s", took, want)
				}
			})
		})
	}
}
