package main

import (
	"sync"
	"time"
)

// series is questions in the order in which they were asked, which are not answered in order.
type series struct {
	mu     sync.Mutex
	all    []question
	marked int  // so many were asked before the mark
	isSet  bool // the mark
}

type question struct {
	asked             time.Time
	settled, answered bool
}

// ask notes a question. What it returns is to be called once, with whether it was answered.
func (s *series) ask(at time.Time) (settle func(answered bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.all)
	s.all = append(s.all, question{asked: at})
	return func(answered bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all[i].settled, s.all[i].answered = true, answered
	}
}

// mark tells that only questions from now on show that nothing is lost any more.
func (s *series) mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked, s.isSet = len(s.all), true
}

// unbroken tells whether so many questions after the mark were answered in a row, once all before
// them are settled; and if so, when the first of that row was asked, be it before the mark, and whether any
// was lost before it.
func (s *series) unbroken(wanted int) (since time.Time, interrupted, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isSet {
		return time.Time{}, false, false
	}
	first := 0 // of the row
	for i, q := range s.all {
		switch {
		case !q.settled:
			return time.Time{}, false, false
		case !q.answered:
			first = i + 1
		case i+1-max(first, s.marked) >= wanted:
			return s.all[first].asked, first > 0, true
		}
	}
	return time.Time{}, false, false
}
