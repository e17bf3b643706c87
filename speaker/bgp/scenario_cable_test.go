package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/pulse/adjacency"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// cable is the nodes' end of the cable to the router.
const cable = "flbgp0"

// paths is what pulse does for node 1: BFD, and looking for the router of an unnumbered session. It
// goes on when the speaker does not.
type paths struct {
	mu       sync.Mutex
	sessions *bfd.Sessions // nil before there is BFD
	stop     func()
	wanted   bool
	passive  bool   // the node waits for the router to speak
	timers   timers // what the node asks for
	looking  bool
}

// follow has the BFD session be with the router that the node's session is with now, if any.
func (s *scene) follow() {
	s.paths.mu.Lock()
	defer s.paths.mu.Unlock()
	if s.paths.sessions == nil {
		return
	}
	want := map[string]desired.BFD{}
	if id := s.nodes[0].who(); s.paths.wanted && id.PeerAddress.IsValid() {
		path := bfdTo(id, s.cell.hops == "multihop")
		if s.cell.as == "ibgp" && id.Interface == "" { // pulse finds out, by the rule of FRR
			path.MultiHop, path.HopsByNetwork, path.MinTTL = false, true, 254
		}
		path.Passive = s.paths.passive
		path.Transmit, path.Receive, path.Multiplier = s.paths.timers.every, s.paths.timers.every, s.paths.timers.multiplier
		if path.MinTTL != 0 && s.birdd != nil {
			path.MinTTL = 63 // BIRD sends multihop packets with 64
		}
		want[theRouter] = path
	}
	have, err := links.Read()
	if err != nil {
		s.t.Errorf("the links of the nodes cannot be read: %v", err)
	}
	s.paths.sessions.Set("that of the cluster", want, have)
}

// status is what pulse says of the BFD session.
func (p *paths) status() bfd.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions.Status()[theRouter]
}

// inWords is what a BGPSession says of the BFD session, a line for each field; "" while there is none.
func (p *paths) inWords() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions == nil {
		return ""
	}
	s, wanted := p.sessions.Status()[theRouter]
	if !wanted {
		return ""
	}
	return fmt.Sprintf("bfd.state: %v\nbfd.reason: %s\nbfd.detectionTime: %v\n", s.State, s.Reason(), s.Detection)
}

// beginBFD starts BFD's part of pulse.
func (s *scene) beginBFD() {
	sessions, stop := runBFD(s.t)
	s.paths.mu.Lock()
	s.paths.sessions, s.paths.stop, s.paths.wanted = sessions, stop, true
	s.paths.mu.Unlock()
	go s.relay(sessions)
	s.follow()
}

// bfd begins BFD between node 1 and a router with BFD, or changes what the node asks for, and waits until both sides are
// Up: bfd [passive] [every=200ms] [multiplier=3]. With "ends" the node ends it, as its administrator does; with "upgrades" its process is
// replaced by another. The router may begin later (bfd router begins) and ask for something else (bfd router every=400ms),
// and what arrives there is counted (bfd paced 400ms, bfd paced none).
func (s *scene) bfd(args []string) {
	switch {
	case slices.Equal(args, []string{"ends"}):
		s.paths.mu.Lock()
		s.paths.wanted = false
		s.paths.mu.Unlock()
		s.follow()
		return
	case len(args) == 2 && args[0] == "paced":
		s.paced(args[1])
		return
	case len(args) == 2 && args[0] == "router":
		s.routerBFD(args[1])
	case slices.Equal(args, []string{"upgrades"}):
		s.upgradeBFD()
	default:
		s.nodeBFD(args)
		if !s.setup.bfd {
			return // there is nobody to talk to yet
		}
	}
	s.near().waitFor("BFD is up at both ends", s.bothUp)
}

// bothUp tells whether BFD is up at both ends.
func (s *scene) bothUp() bool {
	local := s.nodes[0].who().SourceAddress.WithZone("")
	var there string
	if s.birdd != nil {
		there, _ = s.birdd.bfd(local)
	} else {
		there = s.frrd.bfd(local).Status
	}
	return s.paths.status().State == bfd.Up && (there == "up" || there == "Up")
}

// nodeBFD begins the node's side, or changes it.
func (s *scene) nodeBFD(args []string) {
	s.paths.mu.Lock()
	begun := s.paths.sessions != nil
	for _, arg := range args {
		if arg == "passive" {
			s.paths.passive = true
			continue
		}
		var err error
		if s.paths.timers, err = s.paths.timers.with(arg); err != nil {
			s.fail("BFD has no %q: %v", arg, err)
		}
	}
	s.paths.mu.Unlock()
	if begun {
		s.follow()
		return
	}
	s.beginBFD()
	if s.setup.bfd && s.frrd != nil { // now, since FRR 8.4 ends BGP once if BFD was there before it
		s.frrd.configure(fmt.Sprintf("neighbor %s bfd profile fast", s.neighbourName(1)))
	}
}

