package probe

import (
	"strings"
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
		var s Probe
		begin := time.Now()
		n := 0
		for _, q := range questions {
			if q == '|' {
				s.Mark()
				continue
			}
			settle := s.ask(begin.Add(time.Duration(n) * time.Second))
			n++
			if q != '?' {
				settle(q == '+')
			}
		}
		since, interrupted, ok := s.Unbroken(2)
		got := -1
		if ok {
			got = int(since.Sub(begin).Seconds())
		}
		if got != want.since || ok && interrupted != want.interrupted {
			t.Errorf("%q: the row begins with question %d, interrupted %v, want %+v", questions, got, interrupted, want)
		}
	}
}

// at makes questions, one every millisecond: "x" was answered, "." was not.
func at(pattern string) []Question {
	var asked []Question
	for i, c := range pattern {
		asked = append(asked, Question{Sent: time.Unix(0, 0).Add(time.Duration(i) * time.Millisecond), Answered: c == 'x'})
	}
	return asked
}

func TestGap(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]struct{ gap, lost int64 }{
		"":           {0, 0},
		"xxxx":       {1, 0},
		"xx...xx":    {4, 4},
		"x.x...x.x":  {4, 7},
		"...x":       {3, 2},
		"xx.....":    {5, 6},
		"......":     {5, 5},
		"x.....x..x": {6, 8},
	} {
		asked := at(pattern)
		if got, want := Lost(asked), strings.Count(pattern, "."); got != want {
			t.Errorf("%s: %d lost, want %d", pattern, got, want)
		}
		if got := Gap(asked).Milliseconds(); got != want.gap {
			t.Errorf("%s: gap %d ms, want %d", pattern, got, want.gap)
		}
		if got := LastLost(asked, time.Unix(0, 0)).Milliseconds(); got != want.lost {
			t.Errorf("%s: the last was lost after %d ms, want %d", pattern, got, want.lost)
		}
	}
}

// TestTheFirstAnswerMayBeToALaterQuestion: what waits in the kernel of the client is answered late.
func TestTheFirstAnswerMayBeToALaterQuestion(t *testing.T) {
	t.Parallel()
	asked := at(".xxx")
	for i, after := range []int{0, 9, 5, 7} {
		asked[i].heard = time.Unix(int64(after), 0)
	}
	if got, ok := FirstAnswer(asked); !ok || !got.Equal(time.Unix(5, 0)) {
		t.Errorf("%v, %v", got, ok)
	}
	if _, ok := FirstAnswer(at("..")); ok {
		t.Error("there is an answer where there is none")
	}
}
