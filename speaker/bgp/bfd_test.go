package bgp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// The timers of both sides. They are more patient than a node's, so that a machine that
// does much else and has no processor for a while is not taken for a cable that is cut.
const (
	bfdInterval   = 50 * time.Millisecond
	bfdMultiplier = 20
	bfdDetection  = bfdMultiplier * bfdInterval
)

// bfdProfile is the same for FRR.
func bfdProfile() string {
	return fmt.Sprintf("bfd\n profile fast\n  transmit-interval %d\n  receive-interval %[1]d\n  detect-multiplier %d\n exit\nexit\n",
		bfdInterval.Milliseconds(), bfdMultiplier)
}

// bfdTo is the BFD session beside a BGP session.
func bfdTo(id desired.Identity, multiHop bool) desired.BFD {
	b := desired.BFD{
		Peer: id.PeerAddress, Local: id.SourceAddress, MultiHop: multiHop,
		Transmit: bfdInterval, Receive: bfdInterval, Multiplier: bfdMultiplier,
	}
	if multiHop {
		b.MinTTL = 254
	}
	return b
}

// runBFD runs sessions until the test ends, or stop.
func runBFD(t *testing.T) (s *bfd.Sessions, stop func()) {
	t.Helper()
	s = bfd.New(quiet(t))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return s, stop
}

// bfdPeer is what FRR says about its session with us.
type bfdPeer struct {
	Peer       string `json:"peer"`
	Status     string `json:"status"`
	MultiHop   bool   `json:"multihop"`
	Diagnostic string `json:"diagnostic"`
	RemoteDiag string `json:"remote-diagnostic"`
	RemoteRx   int    `json:"remote-receive-interval"`
	RemoteTx   int    `json:"remote-transmit-interval"`
	RemoteMult int    `json:"remote-detect-multiplier"`
}

func (r *router) bfd(of netip.Addr) bfdPeer {
	var all []bfdPeer
	_ = json.Unmarshal([]byte(r.vty("show bfd peers json")), &all)
	for _, p := range all {
		if p.Peer == of.String() {
			return p
		}
	}
	return bfdPeer{}
}

// withBFD starts the router's bfdd and gives it the profile.
func (r *router) withBFD() {
	r.t.Helper()
	r.start("bfdd", bfdProfile(), "--bfdctl", r.dir+"/bfdd.sock")
	r.waitFor("bfdd", func() bool { return strings.Contains(r.vty("show bfd peers json"), "[") })
}

// configure gives the router lines after its start, as bfdd has to be there first.
func (r *router) configure(lines ...string) {
	r.t.Helper()
	r.vty(append([]string{"configure terminal", fmt.Sprintf("router bgp %d", routerASN)}, lines...)...)
}

// cut makes the cable lose everything, while both ends say that all is well. This end is
// first: it has to find out by itself, and not to be told by the router.
func (r *router) cut() {
	r.t.Helper()
	const rules = "table netdev cut { chain in { type filter hook ingress device %s priority 0; policy drop; }; }"
	r.must("nft", fmt.Sprintf("add "+rules, "flbgp0"))
	r.must("ip", "netns", "exec", r.ns, "nft", fmt.Sprintf("add "+rules, "tonode"))
	r.t.Cleanup(func() { _ = exec.Command("nft", "delete table netdev cut").Run() })
}

// watchLoss tells when the router's kernel loses a prefix.
func (r *router) watchLoss(t *testing.T, prefix string) <-chan time.Time {
	t.Helper()
	ns, err := netns.GetFromName(r.ns)
	if err != nil {
		t.Fatal(err)
	}
	updates, done := make(chan netlink.RouteUpdate, 1000), make(chan struct{})
	if err := netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{Namespace: &ns}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(done); _ = ns.Close() })
	at := make(chan time.Time, 1)
	go func() {
		for update := range updates {
			if update.Type == unix.RTM_DELROUTE && update.Dst != nil && update.Dst.String() == prefix {
				at <- time.Now()
				return
			}
		}
	}()
	return at
}

func (r *router) mend() {
	r.t.Helper()
	r.must("ip", "netns", "exec", r.ns, "nft", "delete table netdev cut")
	r.must("nft", "delete table netdev cut")
}

