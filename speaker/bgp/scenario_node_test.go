package bgp

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
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

// answer is what it says of its session after each.
type answer struct {
	Err       string
	Phase     Phase
	LastError string
	Restart   bool // the router keeps routes of a speaker that restarts
	Received  uint64
}

// obey does as it is told until it is told to close.
func obey(from io.Reader, to io.Writer) int {
	s := New(slog.New(slog.DiscardHandler))
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
			s.Cut("router", o.Cut)
		case o.Drain > 0:
			err = s.Drain(ctx, o.Drain)
		case o.Want != nil:
			err = s.Apply(ctx, o.Want)
		}
		state := s.States()["router"]
		a := answer{Phase: state.Phase, LastError: state.LastError, Restart: state.GracefulRestart, Received: state.Messages.Received.Update}
		if err != nil {
			a.Err = err.Error()
		}
		if err := answers.Encode(a); err != nil || o.Close != "" {
			return 0
		}
	}
}

// node is one speaker in a process of its own, and what it is to announce.
type node struct {
	t        *testing.T
	identity desired.Identity
	routes   map[string]desired.RouteAttrs
	process  *exec.Cmd
	orders   *gob.Encoder
	answers  *gob.Decoder
	turn     chan struct{} // whose it is to speak with the process
}

// start starts the process.
func (n *node) start() {
	n.t.Helper()
	n.process = exec.CommandContext(context.WithoutCancel(n.t.Context()), "/proc/self/exe")
	n.process.Env = append(os.Environ(), obedient+"=1")
	n.process.Stderr = n.t.Output()
	in, errIn := n.process.StdinPipe()
	out, errOut := n.process.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		n.t.Fatal(err)
	}
	n.orders, n.answers = gob.NewEncoder(in), gob.NewDecoder(out)
	if err := n.process.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(n.kill)
}

// tell gives an order and waits for the answer.
func (n *node) tell(o order) (a answer, err error) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	if n.process == nil {
		return a, errors.New("the speaker is not running")
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

// apply has it want what it is to announce now; one that does not run hears of it when it does.
func (n *node) apply() {
	n.t.Helper()
	if n.process == nil {
		return
	}
	session := desired.Session{Identity: n.identity, Routes: prefixes()}
	for prefix, attrs := range n.routes {
		for p := range prefixes(prefix) {
			session.Routes[p] = attrs
		}
	}
	n.must(order{Want: map[string]desired.Session{"router": session}})
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
