package scenarios

import (
	"slices"
	"testing"
	"time"
)

// span is when a request was open, both ends included.
type span struct{ From, To time.Time }

// moments is how few moments there are so that each of the requests was open at one of them.
func moments(open []span) int {
	least, last := 0, time.Time{}
	for _, s := range slices.SortedFunc(slices.Values(open), func(a, b span) int { return a.To.Compare(b.To) }) {
		if least == 0 || s.From.After(last) {
			least, last = least+1, s.To
		}
	}
	return least
}

func TestMoments(t *testing.T) {
	for name, test := range map[string]struct {
		open [][2]int64
		want int
	}{
		"none":            {},
		"one":             {open: [][2]int64{{1, 2}}, want: 1},
		"at one moment":   {open: [][2]int64{{1, 9}, {3, 4}, {2, 5}, {4, 8}}, want: 1},
		"one after other": {open: [][2]int64{{5, 6}, {1, 2}, {3, 4}}, want: 3},
		"a chain":         {open: [][2]int64{{1, 3}, {2, 5}, {4, 7}, {6, 8}}, want: 2},
		"a long one":      {open: [][2]int64{{0, 100}, {1, 2}, {50, 51}}, want: 2},
	} {
		var open []span
		for _, s := range test.open {
			open = append(open, span{From: time.UnixMilli(s[0]), To: time.UnixMilli(s[1])})
		}
		if got := moments(open); got != test.want {
			t.Errorf("%s: %d moments, want %d", name, got, test.want)
		}
	}
}
