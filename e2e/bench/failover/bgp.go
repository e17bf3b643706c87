package failover

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/lab"
)

// What is measured by BGP, in the kernel of the router.
const (
	createdBGP  measure = "Service created → route"
	createdBIRD measure = "the same with BIRD as the router"
	givenBGP    measure = "address in the status → route"
	givenBIRD   measure = "the same, with BIRD"
	givenWire   measure = "address in the status → the first UPDATE is at the router"
	emptied     measure = "last endpoint gone → route gone"
	emptiedBIRD measure = "the same: BIRD"
	heldOut     measure = "cable of a node pulled → its next hop gone, hold time 9 s"
	slowBFD     measure = "the same, BFD 300 ms × 3"
	midBFD      measure = "the same, BFD 100 ms × 3"
	fastBFD     measure = "the same, BFD 50 ms × 3"
	flapped     measure = "processes of a speaker killed: time without its route"
	flappedBFD  measure = "the same with BFD 300 ms × 3"
	frrFlapped  measure = "processes of FRR on a node killed: time without its route"
	rolled      measure = "all restarted one after another, as by an upgrade: time without a route, of all nodes"
)

// Questions without an answer.
const (
	flappedLost    measure = "processes of a speaker killed"
	flappedBFDLost measure = "the same while there is BFD"
	frrLost        measure = "processes of FRR on a node killed"
	rolledLost     measure = "all restarted one after another, as by an upgrade"
	rebootedLost   measure = "a node reboots"
)

// intervals of BFD, in milliseconds.
func intervals() map[measure]int { return map[measure]int{slowBFD: 300, midBFD: 100, fastBFD: 50} }

// BGP is routes: the next hops that a router has change.
func BGP() Protocol {
	return Protocol{
		title: "BGP", contestants: []contestant{fairlead(), native(), withFRR()}, parts: []lab.Part{lab.MetalLB, lab.FRRK8s},
		facts: []string{"metallb-frr-k8s is the mode that MetalLB installs by default: frr-k8s " + lab.FRRK8sVersion + ", with Debian's FRR on each node"},
		notes: []string{
			fmt.Sprintf("routes are those in the router's kernel, which is looked at every %v; the router is FRR where nothing else is said", lookEvery),
			"of the time to a new route FRR itself takes 60 ms: its bgpd collects changes for 50 ms, and its zebra for 10 (\"show work-queues\")",
			"BIRD runs beside FRR at the router, with a session of its own with each node, and is told of the same Services at the same time",
			"where FRR is killed, all is restarted or a node reboots, BFD is on (300 ms × 3) with all that have it, which MetalLB's native mode has not;\n" +
				"  the client asks every " + askEvery.String() + " through the router, under the policy Cluster, for " + rebootWindow.String() + " after a reboot",
			"FRR has one session with an address, so that metallb-frr-k8s has none with BIRD or with a second router",
			"Fairlead announces an address once its forwarding is in the kernel of the node; MetalLB does not wait for kube-proxy",
		},
		measures: []measure{createdBGP, createdBIRD, givenBGP, givenBIRD, givenWire, emptied, emptiedBIRD, heldOut, slowBFD, midBFD, fastBFD, flapped, flappedBFD, frrFlapped, rolled, manyCome, manyGo},
		lost:     []measure{flappedLost, flappedBFDLost, frrLost, rolledLost, rebootedLost},
		memory:   []measure{manyMemory},
		take:     takeBGP,
	}
}

// lookEvery is the time between two looks at the router's kernel.
const lookEvery = 500 * time.Microsecond

func takeBGP(ctx context.Context, b *bench) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if b.frr == "" {
		if err := b.startBIRD(ctx); err != nil {
			return err
		}
	}
	vip, _, err := b.given(ctx, b.service("kept", "bgp", corev1.ServiceExternalTrafficPolicyCluster))
	if err != nil {
		return err
	}
	// Whatever is sent to the router from then on is about what is measured.
	if _, err := b.both(ctx, vip, "routes over all nodes", b.everyNode); err != nil {
		return err
	}
	for n := range b.Rounds {
		if b.wants(createdBGP, createdBIRD, givenBGP, givenBIRD, givenWire) {
			if err := b.firstRoute(ctx, fmt.Sprintf("first-%d", n)); err != nil {
				return err
			}
		}
		if b.wants(emptied, emptiedBIRD) {
			if err := b.empty(ctx, fmt.Sprintf("empty-%d", n)); err != nil {
				return err
			}
		}
	}
	if b.frr != "" {
		return b.fail(ctx, vip)
	}
	if err := errors.Join(b.stopBIRD(ctx), b.fail(ctx, vip)); err != nil || b.Many == 0 || !b.wants(manyCome, manyGo, manyMemory) {
		return err
	}
	return b.many(ctx, b.Many)
}

