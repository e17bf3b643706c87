package kernelwatch

import "time"

// Pace spaces readings that are made again and again, so that they take a small share of the time however much
// there is to read. The zero value says that it is time for one.
type Pace struct{ next time.Time }

// Due reports whether it is time for a reading.
func (p *Pace) Due() bool { return !time.Now().Before(p.next) }

// Read notes a reading that began then: the next one is due after a pause of at least this length, and of
// so many times what this one took.
func (p *Pace) Read(began time.Time, least time.Duration, times int) {
	now := time.Now()
	p.next = now.Add(max(least, time.Duration(times)*now.Sub(began)))
}
