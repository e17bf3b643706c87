// Package budget limits the share of time that is spent on work which others cause.
package budget

import "time"

// Work may take one part in so many of the time, lest a node that others write to all
// the time do nothing else, but a while at once is always allowed.
const (
	share  = 20
	atOnce = 3 * time.Second
	// healing is the share of repairs: while rules are gone nothing is served, which is worse
	// than a node that is busy.
	healing = 4
	// longest is how long nothing is allowed at the most. Work that was slow since the node is
	// overloaded would have all wait for minutes.
	longest = 15 * time.Second
)

// Budget is the time that may be spent.
type Budget struct {
	credit time.Duration
	since  time.Time // when the credit was last counted
}

// New is one of which nothing was spent.
func New() Budget { return Budget{credit: atOnce, since: time.Now()} }

// Allowed tells whether something is left.
func (b *Budget) Allowed() bool {
	now := time.Now()
	b.credit = min(b.credit+now.Sub(b.since)/share, atOnce)
	b.since = now
	return b.credit > 0
}

// Spend counts the time that work took. It may be more than was left.
func (b *Budget) Spend(d time.Duration) { b.credit = max(b.credit-d, -longest/share) }

// Healed counts the time that work took which repaired what others had broken.
func (b *Budget) Healed(d time.Duration) { b.Spend(d * healing / share) }
