package failover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/e2e/bench/figures"
	"fairlead.dev/fairlead/e2e/bench/hellos"
	"fairlead.dev/fairlead/e2e/bench/process"
	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/probe"
)

// What is measured by layer 2, in milliseconds.
const (
	createdLayer2 measure = "Service created → first question that is answered"
	createdAnswer measure = "the same: until its answer comes"
	createdFresh  measure = "the same for an address that no node had before"
	cable         measure = "cable of the answering node pulled: longest gap"
	cableNoAPI    measure = "the same while the API server is stopped"
	cluster       measure = "cable pulled, policy Cluster: until the last flow that was lost"
	clusterNoAPI  measure = "the same under policy Cluster while the API server is stopped"
	killed        measure = "processes of the answering speaker killed: longest gap"
	killedNoAPI   measure = "speaker killed while the API server is stopped: longest gap"
	drained       measure = "answering node excluded from load balancers by its label: longest gap"
	returned      measure = "the label taken off again: longest gap"
	restarted     measure = "speakers restarted one after another, as by an upgrade: longest gap"
	rebooted      measure = "the answering node reboots: longest gap"
)

// Questions without an answer: a planned incident, or one with a successor, is to lose none.
const (
	killedLost      measure = "processes of the answering speaker killed"
	killedNoAPILost measure = "speaker killed while the API server is stopped"
	drainedLost     measure = "answering node excluded from load balancers by its label"
	returnedLost    measure = "the label taken off again"
	restartedLost   measure = "speakers restarted one after another, as by an upgrade"
	rebootedOneLost measure = "the answering node reboots"
)

// What hellos cost, by the number of nodes.
const (
	helloCPU      measure = "CPU of pulse, % of one processor"
	helloSent     measure = "packets sent a second"
	helloReceived measure = "packets received a second"
	helloDeaths   measure = "living nodes taken for dead, times"
)

// helloNodes are how many nodes say hello at a time, helloTime how long.
func helloNodes() []int { return []int{3, 10, 50} }

const helloTime = 30 * time.Second

// excludeLabel is well known: a node that has it serves no LoadBalancer.
const excludeLabel = "node.kubernetes.io/exclude-from-external-load-balancers"

// Layer2 is ARP: the node that answers changes.
func Layer2() Protocol {
	return Protocol{
		title: "Layer 2", contestants: []contestant{fairlead(), native()}, parts: []lab.Part{lab.MetalLB},
		notes: []string{
			fmt.Sprintf("the client asks every %v, by UDP, from a port of its own each time, and is watched after each incident for as long as -window says, 10 s if it does not", askEvery),
			fmt.Sprintf("a gap is the longest time between two questions, one after another, that were answered: %v is none", askEvery),
			"the kernel of the client keeps what it asks while no node answers for the address, so that a question may be answered\n" +
				"  that was asked before one did; it asks the network again after a second",
			fmt.Sprintf("the address of a Service that is created was that of another one before, but where it is said that it was none's;\n"+
				"  the other is gone for %v by then", deleted),
			"the policy of the Service is Local where none is told; the cable is that of the node which answers",
			"a node reboots as systemd does it: all its processes are asked to end at one moment, and its link goes last; nothing tells the cluster before.\n" +
				"  The client asks for " + rebootWindow.String() + " and, since endpoints end with the node, under the policy Cluster",
		},
		measures: []measure{createdLayer2, createdAnswer, createdFresh, cable, cableNoAPI, cluster, clusterNoAPI, killed, killedNoAPI, drained, returned, restarted, rebooted},
		lost:     []measure{killedLost, killedNoAPILost, drainedLost, returnedLost, restartedLost, rebootedOneLost},
		take:     takeLayer2,
		close:    sayHello,
	}
}

// owned is the address of a Service and the node that answers for it.
type owned struct {
	vip   netip.Addr
	owner *lab.Node
}

// incident is what happens to the owner of an address, and what is read from the client's questions.
type incident struct {
	on            owned
	happens, undo func() error
	window        time.Duration
	figures       map[measure]reading
}

const (
	// askEvery is the time between two questions.
	askEvery = 2 * time.Millisecond
	// answerWithin is how long an answer may take.
	answerWithin = time.Second
	// deleted is how long it takes until a Service is gone everywhere, and kube-proxy writes at once again: it writes
	// at most once a second, after two times in a row.
	deleted = 3 * time.Second
)