// TestFRRAndBFD: both sides come up; a cable that is cut is noticed by both within
// the detection time, and the route is gone then; a planned stop is told as one.
func TestFRRAndBFD(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		source   netip.Addr
		multiHop bool
		asn      uint32
		more     []string
	}{
		{"IPv4", node4, false, nodeASN, nil},
		{"IPv6", node6, false, nodeASN, nil},
		{"IPv4 multihop", node4, true, nodeASN, []string{"ebgp-multihop 2"}},
		{"IPv6 multihop", node6, true, nodeASN, []string{"ebgp-multihop 2"}},
		{"iBGP", node4, false, routerASN, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if netlab.Apart(t) {
				return
			}
			r := startRouter(t, neighborLines(c.source, c.asn, c.more...))
			r.withBFD()
			speaker := newSpeaker(t)
			id := toRouter(c.source)
			id.MyASN, id.EBGPMultiHop = c.asn, c.multiHop
			mustApply(t, speaker, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}})
			r.waitForKernel(vip, node4.String())
			// Now, since FRR 8.4 ends BGP once if BFD was there before it.
			r.configure(fmt.Sprintf("neighbor %v bfd profile fast", c.source))
			sessions, stop := runBFD(t)
			want := map[string]desired.BFD{"tor": bfdTo(id, c.multiHop)}
			sessions.Set(want)
			up := func() {
				t.Helper()
				r.waitFor("both sides are Up, with the intervals of the profile", func() bool {
					p, s := r.bfd(c.source), sessions.Status()["tor"]
					return p.Status == "up" && s.State == bfd.Up && s.Detection == bfdDetection &&
						p.RemoteTx == int(bfdInterval.Milliseconds()) && p.RemoteRx == p.RemoteTx
				})
				r.waitForKernel(vip, node4.String())
			}
			up()
			if p := r.bfd(c.source); p.MultiHop != c.multiHop || p.RemoteMult != bfdMultiplier {
				t.Errorf("FRR says %+v", p)
			}
			downs := r.bfdDowns(c.source)
			sessions = restarted(t, sessions, stop, want)
			up()
			if now := r.bfdDowns(c.source); now != downs || downs < 0 {
				t.Errorf("FRR counts %d times down after a restart, and %d before", now, downs)
			}
			noticed(t, r, speaker, sessions)
			r.mend()
			up()

			sessions.Set(nil)
			r.waitFor("AdminDown is told", func() bool { return r.bfd(c.source).RemoteDiag == "administratively down" })
			if p := r.bfd(c.source); p.Status != "down" {
				t.Errorf("FRR says %+v", p)
			}
			t.Logf("after AdminDown FRR says of BGP: %+v", r.neighbor(c.source))
		})
	}
}

// TestFRRKeepsRoutesWhileBFDGoesOn: the process of BGP restarts beside BFD that goes
// on, and the router loses no route.
func TestFRRKeepsRoutesWhileBFDGoesOn(t *testing.T) {
	if netlab.Apart(t) {
		return
	}
	r := startRouter(t, neighborLines(node4, nodeASN))
	r.withBFD()
	id := toRouter(node4)
	want := map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(vip)}}
	before := newSpeaker(t)
	mustApply(t, before, want)
	r.waitForKernel(vip, node4.String())
	r.configure(fmt.Sprintf("neighbor %v bfd profile fast", node4))
	sessions, _ := runBFD(t)
	sessions.Set(map[string]desired.BFD{"tor": bfdTo(id, false)})
	r.waitFor("BFD is up", func() bool { return r.bfd(node4).Status == "up" && sessions.Status()["tor"].State == bfd.Up })

	downs, lost := r.bfdDowns(node4), r.watchKernel()
	if err := before.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r.waitFor("the router has noticed", func() bool { return r.neighbor(node4).State != "Established" })
	after := newSpeaker(t)
	mustApply(t, after, want)
	r.waitFor("BGP is back", func() bool {
		p := r.paths(vip)
		return r.neighbor(node4).State == "Established" && len(p) == 1 && !p[0].Stale
	})
	if gone := lost(); len(gone) != 0 {
		t.Errorf("the router lost %v", gone)
	}
	if now := r.bfdDowns(node4); now != downs {
		t.Errorf("FRR counts %d times down, and %d before", now, downs)
	}
}

// bfdDowns is how often FRR's session with us was down, -1 if it does not say.
func (r *router) bfdDowns(of netip.Addr) int {
	var all []struct {
		Peer  string `json:"peer"`
		Downs *int   `json:"session-down"`
	}
	_ = json.Unmarshal([]byte(r.vty("show bfd peers counters json")), &all)
	for _, p := range all {
		if p.Peer == of.String() && p.Downs != nil {
			return *p.Downs
		}
	}
	return -1
}

// restarted ends the process that holds the sessions, as in an upgrade, and after two
// detection times another one begins: a router that was not asked to wait is Down by then,
// and says of its session that it is Up since more than a detection time later than before.
func restarted(t *testing.T, sessions *bfd.Sessions, stop func(), want map[string]desired.BFD) *bfd.Sessions {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := sessions.Goodbye(ctx, time.Minute); err != nil {
		t.Error(err)
	}
	stop()
	time.Sleep(2 * bfdDetection)
	next, _ := runBFD(t)
	next.Set(want)
	return next
}

// noticed cuts the cable and measures.
func noticed(t *testing.T, r *router, speaker *Speaker, sessions *bfd.Sessions) {
	t.Helper()
	gone := r.watchLoss(t, vip)
	began := time.Now()
	r.cut()
	for sessions.Status()["tor"].State == bfd.Up {
		if time.Since(began) > patience {
			t.Fatal("the cut is not noticed here")
		}
		<-time.After(time.Millisecond)
	}
	here := time.Since(began)
	if s := sessions.Status()["tor"]; s.Diag != bfd.Expired || s.Failures != 1 {
		t.Errorf("here it is %+v", s)
	}
	speaker.Cut("tor", "BFD says so")
	if s := speaker.States()["tor"]; s.Phase == Established || s.LastError != "BFD says so" {
		t.Errorf("the BGP session is %+v", s)
	}
	ended := time.Since(began)
	var there time.Duration
	select {
	case at := <-gone:
		there = at.Sub(began)
	case <-time.After(patience):
		t.Fatal("the route is still there")
	}
	t.Logf("after the cut: Down here %v, BGP ended here %v, route gone in the router's kernel %v", here, ended, there)
	for what, took := range map[string]time.Duration{"here": here, "in the router": there} {
		// BGP alone takes more than half a minute. How near this is to the detection time is held
		// where the clock is the test's.
		if most := 10 * bfdDetection; took > most {
			t.Errorf("it took %v %s, want at most %v", took, what, most)
		}
	}
}
