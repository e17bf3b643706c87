package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
)

// byStrangers are what hosts on the network and pods send, and what happens to the connection table of a node.
func byStrangers() []fault {
	return []fault{
		{name: "a pod floods the port of the hellos", inject: floodByPod},
		{name: "a host floods the LAN", gate: true, inject: floodLAN},
		{name: "a host speaks for a node that is dead", excused: excuses{moves: true, routes: true, lost: true}, inject: forgeTheDead},
		{name: "a host says again what a node said that has stopped", excused: excuses{moves: true, routes: true, lost: true}, inject: replayHellos},
		{name: "a host speaks for the router by BFD", inject: forgeBFD},
		{name: "a copy of the cluster is on the LAN", inject: copied, check: func(ctx context.Context, k *kit) error { return k.beside(ctx) }},
		{name: "there is no room for new connections", inject: noRoom},
		{name: "what an address does not have is asked for", gate: true, inject: routeBack, check: closed},
	}
}

// repeat sends frames again and again, so many each time, until the test ends.
func repeat(t *testing.T, from *lab.Machine, every time.Duration, frames ...[]byte) {
	t.Helper()
	l, err := open(from, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for ctx.Err() == nil {
			for _, f := range frames {
				_ = l.send(f) // there may be no room for a moment
			}
			<-ticks.C
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
}

// hello looks like one, until a node looks for the authentication.
const hello = "FLHI\x01 and more that is not a hello of a node with our key, if any node looks at it"

// floodByPod has a pod of the tenant send to a node what looks like hellos, as fast as a shell does.
func floodByPod(t *testing.T, k *kit, r *rand.Rand) {
	from, to := k.victim(r), k.victim(r)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	command := fmt.Sprintf(`exec 3>/dev/udp/%s/7475; while :; do printf '%s' >&3; done`, to.IPv4, hello)
	pods, err := processes(within(t, soon), from, "^/agnhost netexec")
	if err != nil || len(pods) == 0 {
		t.Fatalf("%s has no pod to flood from: %v", from.Name, err)
	}
	go func() {
		defer close(ended)
		// It ends when it is killed.
		_, _ = from.Exec(ctx, "nsenter", "-t", pods[0], "-n", "nice", "bash", "-c", command)
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// floodLAN has the client send 20,000 frames a second: questions for addresses, hellos of no node, and frames with the
// EtherType of the continuity checks.
func floodLAN(t *testing.T, k *kit, r *rand.Rand) {
	const linkChecks = 0x88b6
	victim := k.victim(r)
	var frames [][]byte
	for range 10 {
		frames = append(frames,
			arpFrame(k.Client.MAC, arpRequest, k.Client.MAC, k.Client.IPv4, nil, k.layer2[0]),
			udpFrame(k.Client.MAC, victim.MAC, netip.AddrPortFrom(k.Client.IPv4, 7475), netip.AddrPortFrom(victim.IPv4, 7475), []byte(hello)),
			udpFrame(k.Client.MAC, victim.MAC, netip.AddrPortFrom(k.Node(1).IPv4, 7475), netip.AddrPortFrom(victim.IPv4, 7475), []byte(hello)),
			append(ethernet(net.HardwareAddr{0x03, 'F', 'L', 'O', 'L', 0x01}, k.Client.MAC, linkChecks), hello...),
		)
	}
	repeat(t, k.Client, 2*time.Millisecond, frames...)
}

// forgeTheDead cuts the link of a node that answers, and has the client go on in its name.
func forgeTheDead(t *testing.T, k *kit, r *rand.Rand) {
	dead := k.homes[r.IntN(len(k.homes))]
	atEnd(t, func(context.Context) error { return dead.Plug() })
	k.absent = dead
	if err := dead.Unplug(); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, soon)
	if err := lab.Until(ctx, func() error { return errors.Join(k.answered(ctx, true), k.heard(ctx)) }); err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for _, source := range []net.HardwareAddr{k.Client.MAC, dead.MAC} {
		frames = append(frames,
			arpFrame(source, arpRequest, dead.MAC, k.layer2[0], nil, k.layer2[0]),
			arpFrame(source, arpReply, dead.MAC, k.layer2[0], dead.MAC, k.layer2[0]),
			advertisement(source, k.layer2[1], dead.MAC),
		)
	}
	repeat(t, k.Client, 100*time.Millisecond, frames...)
}

// replayHellos has pulse of a node stop, and the client send again what that has said to another node: it stays dead.
func replayHellos(t *testing.T, k *kit, r *rand.Rand) {
	i := r.IntN(len(k.Nodes()))
	dead, hearer := k.Nodes()[i], k.Nodes()[(i+1)%len(k.Nodes())]
	said, err := record(hearer.Machine, dead.IPv4, 7475)
	if err != nil || len(said) == 0 {
		t.Fatalf("%s said %d hellos to %s: %v", dead.Name, len(said), hearer.Name, err)
	}
	for _, frame := range said {
		copy(frame[6:12], k.Client.MAC) // or the switch sends what is for the node to the client
	}
	k.stopPulse(t, dead)
	repeat(t, k.Client, 50*time.Millisecond, said...)
}

// forgeBFD has the client tell nodes in the router's name that its sessions are down.
func forgeBFD(t *testing.T, k *kit, _ *rand.Rand) {
	const down, adminDown = 1, 0
	var frames [][]byte
	for _, n := range k.Nodes() {
		for _, state := range []byte{down, adminDown} {
			// RFC 5880, 4.1: the discriminator of the sender is 7, that of the receiver unknown, all intervals a second.
			second := []byte{0, 0x0f, 0x42, 0x40}
			packet := append([]byte{0x20, state << 6, 3, 24, 0, 0, 0, 7, 0, 0, 0, 0}, second...)
			packet = append(append(packet, second...), 0, 0, 0, 0)
			frames = append(frames, udpFrame(k.Client.MAC, n.MAC, netip.AddrPortFrom(k.Router.IPv4, 49152), netip.AddrPortFrom(n.IPv4, 3784), packet))
		}
	}
	repeat(t, k.Client, 100*time.Millisecond, frames...)
}

// noRoom has a node forget which flows there are, and take no new ones on the ports of hellos and BFD: that is what a
// connection table without room does, whose size is the whole machine's.
func noRoom(t *testing.T, k *kit, r *rand.Rand) {
	n := k.victim(r)
	atEnd(t, func(ctx context.Context) error {
		_, err := n.Exec(ctx, "nft", "delete table inet full")
		return err
	})
	const chain = "chain %[1]s { type filter hook %[1]s priority -150; ct state new udp dport { 3784, 4784, 7475 } drop; }; "
	table := "table inet full { " + fmt.Sprintf(chain, "prerouting") + fmt.Sprintf(chain, "output") + "}"
	if _, err := n.Exec(within(t, soon), "nft", table); err != nil {
		t.Fatal(err)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		for _, port := range []string{"3784", "7475"} {
			// It fails where there is no such flow.
			_, _ = n.Exec(within(t, soon), "conntrack", "-D", "-f", family, "-p", "udp", "--dport", port)
		}
	}
}