// watch asks the web server's UDP port at an address, from a port of the client of its own each time.
func (b *bench) watch(ctx context.Context, vip netip.Addr) *probe.Probe {
	return probe.Start(ctx, askEvery, answerWithin, func(ctx context.Context) error {
		conn, err := b.Client.Dial(ctx, "udp", netip.AddrPortFrom(vip, 81).String())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if err := conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte("hostname\n")); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 256))
		return err
	})
}

func nothing() error { return nil }

// reading takes a figure from questions; the incident began at that time.
type reading func(asked []probe.Question, began time.Time) float64

func longestGap(asked []probe.Question, _ time.Time) float64 {
	return figures.Milliseconds(probe.Gap(asked))
}

func untilLost(asked []probe.Question, began time.Time) float64 {
	return figures.Milliseconds(probe.LastLost(asked, began))
}

func countLost(asked []probe.Question, _ time.Time) float64 { return float64(probe.Lost(asked)) }

func takeLayer2(ctx context.Context, b *bench) error {
	if b.wants(createdLayer2, createdAnswer, createdFresh) {
		if err := b.firstAnswers(ctx); err != nil {
			return err
		}
	}
	local, err := b.own(ctx, "local", corev1.ServiceExternalTrafficPolicyLocal)
	if err != nil {
		return err
	}
	all, err := b.own(ctx, "cluster", corev1.ServiceExternalTrafficPolicyCluster)
	if err != nil {
		return err
	}
	for range b.Rounds {
		for _, i := range b.incidents(ctx, local, all) {
			if !b.wants(slices.Collect(maps.Keys(i.figures))...) {
				continue
			}
			if err := b.watched(ctx, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// incidents are those of one round. local and all are Services of the two policies.
func (b *bench) incidents(ctx context.Context, local, all owned) []incident {
	kill := killing(ctx, local.owner, b.processes)
	label := func(change string) func() error {
		return func() error {
			_, err := b.Kubectl(ctx, "label", "node", local.owner.Name, excludeLabel+change)
			return err
		}
	}
	lossless := func(gap, lost measure) map[measure]reading {
		return map[measure]reading{gap: longestGap, lost: countLost}
	}
	w := b.Window
	return []incident{
		{local, local.owner.Unplug, local.owner.Plug, w, map[measure]reading{cable: longestGap}},
		{local, b.withoutAPI(local.owner.Unplug), b.withAPI(local.owner.Plug), w, map[measure]reading{cableNoAPI: longestGap}},
		{all, all.owner.Unplug, all.owner.Plug, w, map[measure]reading{cluster: untilLost}},
		{all, b.withoutAPI(all.owner.Unplug), b.withAPI(all.owner.Plug), w, map[measure]reading{clusterNoAPI: untilLost}},
		{local, kill, nothing, w, lossless(killed, killedLost)},
		{local, b.withoutAPI(kill), b.withAPI(nothing), w, lossless(killedNoAPI, killedNoAPILost)},
		{local, label("="), nothing, w, lossless(drained, drainedLost)},
		{owned{vip: local.vip}, label("-"), nothing, w, lossless(returned, returnedLost)},
		{local, func() error { return b.restart(ctx) }, nothing, w, lossless(restarted, restartedLost)},
		{all, func() error { return all.owner.Shutdown(ctx, true) }, func() error { return all.owner.Start(ctx) }, rebootWindow, lossless(rebooted, rebootedOneLost)},
	}
}

// apiServer is the process that is stopped.
const apiServer = "kube-apiserver"

// withoutAPI is what happens once the API server is stopped.
func (b *bench) withoutAPI(happens func() error) func() error {
	return func() error { return errors.Join(b.Signal(apiServer, syscall.SIGSTOP), happens()) }
}

// withAPI undoes what was done, and lets the API server go on.
func (b *bench) withAPI(undo func() error) func() error {
	return func() error { return errors.Join(b.Signal(apiServer, syscall.SIGCONT), undo()) }
}

// sayHello measures what hellos cost us.
func sayHello(ctx context.Context, b *bench) error {
	speaker := filepath.Join(b.dir, "speaker")
	if err := process.Build(ctx, "fairlead.dev/fairlead/speaker", speaker); err != nil {
		return err
	}
	for _, nodes := range helloNodes() {
		cost, err := hellos.Measure(ctx, speaker, nodes, helloTime)
		if err != nil {
			return fmt.Errorf("hellos of %d nodes: %w", nodes, err)
		}
		b.tell("hellos of %d nodes: %+v", nodes, cost)
		for m, value := range map[measure]float64{
			helloCPU: cost.CPU, helloSent: cost.Sent, helloReceived: cost.Received, helloDeaths: float64(cost.Deaths),
		} {
			b.results.Add(b.name, nodes, m, value)
		}
	}
	return nil
}

// firstAnswers takes turns with an address that a Service has each time and one that none has had yet.
func (b *bench) firstAnswers(ctx context.Context) error {
	const lately, fresh = "172.30.200.90", "172.30.200.10" // of the pool
	next := netip.MustParseAddr(fresh)
	// The first Service has the address for the first time, and its figure does not count.
	if err := b.firstAnswer(ctx, "before", lately, "", ""); err != nil {
		return err
	}
	for n := range b.Rounds {
		if err := errors.Join(b.firstAnswer(ctx, fmt.Sprintf("lately-%d", n), lately, createdLayer2, createdAnswer),
			b.firstAnswer(ctx, fmt.Sprintf("fresh-%d", n), next.String(), "", createdFresh)); err != nil {
			return err
		}
		next = next.Next()
	}
	return nil
}

// firstAnswer creates a Service and asks for its address until there is an answer. It deletes the Service and waits
// until that is done, so that the next one finds an idle cluster.
func (b *bench) firstAnswer(ctx context.Context, name, address string, asked, answered measure) (err error) {
	s := b.service(name, "layer2", corev1.ServiceExternalTrafficPolicyCluster)
	s.Annotations["metallb.io/loadBalancerIPs"] = address
	began := time.Now()
	vip, _, err := b.given(ctx, s)
	if err != nil {
		return err
	}
	w := b.watch(ctx, vip)
	err = w.Answer(ctx)
	questions := w.End()
	if i := slices.IndexFunc(questions, func(q probe.Question) bool { return q.Answered }); i >= 0 && asked != "" {
		b.took(asked, questions[i].Sent.Sub(began))
	}
	if at, ok := probe.FirstAnswer(questions); ok && answered != "" {
		b.took(answered, at.Sub(began))
	}
	err = errors.Join(err, b.API.Delete(ctx, s))
	time.Sleep(deleted)
	return err
}

// own creates a Service and finds the node that answers for its address.
func (b *bench) own(ctx context.Context, name string, policy corev1.ServiceExternalTrafficPolicy) (owned, error) {
	vip, _, err := b.given(ctx, b.service(name, "layer2", policy))
	if err != nil {
		return owned{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not within a minute"))
	defer cancel()
	owner, err := b.Answerer(ctx, vip)
	return owned{vip, owner}, err
}

// watched watches the client while something happens and for a while after it, undoes it,
// and waits until all is as before.
func (b *bench) watched(ctx context.Context, i incident) error {
	what := slices.Sorted(maps.Keys(i.figures))
	if err := b.calm(ctx, i.on); err != nil {
		return fmt.Errorf("before %s: %w", what[0], err)
	}
	w := b.watch(ctx, i.on.vip)
	time.Sleep(b.Window / 10)
	began := time.Now()
	err := i.happens()
	time.Sleep(i.window)
	asked := w.End()
	if err = errors.Join(err, i.undo()); err != nil {
		return fmt.Errorf("%s: %w", what[0], err)
	}
	for _, m := range what {
		b.add(m, i.figures[m](asked, began))
	}
	return nil
}

// calm waits until the owner answers as before, all nodes are ready, and nothing is lost.
// Without an owner any node may answer.
func (b *bench) calm(ctx context.Context, o owned) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("not as before within 5 minutes"))
	defer cancel()
	for ctx.Err() == nil {
		if err := errors.Join(b.WaitReady(ctx), b.ready(ctx)); err != nil {
			return err
		}
		if now, err := b.Answerer(ctx, o.vip); err != nil || o.owner != nil && now != o.owner {
			time.Sleep(time.Second)
			continue
		}
		w := b.watch(ctx, o.vip)
		time.Sleep(2 * time.Second)
		if probe.Lost(w.End()) == 0 {
			return nil
		}
	}
	return context.Cause(ctx)
}
