package product

import (
	"slices"
	"time"
)

// Span is when a request was open, both ends included.
type Span struct{ From, To time.Time }

// Moments is how few moments there are so that each of the requests was open at one of them.
func Moments(open []Span) int {
	moments, last := 0, time.Time{}
	for _, s := range slices.SortedFunc(slices.Values(open), func(a, b Span) int { return a.To.Compare(b.To) }) {
		if moments == 0 || s.From.After(last) {
			moments, last = moments+1, s.To
		}
	}
	return moments
}