// routerBFD has the router begin, or change what it asks for.
func (s *scene) routerBFD(arg string) {
	if arg != "begins" {
		var err error
		if s.setup.timers, err = s.setup.timers.with(arg); err != nil {
			s.fail("want: bfd router begins, or: bfd router every=400ms: %v", err)
		}
	}
	begun := s.setup.bfd
	s.setup.bfd = true
	switch {
	case s.birdd != nil:
		s.birdd.configure(s.setup.timers, s.bird(s.setup))
		s.birdd.waitForAnswer("configure", "Reconfigur")
	case begun:
		ms := fmt.Sprint(s.setup.timers.every.Milliseconds())
		s.frrd.vty("bfdd", "configure terminal", "bfd", "profile fast", "transmit-interval "+ms, "receive-interval "+ms)
	default:
		s.frrd.withBFD(s.setup.timers)
		s.frrd.configure(fmt.Sprintf("neighbor %s bfd profile fast", s.neighbourName(1)))
	}
}

// paced counts the packets of BFD that arrive at the router: no more than one in three quarters of the interval, which
// is what the jitter leaves (RFC 5880, 6.8.7), or none at all.
func (s *scene) paced(interval string) {
	const table, looks = "paced", 4 * time.Second
	in := func(args ...string) string {
		out, err := exec.Command("ip", append([]string{"netns", "exec", s.near().ns, "nft"}, args...)...).CombinedOutput()
		if err != nil {
			s.fail("nft %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	in("add table inet " + table + " { chain in { type filter hook input priority 0; udp dport { 3784, 4784 } counter; }; }")
	defer in("delete table inet " + table)
	began := time.Now()
	<-time.After(looks)
	listing := in("list table inet " + table)
	took := time.Since(began)
	found := regexp.MustCompile(`counter packets (\d+)`).FindStringSubmatch(listing)
	if found == nil {
		s.fail("nft counts nothing:\n%s", listing)
	}
	count, _ := strconv.Atoi(found[1])
	most := 0
	if interval != "none" {
		every, err := time.ParseDuration(interval)
		if err != nil {
			s.fail("%v", err)
		}
		most = int(took/(every*3/4)) + 1
	}
	s.t.Logf("%d packets in %v", count, took)
	if count > most || most > 0 && count == 0 {
		s.fail("%d packets arrived at the router in %v, want at most %d", count, took, most)
	}
}

// upgradeBFD ends the process that holds the session, as in an upgrade, and after two detection times another one
// begins: a router that was not asked to wait is Down by then, and tells.
func (s *scene) upgradeBFD() {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := s.paths.sessions.Goodbye(ctx, time.Minute); err != nil {
		s.fail("%v", err)
	}
	s.paths.stop()
	time.Sleep(2 * bfdDetection)
	s.beginBFD()
}

// relay tells the speaker what BFD says, as the agent does, until the test ends.
func (s *scene) relay(sessions *bfd.Sessions) {
	up := false
	for {
		select {
		case <-s.t.Context().Done():
			return
		case <-sessions.Changed():
		}
		was := up
		up = sessions.Status()[theRouter].State == bfd.Up
		if was && !up {
			_, _ = s.nodes[0].tell(order{Cut: "BFD says so"}) // who is dead need not be told
		}
	}
}

// lookAround tells node 1 from now on who is at the other end of the cable, as pulse and the agent do.
func (s *scene) lookAround() {
	if s.paths.looking {
		return
	}
	s.paths.looking = true
	finder, watcher := adjacency.New(quiet(s.t)), links.NewWatcher(quiet(s.t))
	ctx, cancel := context.WithCancel(s.t.Context())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := watcher.Run(ctx); err != nil {
			s.t.Error(err)
		}
	})
	tasks.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-watcher.Changed():
			case <-finder.Changed():
			}
			finder.Set([]string{cable}, watcher.Snapshot())
			if found, ok := finder.Status()[cable]; ok {
				s.found(found.Local, found.Router, found.Trouble)
			}
		}
	})
	s.t.Cleanup(func() {
		cancel()
		tasks.Wait()
		finder.Close()
	})
}

// found has node 1's session be between these two, or without a router wait for another.
func (s *scene) found(local, router netip.Addr, trouble string) {
	n := s.nodes[0]
	n.change(func() {
		n.identity.PeerAddress, n.identity.SourceAddress, n.identity.NoRouter = router, local, ""
		if !router.IsValid() {
			n.identity.PeerAddress, n.identity.SourceAddress, n.identity.NoRouter = netip.Addr{}, netip.Addr{}, "no router: "+trouble
		}
	})
	s.follow()
}

// linkLocal is this side's address on the cable, once no other station has it.
func linkLocal(t *testing.T) (address string) {
	t.Helper()
	waitFor(t, "a link-local address", func() bool {
		out, err := exec.Command("ip", "-6", "-o", "addr", "show", "dev", cable, "scope", "link", "-tentative").Output()
		fields := strings.Fields(string(out))
		if err != nil || len(fields) < 4 {
			return false
		}
		address = netip.MustParsePrefix(fields[3]).Addr().String()
		return true
	})
	return address
}
