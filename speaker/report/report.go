// Package report tells people the state of this node: in logs when it changes, in metrics, in Events on the
// objects concerned, and in the status objects of the node.
package report

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/outcome"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
)

// Objects are the status objects in which this node says how it does. Each method takes in all that the
// objects of one kind are to say; it neither waits nor fails. uid is that of the Node.
type Objects interface {
	L2Addresses
	// Sessions takes in the BGP sessions and their BFD sessions, by BGPPeer.
	Sessions(uid types.UID, sessions map[string]bgp.State, paths map[string]bfd.Status)
	// Forwarding takes in the forwarding, whose conditions it does not change.
	Forwarding(uid types.UID, f v1beta1.NodeForwardingStatus)
	// MarkStale takes in the dead nodes that this node is to mark as such, and since when they are dead.
	MarkStale(nodes map[string]time.Time)
}

// L2Addresses are the status objects of addresses.
type L2Addresses interface {
	// Addresses takes in the addresses that this node answers for, or would answer for.
	Addresses(uid types.UID, addresses map[netip.Addr]Address)
	// Doubts takes in what this node found about addresses of other nodes.
	Doubts(doubts map[netip.Addr]api.Doubt)
}

// Config is what a Reporter reports, and where to.
type Config struct {
	Node     string
	Recorder Recorder
	Objects  Objects
	Mode     string           // of the forwarding
	Kernel   forwarding.Gauge // nil: another proxy forwards
	Metrics  prometheus.Registerer
	Log      *slog.Logger
}

// Reporter reports what it is given. Its methods may be called from several goroutines.
type Reporter struct {
	node     string
	began    time.Time
	recorder Recorder
	objects  Objects
	log      *slog.Logger
	metrics  metrics

	mu      sync.Mutex
	cluster *view.Cluster
	// Problems, by where they come from.
	passed      []problem.Problem // of the last pass
	rivals      []problem.Problem
	preempted   []problem.Problem
	faults      []problem.Problem           // settings of the host
	connections []problem.Problem           // the connection table is nearly full
	localPorts  []problem.Problem           // NodePorts are not reserved
	unread      []problem.Problem           // kinds that cannot be read
	failing     map[failure]problem.Problem // of the last pass
	failed      []problem.Problem           // these, sorted
	problems    []problem.Problem           // all, as they were published last
	told        []problem.Problem           // one by one, and not yet that they are gone

	passErr  error  // of the last pass
	handover string // why pulse does not hand over open connections; "": it does

	unreached string // why the API server has not answered yet, "" if it has
	contested map[netip.Addr]api.Contest
	doubted   map[netip.Addr]api.Doubt
	obstacles map[hostchecks.Obstacle][]netip.Addr
	inTheWay  map[netip.Addr]Finding // of these, by address
	network   Network
	owned     map[netip.Addr]api.Ownership
	gained    map[netip.Addr]bool // owned, and its Services have had no Event of it yet
	sessions  map[string]bgp.State
	paths     map[string]bfd.Status
	dead      map[string]time.Time // nodes that are believed to be dead, and since when
	placed    bool                 // the kernel has once been as the cluster wanted it
	announced bool                 // pulse and the routers have once been given all
	// forwarding is what is known of it besides.
	forwarding forwardingState
}

// New makes a reporter and registers its metrics.
func New(c Config) *Reporter {
	r := &Reporter{
		node: c.Node, began: time.Now(), recorder: c.Recorder, objects: c.Objects, log: c.Log, metrics: newMetrics(),
		gained: map[netip.Addr]bool{}, dead: map[string]time.Time{}, forwarding: forwardingState{kernel: c.Kernel},
	}
	r.forwarding.now.Mode, r.forwarding.now.Since = c.Mode, metav1.NewTime(r.began)
	c.Metrics.MustRegister(r.metrics.all()...)
	return r
}

// Ready returns nil once the node does its part, and before that an error that says what it waits for. The
// kernel must have been brought to the cluster's state once, and the networks and routers told: an update that
// went on before would take all addresses from one node after another, where the configuration cannot be read.
// A node that was ready stays so: an API server that goes away later takes neither rules nor announcements from it.
func (r *Reporter) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.placed && r.announced:
		return nil
	case r.unreached != "":
		return errors.New(r.unreached)
	case len(r.unread) > 0:
		return errors.New(r.unread[0].Message)
	case !r.placed:
		return errors.New("the kernel has not been brought to the cluster's state yet")
	}
	return errors.New("the configuration has not been read yet, and nothing is announced")
}

// Unread takes in which kinds cannot be read.
func (r *Reporter) Unread(problems []problem.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread = problems
	r.publishProblems()
}

// Unreached takes in why the API server has not answered yet, "" once it has. Without it there are no Events.
func (r *Reporter) Unreached(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unreached = why
}

// Report takes in what a pass of the agent found and did.
func (r *Reporter) Report(o agent.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cluster = o.Cluster
	lacking := o.Missing.Of(o.Want.Forwarding)
	r.announced = r.announced || o.Announced
	failing := outcome.Failing(o.Err) != nil
	r.placed = r.placed || lacking[addr.IPv4]+lacking[addr.IPv6] < len(o.Want.Forwarding.Ports) || !failing
	r.metrics.apply.Observe(o.Duration.Seconds())
	if failing {
		r.metrics.failures.Inc()
	}
	for _, family := range addr.Families() {
		r.metrics.ports.WithLabelValues(family.String()).Set(float64(o.Want.Forwarding.Count[family] - lacking[family]))
	}
	r.passErr = o.Err
	r.failed = r.failures()
	r.passed = slices.Concat(o.Problems, o.Cluster.Problems, r.fullAffinity())
	r.programmed(o.Want.Forwarding, lacking)
	r.publishProblems()
	r.ownershipEvents()
	r.markStale()
}

