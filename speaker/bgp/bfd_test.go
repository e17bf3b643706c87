package bgp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

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

// timers are those of one side.
type timers struct {
	every      time.Duration
	multiplier uint8
}

// patientBFD are those of all who do not say anything else.
func patientBFD() timers { return timers{bfdInterval, bfdMultiplier} }

// with takes over a word of a script: every=300ms or multiplier=3.
func (t timers) with(word string) (_ timers, err error) {
	switch name, value, _ := strings.Cut(word, "="); name {
	case "every":
		t.every, err = time.ParseDuration(value)
	case "multiplier":
		var n uint64
		n, err = strconv.ParseUint(value, 10, 8)
		t.multiplier = uint8(n)
	default:
		err = errors.New("no such word")
	}
	return t, err
}

// profile is the same for FRR.
func (t timers) profile() string {
	return fmt.Sprintf("bfd\n profile fast\n  transmit-interval %d\n  receive-interval %[1]d\n  detect-multiplier %d\n exit\nexit\n",
		t.every.Milliseconds(), t.multiplier)
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
	Rx         int    `json:"receive-interval"`
	RemoteRx   int    `json:"remote-receive-interval"`
	RemoteTx   int    `json:"remote-transmit-interval"`
	RemoteMult int    `json:"remote-detect-multiplier"`
}

func (r *router) bfd(of netip.Addr) bfdPeer {
	var all []bfdPeer
	_ = json.Unmarshal([]byte(r.vty("bfdd", "show bfd peers json")), &all)
	for _, p := range all {
		if p.Peer == of.String() {
			return p
		}
	}
	return bfdPeer{}
}

// withBFD starts the router's bfdd and gives it the profile.
func (r *router) withBFD(bfd timers) {
	r.t.Helper()
	r.start("bfdd", bfd.profile(), "--bfdctl", r.dir+"/bfdd.sock")
	r.waitFor("bfdd", func() bool { return strings.Contains(r.vty("bfdd", "show bfd peers json"), "[") })
}

// configure gives the router lines after its start, as bfdd has to be there first.
func (r *router) configure(lines ...string) {
	r.t.Helper()
	r.vty("bgpd", append([]string{"configure terminal", fmt.Sprintf("router bgp %d", routerASN)}, lines...)...)
}
