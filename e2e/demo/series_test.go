package main

import (
	"testing"
	"time"
)

// TestARowBeginsAfterTheLastThatWasLost has questions settled in one order or another: + answered, - lost,
// ? not settled, | the mark. They are asked a second after each other.
func TestARowBeginsAfterTheLastThatWasLost(t *testing.T) {
	for questions, want := range map[string]struct {
		since       int // seconds; -1: not yet
		interrupted bool
	}{
		"":          {since: -1},
		"++++":      {since: -1},
		"++++|":     {since: -1},
		"++|++":     {since: 0},
		"+-+|++":    {since: 2, interrupted: true},
		"++|-+":     {since: -1, interrupted: true},
		"++|-++":    {since: 3, interrupted: true},
		"++|+--++":  {since: 5, interrupted: true},
		"++|-+-++":  {since: 5, interrupted: true},
		"+?|++":     {since: -1},
		"++|+?++":   {since: -1},
		"+|--?+++":  {since: -1},
		"--|++":     {since: 2, interrupted: true},
		"--|++---?": {since: 2, interrupted: true},
	} {
		var s series
		begin := time.Now()
		n := 0
		for _, q := range questions {
			if q == '|' {
				s.mark()
				continue
			}
			settle := s.ask(begin.Add(time.Duration(n) * time.Second))
			n++
			if q != '?' {
				settle(q == '+')
			}
		}
		since, interrupted, ok := s.unbroken(2)
		got := -1
		if ok {
			got = int(since.Sub(begin).Seconds())
		}
		if got != want.since || ok && interrupted != want.interrupted {
			t.Errorf("%q: the row begins with question %d, interrupted %v, want %+v", questions, got, interrupted, want)
		}
	}
}
