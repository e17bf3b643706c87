package pulse

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/api"

	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/speaker/links"
	"fairlead.dev/fairlead/speaker/links/linkstest"
	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/socket"
)

// inKernel is a kernel that takes at once all that it is to hand over.
type inKernel struct {
	want atomic.Pointer[map[netip.Addr]netip.Addr]
}

func (k *inKernel) Set(want map[netip.Addr]netip.Addr) (tried <-chan struct{}) {
	k.want.Store(&want)
	done := make(chan struct{})
	close(done)
	return done
}

func (*inKernel) Failure() string { return "" }

func (*inKernel) Changed() <-chan struct{} { return nil }

// to is what was set last.
func (k *inKernel) to() map[netip.Addr]netip.Addr {
	if want := k.want.Load(); want != nil {
		return *want
	}
	return nil
}

// peersAt are peers with an address of IPv4 each, by name.
func peersAt(addrs map[string]netip.Addr) map[string]hello.Peer {
	peers := map[string]hello.Peer{}
	for name, a := range addrs {
		peers[name] = hello.Peer{Addrs: []netip.Addr{a}}
	}
	return peers
}

// TestConnectionsAreHandedOverBeforeAnAddressIsAnsweredFor: the kernel knows the previous owner before the address
// moves here, and at the latest when it does; a node that leaves goes on as it was.
func TestConnectionsAreHandedOverBeforeAnAddressIsAnsweredFor(t *testing.T) {
	out := &around{view: serving("a", "b"), links: links.NewSnapshot(linkstest.Ethernet(2, true))}
	kernel, b := &inKernel{}, netip.MustParseAddr("192.0.2.2")
	s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Handover: kernel, Log: testlog.New(t)})
	tell := func(number uint64, table api.Table) {
		table.Node, table.Peers = "a", peersAt(map[string]netip.Addr{"b": b})
		s.take(socket.Event{Table: &table, Number: number})
		s.settle(true)
	}
	tell(1, api.Table{Serving: true, Claims: claim(vip4, "b", "a")})
	if got := kernel.to()[vip4]; got != b {
		t.Errorf("before it moves here: %v, want %v", got, b)
	}
	tell(2, api.Table{Serving: true, Claims: claim(vip4, "a", "b")})
	if got := s.State(); kernel.to()[vip4] != b || len(got.Owned) != 1 {
		t.Errorf("after it moved here: %v, and %v are owned", kernel.to(), got.Owned)
	}
	tell(3, api.Table{Leaving: true})
	if got := kernel.to()[vip4]; got != b {
		t.Errorf("while this node leaves: %v, want %v", got, b)
	}
}

// slow is a kernel that another program keeps busy until it is done.
type slow struct {
	inKernel

	done    chan struct{}
	out     *around
	failure string
}

func (k *slow) Set(want map[netip.Addr]netip.Addr) (tried <-chan struct{}) {
	k.inKernel.Set(want)
	k.out.did = append(k.out.did, "hands over")
	return k.done
}

func (k *slow) Failure() string { return k.failure }

// TestAnAddressWaitsForTheKernelAndNotForLong: until it hands over, the address is not answered for, unless that
// takes long; and the agent is told what the kernel refuses.
func TestAnAddressWaitsForTheKernelAndNotForLong(t *testing.T) {
	for name, takes := range map[string]time.Duration{"soon": handoverWithin / 2, "never": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			out := &around{view: serving("a", "b"), links: links.NewSnapshot(linkstest.Ethernet(2, true))}
			kernel := &slow{done: make(chan struct{}), out: out, failure: "no NFT_DUP"}
			s := NewServer(Config{Node: "a", Mesh: out, Links: out, ARP: over{out, "ARP"}, NDP: over{out, "NDP"}, BFD: path{out}, Adjacency: lone{}, LinkCheck: onOne{}, Handover: kernel, Log: testlog.New(t)})
			time.AfterFunc(takes, func() { close(kernel.done) })
			began := time.Now()
			s.take(socket.Event{Table: &api.Table{Node: "a", Serving: true, Claims: claim(vip4, "a", "b"), Peers: map[string]hello.Peer{}}, Number: 1})
			s.settle(true)
			if got, want := time.Since(began), min(takes, handoverWithin); got != want {
				t.Errorf("%s: answered for after %v, want %v", name, got, want)
			}
			first, answers := slices.Index(out.did, "hands over"), slices.Index(out.did, "answers [192.0.2.10] over ARP")
			if first < 0 || answers < first {
				t.Errorf("%s: did %q", name, out.did)
			}
			if got := s.State().Handover; got != kernel.failure {
				t.Errorf("%s: told %q, want %q", name, got, kernel.failure)
			}
			began = time.Now()
			if s.settle(true); !time.Now().Equal(began) {
				t.Errorf("%s: what is answered for waits again", name)
			}
		})
	}
}
