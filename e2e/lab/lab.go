package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.dev/fairlead/internal/addr"
)

// Lab is a running lab.
type Lab struct {
	ControlPlane *Machine
	Client       *Machine
	Router       *Router

	options Options
	dir     cache
	nodes   []*Node
	procs   processes
	cgroups cgroups
}

// Options say what lab to start.
type Options struct {
	Nodes int    // how many, at most 9; 0 means 3
	Proxy string // "iptables" or "nftables": run the real kube-proxy; "": run none
	BFD   bool   // the router runs BFD with its BGP neighbors
	// IPv6First has IPv6 for the first family: of nodes, of pods, and of Services that ask for one.
	IPv6First bool
	// LegacyIPTables has the nodes, and so their kubelets and CNI plugins, use legacy iptables.
	LegacyIPTables bool
	// PodNetwork is what connects pods; "" means Bridge.
	PodNetwork PodNetwork
	// ControlPlaneOnNode runs the control plane on node1, which cannot be killed then, and not on a machine of its own.
	ControlPlaneOnNode bool
	// Older runs [OlderKubernetesVersion] in place of [KubernetesVersion]. It needs the part [OlderKubernetes].
	Older bool
	// ManyServices lets ten thousand Services be created in minutes. By default each costs what
	// there are already: the API server counts all IPAddress objects, twice, after it has created
	// one. As of 1.33, whose behaviour it then emulates, it keeps ClusterIPs in a bitmap. It and
	// etcd also collect garbage late.
	ManyServices bool
	// Progress gets a line for each step that is done, with the seconds since
	// the start; nil: none.
	Progress io.Writer `json:"-"`
}

// optionsFile is in the state directory, for Open.
const optionsFile = "options.json"