// fail has a node fail in several ways: without BFD first, then with it if there is any.
func (b *bench) fail(ctx context.Context, vip netip.Addr) error {
	for range b.Rounds {
		if b.wants(heldOut) {
			if err := b.pull(ctx, vip, heldOut); err != nil {
				return err
			}
		}
		if err := b.happen(ctx, vip, b.killed(ctx, flapped, flappedLost)); err != nil {
			return err
		}
	}
	if b.bfd {
		if err := b.pulls(ctx, vip, slowBFD); err != nil {
			return err
		}
	}
	for range b.Rounds {
		for _, e := range b.events(ctx) {
			if err := b.happen(ctx, vip, e); err != nil {
				return err
			}
		}
	}
	if !b.bfd {
		return nil
	}
	return errors.Join(b.pulls(ctx, vip, midBFD), b.pulls(ctx, vip, fastBFD))
}

// pulls pulls the cable with BFD at the interval of the measure.
func (b *bench) pulls(ctx context.Context, vip netip.Addr, m measure) error {
	if err := b.speakBFD(ctx, intervals()[m]); err != nil {
		return err
	}
	for range b.Rounds {
		if !b.wants(m) {
			break
		}
		if err := b.pull(ctx, vip, m); err != nil {
			return err
		}
	}
	return nil
}

// route waits until the router has the wanted next hops of the address, and returns when it had.
func (b *bench) route(ctx context.Context, vip netip.Addr, what string, wanted func(hops []netip.Addr) bool) (time.Time, error) {
	at, err := b.routes(ctx, vip, what, wanted, unix.RT_TABLE_MAIN)
	return at[0], err
}

// both is route at both routers, FRR and BIRD, or at FRR alone where BIRD has no session.
func (b *bench) both(ctx context.Context, vip netip.Addr, what string, wanted func(hops []netip.Addr) bool) ([]time.Time, error) {
	if b.frr != "" {
		return b.routes(ctx, vip, what, wanted, unix.RT_TABLE_MAIN)
	}
	return b.routes(ctx, vip, what, wanted, unix.RT_TABLE_MAIN, birdTable)
}

// routes waits until each of the tables of the router's kernel has the wanted next hops of the
// address, and returns when it had.
func (b *bench) routes(ctx context.Context, vip netip.Addr, what string, wanted func(hops []netip.Addr) bool, tables ...int) ([]time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("%s: not within 2 minutes", what))
	defer cancel()
	at, hops := make([]time.Time, len(tables)), make([][]netip.Addr, len(tables))
	for {
		for i, table := range tables {
			if !at[i].IsZero() {
				continue
			}
			var err error
			if hops[i], err = b.Router.RoutesIn(table, netip.PrefixFrom(vip, vip.BitLen())); err != nil {
				return at, err
			}
			if wanted(hops[i]) {
				at[i] = time.Now()
			}
		}
		if !slices.ContainsFunc(at, time.Time.IsZero) {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("%w; next hops %v in the tables %v", context.Cause(ctx), hops, tables)
		case <-time.After(lookEvery):
		}
	}
}

func some(hops []netip.Addr) bool { return len(hops) > 0 }

func none(hops []netip.Addr) bool { return len(hops) == 0 }

func without(n *lab.Node) func([]netip.Addr) bool {
	return func(hops []netip.Addr) bool { return !slices.Contains(hops, n.IPv4) }
}

func (b *bench) everyNode(hops []netip.Addr) bool { return len(hops) == len(b.Nodes()) }

// firstRoute creates a Service and waits for its route.
func (b *bench) firstRoute(ctx context.Context, name string) error {
	updates, err := b.Router.Capture(ctx, updatesTo(b.Router.IPv4))
	if err != nil {
		return err
	}
	defer updates.Stop()
	s, began := b.service(name, "bgp", corev1.ServiceExternalTrafficPolicyCluster), time.Now()
	vip, given, err := b.given(ctx, s)
	if err != nil {
		return err
	}
	at, err := b.both(ctx, vip, "a route to "+name, some)
	if err != nil {
		return err
	}
	sent, err := firstUpdate(updates.Stop(), began)
	if err != nil {
		return err
	}
	for i := range at { // of FRR and, if it takes part, BIRD
		b.took([]measure{createdBGP, createdBIRD}[i], at[i].Sub(began))
		b.took([]measure{givenBGP, givenBIRD}[i], at[i].Sub(given))
	}
	if b.frr == "" { // which sends other UPDATEs meanwhile
		b.took(givenWire, max(sent.Sub(given), 0)) // this watch may see the address later than the speaker does
	}
	return b.API.Delete(ctx, s)
}

