package hello

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/links/linkstest"
)

// TestAConfirmedNeighbourIsNotAskedFor: ARP is lost on the segment, and datagrams are not. The kernel
// of a node goes on to send to the node that was confirmed, and gives the other one up.
func TestAConfirmedNeighbourIsNotAskedFor(t *testing.T) {
	const port = 7475
	segment := linkstest.NewSegment(t)
	sender := linkstest.NewHost(t)
	segment.Attach(sender, "eth0", "192.0.2.1/24")
	// All that takes the kernel minutes takes it a second.
	for name, value := range map[string]string{
		"base_reachable_time_ms": "500", "delay_first_probe_time": "1", "retrans_time_ms": "100",
	} {
		sender.Sysctl("ipv4/neigh/eth0/"+name, value)
	}
	var transport Transport
	if err := sender.Do(func() (err error) {
		transport, err = listenUDP(t.Context(), port)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer transport.Close()

	var mu sync.Mutex
	last := map[netip.Addr]time.Time{} // when something came
	came := func(a netip.Addr) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return last[a]
	}
	targets := []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}
	confirmed, other := targets[0], targets[1]
	for _, a := range targets {
		host := linkstest.NewHost(t)
		segment.Attach(host, "eth0", netip.PrefixFrom(a, 24).String())
		conn, err := host.ListenPacket("udp", netip.AddrPortFrom(a, port).String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			buf := make([]byte, 10)
			for {
				if _, _, err := conn.ReadFrom(buf); err != nil {
					return
				}
				mu.Lock()
				last[a] = time.Now()
				mu.Unlock()
			}
		}()
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			for _, a := range targets {
				_ = transport.Send(netip.AddrPortFrom(a, port), []byte("hello")) // errors show as silence
			}
			transport.(confirmer).Confirm(netip.AddrPortFrom(confirmed, port))
		}
	}()
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	until("nothing comes", func() bool { return !came(confirmed).IsZero() && !came(other).IsZero() })
	for _, command := range []string{
		"add table bridge cut", "add chain bridge cut forward { type filter hook forward priority 0; }",
		"add rule bridge cut forward ether type arp drop",
	} {
		if out, err := segment.Exec("nft", command); err != nil {
			t.Fatal(fmt.Errorf("nft %s: %w: %s", command, err, out))
		}
	}
	until("the kernel never asks for a node", func() bool { return time.Since(came(other)) > time.Second })
	given := time.Now()
	until("the kernel asks for a node that is confirmed", func() bool { return came(confirmed).After(given) })
}

// TestHellosAreConfirmedWhereTheyGet: a node knows that its hellos get to those that hear it, and
// to no others.
func TestHellosAreConfirmedWhereTheyGet(t *testing.T) {
	w := started(t, 3, 1)
	w.cut[[2]int{0, 1}] = true
	w.run(2 * testDetect)
	w.hosts[0].state.reached = nil
	w.run(10 * confirmEvery)
	var reached []netip.Addr
	for _, a := range w.hosts[0].state.reached {
		if !slices.Contains(reached, a) {
			reached = append(reached, a)
		}
	}
	if want := []netip.Addr{w.hosts[2].addr}; !slices.Equal(reached, want) {
		t.Errorf("hellos get to %v, want %v", reached, want)
	}
	if n := len(w.hosts[0].state.reached); n < 9 || n > 10 {
		t.Errorf("told %d times in %v", n, 10*confirmEvery)
	}
}