// Open gives the lab that runs. It is an error if none is up.
func Open() (*Lab, error) {
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(c.state(optionsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("no lab is up: run lab up")
	}
	if err != nil {
		return nil, err
	}
	var options Options
	if err := json.Unmarshal(text, &options); err != nil {
		return nil, fmt.Errorf("%s: %w", c.state(optionsFile), err)
	}
	return newLab(c, options)
}

func newLab(c cache, options Options) (*Lab, error) {
	groups, err := findCgroups()
	if err != nil {
		return nil, err
	}
	name, own := options.controlPlane()
	l := &Lab{
		ControlPlane: newMachine(name, own, options.PodNetwork.families()),
		Client:       newMachine(clientName, clientAddresses(), addr.Families()),
		options:      options,
		dir:          c,
		procs:        processes{records: c.state("processes"), logs: c.state("log")},
		cgroups:      groups,
	}
	l.Router = l.newRouter()
	for n := range options.Nodes {
		l.nodes = append(l.nodes, l.newNode(n+1))
	}
	return l, nil
}

// Node gives node number n, from 1. It panics if there is none.
func (l *Lab) Node(n int) *Node { return l.nodes[n-1] }

// Nodes gives all nodes, in order.
func (l *Lab) Nodes() []*Node { return slices.Clone(l.nodes) }

// PodNetwork gives what connects the pods.
func (l *Lab) PodNetwork() PodNetwork { return l.options.PodNetwork }

// Families gives those that the cluster has.
func (l *Lab) Families() []addr.Family { return l.options.PodNetwork.families() }

// Kubernetes gives the version of the cluster.
func (l *Lab) Kubernetes() string {
	if l.options.Older {
		return OlderKubernetesVersion
	}
	return KubernetesVersion
}

// Machines gives every machine of the lab.
func (l *Lab) Machines() []*Machine {
	all := []*Machine{l.Client, l.Router.Machine}
	for _, n := range l.nodes {
		all = append(all, n.Machine)
	}
	if l.options.ControlPlaneOnNode {
		return all
	}
	return append(all, l.ControlPlane)
}

// Machine gives the machine of that name: cp, client, router or node1 and up. Any other name is
// an error.
func (l *Lab) Machine(name string) (*Machine, error) {
	all := l.Machines()
	i := slices.IndexFunc(all, func(m *Machine) bool { return m.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("the lab has no machine %q", name)
	}
	return all[i], nil
}

// Up starts a lab. After an error what was started is left for inspection,
// with its logs, until Down.
func Up(ctx context.Context, options Options) (*Lab, error) {
	if missing := Missing(); len(missing) > 0 {
		return nil, errors.Join(missing...)
	}
	if options.Nodes == 0 {
		options.Nodes = 3
	}
	if options.Nodes < 0 || options.Nodes > maxNodes {
		return nil, fmt.Errorf("%d nodes: the lab has room for 1 to %d", options.Nodes, maxNodes)
	}
	if options.Proxy != "" {
		if err := checkProxyMode(options.Proxy); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(options.PodNetwork.check(), Built(options.Parts()...)); err != nil {
		return nil, err
	}
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	l, err := newLab(c, options)
	if err != nil {
		return nil, err
	}
	if err := l.begin(); err != nil {
		return nil, err
	}
	if err := l.start(ctx); err != nil {
		return nil, fmt.Errorf("%w\nlogs are in %s until lab down", err, l.procs.logs)
	}
	return l, nil
}

// begin claims the state directory.
func (l *Lab) begin() error {
	err := os.Mkdir(l.dir.state(), 0o755)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("a lab is up, or was not taken down: run lab down (%s exists)", l.dir.state())
	}
	if err != nil {
		return err
	}
	return errors.Join(l.saveOptions(), os.Mkdir(l.procs.records, 0o755), os.Mkdir(l.procs.logs, 0o755))
}

func (l *Lab) saveOptions() error {
	text, err := json.Marshal(l.options)
	if err != nil {
		return err
	}
	return os.WriteFile(l.dir.state(optionsFile), text, 0o644)
}

// start brings everything up: nodes boot while the API server starts.
func (l *Lab) start(ctx context.Context) error {
	progress := newTeller(l.options.Progress)
	if err := createPKI(l.pkiDir(), time.Now(), len(l.nodes), l.options.apiServerURL()); err != nil {
		return err
	}
	if err := errors.Join(l.cgroups.create(controlPlaneName), l.cgroups.create(routerName), l.wireUp()); err != nil {
		return err
	}
	if err := l.startAPI(ctx); err != nil {
		return err
	}
	progress.tell("network made, API server starting")

	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.Router.start(groupCtx) })
	for _, n := range l.nodes {
		group.Go(func() error { return l.prepare(groupCtx, n) })
	}
	group.Go(func() error {
		if err := l.waitForAPI(groupCtx); err != nil {
			return err
		}
		progress.tell("API server ready")
		if err := l.startControllers(groupCtx); err != nil {
			return err
		}
		return l.registerNodes(groupCtx)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	progress.tell("nodes booted, router started")
	return l.finish(ctx, progress)
}

// prepare installs a node, gives it the lab's images, and boots it.
func (l *Lab) prepare(ctx context.Context, n *Node) error {
	if err := errors.Join(n.install(l.pkiDir()), n.copyStore(ctx)); err != nil {
		return err
	}
	if err := n.boot(ctx); err != nil {
		return err
	}
	if l.options.LegacyIPTables {
		return n.chooseLegacy(ctx)
	}
	return nil
}

// finish starts what needs a ready API server on the nodes. CoreDNS reaches the API
// server through a Service, so only a kube-proxy makes it worth waiting for.
func (l *Lab) finish(ctx context.Context, progress *teller) error {
	for _, n := range l.nodes {
		if err := n.startDaemons(ctx); err != nil {
			return err
		}
	}
	if err := l.installCoreDNS(ctx); err != nil {
		return err
	}
	if err := l.WaitReady(ctx); err != nil {
		return err
	}
	progress.tell("nodes Ready")
	if l.options.Proxy != "" {
		if err := l.waitForCoreDNS(ctx); err != nil {
			return err
		}
		progress.tell("CoreDNS Ready")
	}
	return nil
}

// wireUp makes the network but for the nodes', which wire themselves up.
func (l *Lab) wireUp() error {
	families := l.Families()
	if err := createLAN(); err != nil {
		return err
	}
	name, own := l.options.controlPlane()
	if err := joinLAN(name, own, families); err != nil {
		return err
	}
	if err := joinLAN(l.Client.Name, clientAddresses(), addr.Families()); err != nil {
		return err
	}
	if err := l.Router.wireUp(); err != nil {
		return err
	}
	if l.options.ControlPlaneOnNode {
		return nil
	}
	return routePods(name, len(l.nodes), 0, families...)
}