// updatesTo is the filter of packets to a router with more than a KEEPALIVE in them.
func updatesTo(router netip.Addr) string {
	const headers, keepalive = 20 + 32, 19
	return fmt.Sprintf("dst host %v and tcp dst port 179 and ip[2:2] > %d", router, headers+keepalive)
}

// firstUpdate is when the first packet came after a time.
func firstUpdate(packets []string, after time.Time) (time.Time, error) {
	for _, line := range packets {
		text, _, _ := strings.Cut(line, " ")
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("%q begins with no time: %w", line, err)
		}
		if at := time.UnixMicro(int64(seconds * 1e6)); at.After(after) {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("the route came without an UPDATE among %d packets", len(packets))
}

// empty takes the only endpoint of a Service away and waits until there is no route.
func (b *bench) empty(ctx context.Context, name string) error {
	pod, err := b.webServer(ctx)
	if err != nil {
		return err
	}
	s := b.service(name, "bgp", corev1.ServiceExternalTrafficPolicyCluster)
	s.Spec.Selector = nil
	slice := endpoint(s, pod)
	if err := b.API.Create(ctx, slice); err != nil {
		return err
	}
	vip, _, err := b.given(ctx, s)
	if err != nil {
		return err
	}
	if _, err := b.both(ctx, vip, "routes to "+name, b.everyNode); err != nil {
		return err
	}
	slice.Endpoints = nil
	began := time.Now()
	if err := b.API.Update(ctx, slice); err != nil {
		return err
	}
	at, err := b.both(ctx, vip, "no route to "+name, none)
	if err != nil {
		return err
	}
	for i := range at {
		b.took([]measure{emptied, emptiedBIRD}[i], at[i].Sub(began))
	}
	return errors.Join(b.API.Delete(ctx, s), client.IgnoreNotFound(b.API.Delete(ctx, slice)))
}

// pull pulls the cable of a node and waits until the router has no route over it.
func (b *bench) pull(ctx context.Context, vip netip.Addr, m measure) error {
	n := b.Node(1)
	if _, err := b.route(ctx, vip, "routes over all nodes", b.everyNode); err != nil {
		return err
	}
	if interval, ok := intervals()[m]; ok {
		if err := b.detecting(ctx, interval); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := n.Unplug(); err != nil {
		return err
	}
	at, err := b.route(ctx, vip, "no route over "+n.Name, without(n))
	if err == nil {
		b.took(m, at.Sub(began))
	}
	return errors.Join(err, n.Plug(), b.WaitReady(ctx))
}

// speakBFD gives the router and the peer the same timers.
func (b *bench) speakBFD(ctx context.Context, interval int) error {
	ms := fmt.Sprint(interval)
	if _, err := b.Router.VTYSH(ctx, "configure terminal", "bfd", "profile bench", "detect-multiplier 3",
		"transmit-interval "+ms, "receive-interval "+ms, "exit", "exit",
		"router bgp "+fmt.Sprint(lab.RouterASN), "neighbor nodes bfd profile bench"); err != nil {
		return err
	}
	spec := "transmitInterval: " + ms + ", receiveInterval: " + ms + ", detectMultiplier: 3"
	if err := b.Apply(ctx, b.object("v1beta1", "BFDProfile", "bench", spec)); err != nil {
		return err
	}
	_, err := b.Kubectl(ctx, "patch", "-n", b.namespace, "bgppeers."+b.group, "router", "--type=merge", "-p", `{"spec":{"bfdProfile":"bench"}}`)
	return err
}

// detecting waits until the router has BFD up with every node at that interval.
func (b *bench) detecting(ctx context.Context, interval int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("BFD is not up within a minute"))
	defer cancel()
	return lab.Until(ctx, func() error {
		text, err := b.Router.VTYSH(ctx, "show bfd peers")
		if err != nil {
			return err
		}
		up := strings.Count(text, "Status: up")
		same := strings.Count(text, fmt.Sprintf("Echo transmission interval: disabled\n\t\tRemote timers:\n\t\t\tDetect-multiplier: 3\n\t\t\tReceive interval: %dms", interval))
		if up < len(b.Nodes()) || same < len(b.Nodes()) {
			return fmt.Errorf("%d up, %d with %d ms:\n%s", up, same, interval, text)
		}
		return nil
	})
}