// Handover takes in why pulse does not hand over open connections of addresses that move here, "" if it does.
func (r *Reporter) Handover(failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if failure == r.handover {
		return
	}
	r.handover = failure
	r.failed = r.failures()
	r.publishProblems()
}

// Rivals takes in what was found of other service proxies in this node's kernel. The error says why not
// everything could be looked at.
func (r *Reporter) Rivals(found []string, unseen error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forwarding.looked, r.forwarding.unseen = true, unseen
	r.rivals = nil
	if len(found) > 0 {
		r.rivals = []problem.Problem{problem.New(r.self(), ReasonOtherProxy,
			"kube-proxy has rules in this node's kernel besides Fairlead's: %s; remove it and run kube-proxy --cleanup on the node, "+
				"or set the Helm value forwarding.mode to none", strings.Join(found, ", "))}
	}
	r.publishProblems()
}

// UDPPort returns a port that endpoints of some Service serve by UDP; an invalid one if no Service has one.
func (r *Reporter) UDPPort() netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cluster == nil {
		return netip.AddrPort{}
	}
	for ref, s := range r.cluster.Services {
		i := slices.IndexFunc(s.Ports, func(p view.ServicePort) bool { return p.Protocol == view.UDP })
		if i >= 0 && len(s.ClusterIPs) > 0 && !s.ProxiedElsewhere && len(r.cluster.Endpoints.Of(ref)) > 0 {
			return netip.AddrPortFrom(s.ClusterIPs[0], s.Ports[i].Port)
		}
	}
	return netip.AddrPort{}
}

// Preempted takes in which other proxy acts before Fairlead's rules, in words; "" if none does.
func (r *Reporter) Preempted(by string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.preempted = nil
	if by != "" {
		r.preempted = []problem.Problem{problem.New(r.self(), ReasonOtherProxy,
			"%s translates what is sent to Services by eBPF, before Fairlead's rules see it: leave forwarding to it with the Helm value forwarding.mode none, "+
				"or turn off its replacement of kube-proxy", by)}
	}
	r.publishProblems()
}

// Faults takes in settings of this host by which some packets of Services go wrong.
func (r *Reporter) Faults(found []forwarding.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
	for _, f := range found {
		r.faults = append(r.faults, problem.New(r.self(), f.Reason, "%s", f.Message))
	}
	r.publishProblems()
}

// Of how many hundredths of its room the connection table is called full, and not full any more.
const (
	full  = 90
	eased = 80
)

// Connections takes in how many flows the connection table of this node has, and has room for.
func (r *Reporter) Connections(flows, room int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	bound := full
	if len(r.connections) > 0 {
		bound = eased
	}
	r.connections = nil
	if room > 0 && 100*flows >= bound*room {
		r.connections = []problem.Problem{problem.New(r.self(), ReasonConnectionTableFull,
			"the kernel's connection table, which has room for %d flows, is full or nearly so; once it is, the first packets of new connections are dropped, "+
				"those to Services among them: find out who has so many (conntrack -L), set a larger Helm value forwarding.conntrack.maxPerCore, "+
				"or net.netfilter.nf_conntrack_max on the node", room)}
	}
	r.publishProblems()
}

// LocalPorts takes in which ports this node's kernel may give to connections of its own processes, with the range of these as
// net.ipv4.ip_local_port_range has it.
func (r *Reporter) LocalPorts(given func(port uint16) bool, span string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cluster == nil {
		return
	}
	r.localPorts = nil
	for _, s := range r.cluster.Services {
		if given(s.HealthCheckPort) || slices.ContainsFunc(s.Ports, func(p view.ServicePort) bool { return given(p.NodePort) }) {
			r.localPorts = []problem.Problem{problem.New(r.self(), ReasonNodePortsNotReserved,
				"net.ipv4.ip_local_port_range is %s, of which Services have NodePorts: a process of the node that gets one of these for a connection or a listener "+
					"may lose packets to the Service, or keep its healthCheckNodePort from being answered; add the range of NodePorts to net.ipv4.ip_local_reserved_ports on the node "+
					"(30000-32767, or what the API server has as --service-node-port-range)", span)}
			break
		}
	}
	r.publishProblems()
}

// Changed takes in that an object of a kind changed in what decisions read.
func (r *Reporter) Changed(kind string) { r.metrics.changes.WithLabelValues(kind).Inc() }

// self is this node's Node, as the object of a problem.
func (r *Reporter) self() problem.Object { return problem.Object{Kind: "Node", Name: r.node} }

// registered reports whether this node's Node is known, to which its status objects belong.
func (r *Reporter) registered() bool { return r.cluster != nil && r.cluster.Nodes[r.node] != nil }

// first reports whether this node writes for all nodes what all of them see: the first by name of those that
// have a ready speaker and are not believed to be dead. When it dies, the next one does.
func (r *Reporter) first() bool {
	for name, s := range r.cluster.Speakers {
		if _, dead := r.cluster.Fallen[name]; s.Ready && !dead && name < r.node {
			return false
		}
	}
	return true
}

// markStale hands on which nodes are believed to be dead, if this node is the one that marks their objects.
func (r *Reporter) markStale() {
	maps.DeleteFunc(r.dead, func(node string, _ time.Time) bool { _, still := r.cluster.Fallen[node]; return !still })
	for node := range r.cluster.Fallen {
		if _, known := r.dead[node]; !known {
			r.dead[node] = time.Now()
		}
	}
	if r.first() {
		r.objects.MarkStale(maps.Clone(r.dead))
	} else {
		r.objects.MarkStale(nil)
	}
}

var _ agent.Reporter = (*Reporter)(nil)
