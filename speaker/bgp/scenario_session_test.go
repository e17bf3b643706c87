package bgp

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// held is a session as the router has it. While it is the same one, neither count changes, and since hardly does.
type held struct {
	up          bool
	established int       // how often it came up, and
	dropped     int       // was lost, as FRR counts
	since       time.Time // when it last came up, as BIRD says
}

func (h held) String() string {
	if !h.since.IsZero() {
		return fmt.Sprintf("up %t since %v", h.up, h.since)
	}
	return fmt.Sprintf("up %t, established %d times, dropped %d", h.up, h.established, h.dropped)
}

// session has the router say that the session with a node is up, and later that it is the same one: session [2] up,
// session [2] kept
func (s *scene) session(args []string) {
	_, number, args := s.number(args)
	if len(args) != 1 || args[0] != "up" && args[0] != "kept" {
		s.fail("want: session up, or: session kept")
	}
	ask := func() (h held) {
		s.near().waitFor("the router says how the session is", func() (answered bool) {
			if s.birdd != nil {
				h, answered = s.birdd.session(fmt.Sprintf("node%d", number))
			} else {
				h, answered = s.frrd.session(s.neighbourName(number))
			}
			return answered
		})
		return h
	}
	was := &s.held[number-1]
	if args[0] == "up" {
		s.near().waitFor("the session is up at the router", func() bool { *was = ask(); return was.up })
		return
	}
	if !was.up {
		s.fail("session up comes first")
	}
	// BIRD counts back from now by a clock of its own, and a session that is lost is not there again so soon.
	const clocks = redialTime / 2
	is := ask()
	if !is.up || is.established != was.established || is.dropped != was.dropped || is.since.Sub(was.since).Abs() > clocks {
		s.fail("the router has lost the session: it was %v and is %v", *was, is)
	}
}

// session is what FRR says of the one with a neighbour, if it answers.
func (r *router) session(neighbour string) (h held, answered bool) {
	var all map[string]struct {
		State       string `json:"bgpState"`
		Established int    `json:"connectionsEstablished"`
		Dropped     int    `json:"connectionsDropped"`
	}
	err := json.Unmarshal([]byte(r.vty("bgpd", "show bgp neighbors "+neighbour+" json")), &all)
	n, there := all[neighbour]
	return held{up: n.State == "Established", established: n.Established, dropped: n.Dropped}, err == nil && there
}

// session is what BIRD says of the one of a protocol, if it answers.
func (b *bird) session(protocol string) (h held, answered bool) {
	for line := range strings.Lines(b.ask("show protocols " + protocol)) {
		fields := strings.Fields(line) // name, BGP, table, up, date, time, Established
		if len(fields) < 6 || fields[0] != protocol {
			continue
		}
		since, err := time.Parse("2006-01-02 15:04:05.000", fields[4]+" "+fields[5])
		if err != nil {
			b.t.Fatalf("birdc says %q: %v", line, err)
		}
		return held{up: fields[len(fields)-1] == "Established", since: since}, true
	}
	return held{}, false
}
