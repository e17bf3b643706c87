package blackbox_test

import (
	"context"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/blackbox"
	"fairlead.dev/fairlead/speaker/forwarding/endedflows"
)

// TestAnEndedConnectionHidesNone: a node that takes an address knows connections to it that have ended, by a close and by a
// reset. Those that began by way of another node since, from the same ports, go on all the same.
func TestAnEndedConnectionHidesNone(t *testing.T) {
	eachSegment(t, func(t *testing.T, s *segment) {
		a, b := s.nodes[0], s.nodes[1]
		s.serve(1, 2, 3)
		// The ports are free at once.
		s.client.Do(func() { s.client.Sysctl("net/ipv4/tcp_max_tw_buckets", "0") })
		a.Do(func() {
			for _, state := range []string{"close", "time_wait"} { // for longer than anything here takes
				a.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_"+state, "600")
			}
		})
		for i, end := range []func(*netlab.Conn) error{(*netlab.Conn).Finish, (*netlab.Conn).Abort} {
			s.move(a)
			for _, e := range s.openFrom(20_000+100*i, 3, 0) {
				if err := end(e.flow); err != nil {
					t.Fatal(err)
				}
			}
			s.awaitEnds(a)
			s.precede(b, a)
			s.move(b)
			flows := s.openFrom(20_000+100*i, 3, 0)
			s.precede(a, b)
			s.move(a)
			s.take(a)
			if err := live(flows); err != nil {
				t.Error(err)
			}
			if s.handed(a) == 0 {
				t.Error("a handed over nothing, so that this test shows nothing")
			}
		}
	})
}

// take has a node know that the addresses are its own now.
func (s *segment) take(node *station) {
	s.t.Helper()
	owned := map[netip.Addr]time.Time{}
	for _, f := range addr.Families() {
		for _, local := range []bool{false, true} {
			owned[vipOf(f, local)] = time.Now()
		}
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	deleted, ended := make(chan int, len(addr.Families())), make(chan error, 1)
	sweeper := endedflows.New(func(_ addr.Family, n int) { deleted <- n }, blackbox.Quiet())
	go node.Do(func() { ended <- sweeper.Run(ctx) })
	sweeper.Owns(owned)
	for range addr.Families() {
		if n := <-deleted; n == 0 {
			s.t.Errorf("%s knew of no ended connections", node.Name)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		s.t.Error(err)
	}
}

// awaitEnds waits until a node has seen the ends of all connections of the client.
func (s *segment) awaitEnds(node *station) {
	s.t.Helper()
	open := regexp.MustCompile(`(?m)^.*(ESTABLISHED|FIN_WAIT|CLOSE_WAIT|LAST_ACK) src=(192\.0\.2\.100|2001:db8::100) .*$`)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		left := open.FindAllString(blackbox.RunOn(s.t, node.Host, "sh", "-c", "conntrack -L -p tcp -f ipv4; conntrack -L -p tcp -f ipv6"), -1)
		if len(left) == 0 {
			return
		}
		if time.Since(began) > answerIn {
			s.t.Fatalf("%s has not seen the ends of %q", node.Name, left)
		}
	}
}
