package bgp

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// obedient makes the test binary the speaker of a node that does as it is told, so that it can
// be killed.
const obedient = "FAIRLEAD_BGP_TEST_OBEY"

// order is what such a speaker is told, one of them at a time.
type order struct {
	Want  map[string]desired.Session
	Cut   string        // BFD says that the router cannot be reached
	Drain time.Duration // routers are to prefer others, for so long
	Close string        // planned or silent
}

// answer is what it says after each: what there is to tell of its sessions, by name, in words.
type answer struct {
	Err      string
	Sessions map[string]string
}

// obey does as it is told until it is told to close.
func obey(from io.Reader, to io.Writer) int {
	s := New(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	s.ListenOn(passivePort)
	orders, answers := gob.NewDecoder(from), gob.NewEncoder(to)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			return 1
		}
		var err error
		switch ctx := context.Background(); {
		case o.Close != "":
			err = s.Close(ctx, o.Close == "planned")
		case o.Cut != "":
			s.Cut(theRouter, o.Cut)
		case o.Drain > 0:
			err = s.Drain(ctx, o.Drain)
		case o.Want != nil:
			err = s.Apply(ctx, o.Want)
		}
		a := answer{Sessions: map[string]string{}}
		for name, state := range s.States() {
			a.Sessions[name] = inWords(state)
		}
		if err != nil {
			a.Err = err.Error()
		}
		if err := answers.Encode(a); err != nil || o.Close != "" {
			return 0
		}
	}
}

// inWords is what a BGPSession says of a session, a line for each field.
func inWords(s State) string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%s: %v\n", name, value) }
	line("state", s.Phase)
	line("lastError", s.LastError+s.Overcome)
	if s.Phase != Established {
		return b.String()
	}
	line("advertisedPrefixes", s.Advertised)
	line("prefixes", s.Prefixes)
	line("localAddress", s.LocalAddress.WithZone(""))
	line("peerASN", s.PeerASN)
	line("holdTime", s.HoldTime)
	line("keepaliveTime", s.KeepaliveTime)
	line("gracefulRestart", s.GracefulRestart)
	line("fourOctetASN", s.FourOctetASN)
	line("IPv4", s.IPv4)
	line("IPv6", s.IPv6)
	for _, left := range s.Unannounced {
		line("leftOut", left)
	}
	return b.String()
}

// theRouter and other are the sessions of a node: with the router, and with one beside it that
// misbehaves.
const (
	theRouter = "router"
	other     = "other"
)

// node is one speaker in a process of its own, and what it is to announce.
type node struct {
	t *testing.T

	mu       sync.Mutex // held while the speaker is told what it is to do, too
	identity desired.Identity
	routes   map[netip.Prefix]desired.RouteAttrs
	leaving  map[netip.Prefix]desired.RouteAttrs
	others   map[string]desired.Session

	turn    chan struct{} // whose it is to speak with the process
	process *exec.Cmd
	orders  *gob.Encoder
	answers *gob.Decoder
}

func newNode(t *testing.T) *node {
	return &node{t: t, routes: map[netip.Prefix]desired.RouteAttrs{}, leaving: map[netip.Prefix]desired.RouteAttrs{}, others: map[string]desired.Session{}, turn: make(chan struct{}, 1)}
}

// start starts the process unless it runs.
func (n *node) start() {
	n.t.Helper()
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	if n.process != nil {
		return
	}
	process := exec.CommandContext(context.WithoutCancel(n.t.Context()), "/proc/self/exe")
	process.Env = append(os.Environ(), obedient+"=1")
	process.Stderr = n.t.Output()
	in, errIn := process.StdinPipe()
	out, errOut := process.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		n.t.Fatal(err)
	}
	n.orders, n.answers = gob.NewEncoder(in), gob.NewDecoder(out)
	if err := process.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.process = process
	n.t.Cleanup(n.kill)
}

// errNoSpeaker is what is said by a node without a speaker.
var errNoSpeaker = errors.New("the speaker is not running")

// tell gives an order and waits for the answer.
func (n *node) tell(o order) (a answer, err error) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	if n.process == nil {
		return a, errNoSpeaker
	}
	if err := errors.Join(n.orders.Encode(o), n.answers.Decode(&a)); err != nil {
		return a, err
	}
	if a.Err != "" {
		err = errors.New(a.Err)
	}
	return a, err
}

func (n *node) must(o order) answer {
	n.t.Helper()
	a, err := n.tell(o)
	if err != nil {
		n.t.Fatalf("telling the speaker %+v: %v", o, err)
	}
	return a
}

// change changes what the node is to do and tells its speaker; one that does not run hears of it
// when it does.
func (n *node) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
	want := maps.Clone(n.others)
	if n.identity.MyASN != 0 {
		want[theRouter] = desired.Session{Identity: n.identity, Routes: maps.Clone(n.routes), Leaving: maps.Clone(n.leaving)}
	}
	if _, err := n.tell(order{Want: want}); err != nil && !errors.Is(err, errNoSpeaker) {
		n.t.Errorf("applying %+v: %v", want, err)
	}
}

// who is its side of the session.
func (n *node) who() desired.Identity {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.identity
}

// kill ends the process outright.
func (n *node) kill() {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	if n.process != nil {
		_, _ = n.process.Process.Kill(), n.process.Wait()
		n.process = nil
	}
}

// end has it close its session, planned or silent, and waits for its end.
func (n *node) end(how string) {
	n.t.Helper()
	n.must(order{Close: how})
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	if err := n.process.Wait(); err != nil {
		n.t.Error(fmt.Errorf("the speaker ended: %w", err))
	}
	n.process = nil
}
