// Package report tells people the state of this node: in logs when it changes, in
// metrics, and in Events on the Services and peers concerned.
package report

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/gauge"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links/hostchecks"
	"fairlead.dev/fairlead/speaker/outcome"
)

// Reasons of the Events that a speaker writes.
const (
	ReasonAnsweringARP = "AnsweringARP" // on a Service: this node answers for its IPv4 address
	ReasonAnsweringNDP = "AnsweringNDP" // on a Service: this node answers for its IPv6 address
	ReasonSessionUp    = "SessionUp"    // on a BGPPeer
	ReasonSessionDown  = "SessionDown"  // on a BGPPeer
	ReasonOtherProxy   = "OtherProxy"   // on a Node: another service proxy's rules are in its kernel
	ReasonFamilyLeft   = "FamilyLeft"   // on a BGPPeer: the session cannot carry a family that is wanted
	// ReasonRefused is on a Service of which the kernel of this node does not take a port.
	ReasonRefused = "ForwardingRefused"
	// ReasonForwardingFailed is on a Node: its kernel is not as wanted, and no Service is to blame.
	ReasonForwardingFailed = "ForwardingFailed"
	// ReasonSettingFailed is on a Node: a setting of its kernel is not as NodePorts on localhost need it, or
	// as the connection table is to have it.
	ReasonSettingFailed = "SettingFailed"
	// ReasonTooManyAddresses is on a Node: what it is to answer for on layer 2 is more than its pulse takes.
	ReasonTooManyAddresses = "TooManyAddresses"
	// ReasonHealthCheckFailed is on a Service whose healthCheckNodePort cannot be
	// served, in kube-proxy's words.
	ReasonHealthCheckFailed = "FailedToStartServiceHealthcheck"
)

// Actions: what the speaker was doing that an Event is about.
const (
	action       = "Announce"
	actionListen = "Listen"
)

// maxTold bounds the problems that one pass tells one by one, of those that come and of those that go; the metric counts them all.
const maxTold = 20

// Recorder writes Events.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Session is what a BGP session is doing.
type Session struct {
	Up        bool
	State     string    // that of RFC 4271
	Since     time.Time // when it came up, went down, or was configured
	LastError string    // why it is not up
	Overcome  string    // why it was not, before it came up
	// Advertised counts the prefixes that the peer has been told of.
	Advertised int
	// Pending counts those that it is to be told of and has not been.
	Pending int
	// Prefixes are those that it has been told of, sorted; left out if they are many.
	Prefixes []netip.Prefix
	// LeftOut says by family why its prefixes are not announced on a session that is up.
	LeftOut map[addr.Family]string

	Local   netip.Addr // our address in the session; invalid before the first one
	PeerASN uint32     // 0 before the first session
	Negotiated
}

// Negotiated is what both sides of a session that is up agreed on.
type Negotiated struct {
	Families                      []addr.Family
	GracefulRestart, FourOctetASN bool
	HoldTime, KeepaliveTime       time.Duration
}

// Standing keeps, where people can read it, what the BGP sessions are doing.
type Standing interface {
	// Tell takes in the whole of what the sessions of this node are doing, and their BFD
	// sessions, by BGPPeer. uid is that of the Node. It does not wait, and writes to none.
	Tell(uid types.UID, sessions map[string]Session, paths map[string]Path)
}

// Ownership is how this node answers for an address, and why it does.
type Ownership struct {
	Interfaces []string
	Since      time.Time
	// Dead and Unable are the nodes that come before this one, and are not alive, or not
	// able to answer. Distant are able, and have no subnet with the address.
	Dead, Unable, Distant []string
	Next                  string // the node that would take over; "" for none
}

// Reporter renders. Its methods may be called from several goroutines.
type Reporter struct {
	node     string
	began    time.Time
	recorder Recorder
	standing Standing
	register Register
	witness  Witness // nil: nobody speaks for other nodes
	notes    Notes   // nil: nobody reads of doubts
	log      *slog.Logger
	metrics  metrics

	mu      sync.Mutex
	cluster *view.Cluster
	passed  []problem.Problem // of the last pass
	rivals  []problem.Problem
	// connections: there is hardly room for more.
	connections []problem.Problem
	unread      []problem.Problem           // kinds that cannot be read
	unreached   string                      // why the API server has not answered yet, "" if it has
	failing     map[failure]problem.Problem // of the last pass
	failed      []problem.Problem           // these, sorted
	contested   map[netip.Addr]Contest
	doubted     map[netip.Addr]Doubt
	obstacles   map[hostchecks.Obstacle][]netip.Addr
	inTheWay    map[netip.Addr]Obstruction // of addresses that this node answers for
	network     Network
	problems    []problem.Problem // all that are told
	owned       map[netip.Addr]Ownership
	untold      map[netip.Addr]bool // owned, and its Services have had no Event of it yet
	sessions    map[string]Session
	paths       map[string]Path
	fallen      map[string]time.Time // nodes that are believed to be dead, and since when
	placed      bool                 // the kernel has once been as the cluster wanted it
	announced   bool                 // the networks and routers have once been told

	forwarding forwarding
}

// Config is what a Reporter tells of, and where.
type Config struct {
	Node     string
	Recorder Recorder
	Sessions Standing
	// Addresses keep what the node answers for.
	Addresses Register
	Doubts    Notes   // nil: nobody reads of doubts
	Witness   Witness // nil: nobody speaks for other nodes
	Forwarder Forwarder
	Metrics   prometheus.Registerer
	Log       *slog.Logger
}

// New makes a reporter and registers its metrics.
func New(c Config) *Reporter {
	r := &Reporter{
		node: c.Node, began: time.Now(), recorder: c.Recorder, standing: c.Sessions, register: c.Addresses, notes: c.Doubts, witness: c.Witness, log: c.Log,
		metrics: newMetrics(), untold: map[netip.Addr]bool{}, fallen: map[string]time.Time{}, forwarding: c.Forwarder.follow(),
	}
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
	r.tellProblems()
}

// Unreached takes in why the API server has not answered yet, "" once it has. That is no Event: there
// is nobody to write it to.
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
	ports := map[addr.Family]int{}
	maps.Copy(ports, o.Want.Forwarding.Count)
	for _, family := range addr.Families() {
		r.metrics.ports.WithLabelValues(family.String()).Set(float64(ports[family] - lacking[family]))
	}
	r.failed = r.failures(o.Err)
	r.passed = slices.Concat(o.Problems, o.Cluster.Problems, r.failed, r.crowded())
	r.programmed(o)
	r.tellProblems()
	r.tellOwned()
	r.tellFallen()
}

// Rivals takes in what was found of other service proxies in this node's kernel, and why
// not everything could be looked at.
func (r *Reporter) Rivals(found []string, unseen error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forwarding.looked, r.forwarding.unseen = true, unseen
	r.rivals = nil
	if len(found) > 0 {
		r.rivals = []problem.Problem{problem.New(problem.Object{Kind: "Node", Name: r.node}, ReasonOtherProxy,
			"kube-proxy has rules in this node's kernel besides Fairlead's: %s; remove it and run kube-proxy --cleanup on the node, "+
				"or set the Helm value forwarding.mode to none", strings.Join(found, ", "))}
	}
	r.tellProblems()
}

// tellProblems logs the problems that have come and gone since it was called last. Those
// that no condition tells of are Events as well.
func (r *Reporter) tellProblems() {
	problems := slices.Concat(r.passed, r.rivals, r.connections, r.unread, r.contests(), r.isolation(), r.obstructions())
	problem.Sort(problems)
	problems = slices.Compact(problems)
	come, gone := without(problems, r.problems), without(r.problems, problems)
	r.problems = problems
	for _, p := range come[:min(len(come), maxTold)] {
		r.log.Warn("an object does not get what it asks for", "object", p.Object.String(), "reason", p.Reason, "message", p.Message)
		r.problemEvent(p)
		r.contestEvent(p, false)
	}
	for _, p := range gone[:min(len(gone), maxTold)] {
		r.log.Info("a problem is gone", "object", p.Object.String(), "reason", p.Reason)
		r.contestEvent(p, true)
	}
	if more := max(len(come), len(gone)) - maxTold; more > 0 {
		r.log.Warn("more has come or gone than is told one by one", "come", len(come), "gone", len(gone), "problems", len(problems))
	}
	counts := gauge.Series{}
	for _, p := range problems {
		counts[gauge.Key(p.Object.Kind, p.Reason)]++
	}
	r.metrics.problems.Replace(counts)
	r.tellForwarding()
}

// without are the problems that are not among others.
func without(problems, others []problem.Problem) []problem.Problem {
	known := make(map[problem.Problem]struct{}, len(others))
	for _, p := range others {
		known[p] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(problems), func(p problem.Problem) bool { _, is := known[p]; return is })
}

// problemEvent writes the Event of a problem that has come, if it is this node's to write.
func (r *Reporter) problemEvent(p problem.Problem) {
	switch {
	case p.Object.Kind == "Node" && p.Object.Name == r.node:
		r.event(nodeReference(r.node), corev1.EventTypeWarning, p.Reason, "%s", p.Message)
	case r.cluster == nil || p.Reason != ReasonRefused && (!seenByAll(p.Reason) || !r.first()):
	case p.Object.Kind == "EndpointSlice":
		reference := &corev1.ObjectReference{Kind: p.Object.Kind, APIVersion: "discovery.k8s.io/v1", Namespace: p.Object.Namespace, Name: p.Object.Name}
		r.event(reference, corev1.EventTypeWarning, p.Reason, "%s", p.Message)
	default:
		if s := r.cluster.Services[view.Ref{Namespace: p.Object.Namespace, Name: p.Object.Name}]; s != nil {
			r.event(serviceReference(s), corev1.EventTypeWarning, p.Reason, "%s", p.Message)
		}
	}
}

// seenByAll tells whether all nodes find such a problem alike, so that one of them is to tell.
func seenByAll(reason string) bool {
	return reason == fromkube.ReasonUnreadable || reason == desired.ReasonClusterIPTaken
}

// first tells whether it is this node that speaks for all about what all of them see: the
// first by name of those whose speaker is ready, and that are not believed to be dead.
func (r *Reporter) first() bool {
	for name, s := range r.cluster.Speakers {
		if _, dead := r.cluster.Fallen[name]; s.Ready && !dead && name < r.node {
			return false
		}
	}
	return true
}

// Owns takes in which addresses this node answers for, and on which interfaces, nil while
// that is not known. For
// each new one the Services that hold it get an Event; what this node answered for
// before this process began is nothing new.
func (r *Reporter) Owns(owned map[netip.Addr]Ownership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for address, how := range owned {
		before, known := r.owned[address]
		if known && slices.Equal(before.Interfaces, how.Interfaces) || !known && how.Since.Before(r.began) {
			continue
		}
		r.log.Info("answering for an address", "address", address.String(), "interfaces", how.Interfaces)
		r.untold[address] = true
	}
	for address := range r.owned {
		if _, ok := owned[address]; !ok {
			r.log.Info("no longer answering for an address", "address", address.String())
			delete(r.untold, address)
		}
	}
	r.owned = owned
	r.tellOwned()
	r.metrics.owned.Set(float64(len(owned)))
	r.tellAddresses()
}

// tellOwned writes the Events of new ownerships. Pulse may tell of one before the
// pass that led to it is reported; then its Services are known only later.
func (r *Reporter) tellOwned() {
	for address := range r.untold {
		reason := ReasonAnsweringARP
		if address.Is6() {
			reason = ReasonAnsweringNDP
		}
		for _, s := range r.holders(address) {
			r.event(serviceReference(s), corev1.EventTypeNormal, reason, "node %s answers for %s on %s",
				r.node, address, strings.Join(r.owned[address].Interfaces, ", "))
			delete(r.untold, address)
		}
	}
}

// Sessions takes in what the BGP sessions are doing, nil for not known yet. A session that comes up or goes
// down is an Event on its BGPPeer.
func (r *Reporter) Sessions(states map[string]Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	up, advertised, pending := gauge.Series{}, gauge.Series{}, gauge.Series{}
	for peer, state := range states {
		before, known := r.sessions[peer]
		switch {
		case state.Up && !before.Up:
			r.event(r.peerReference(peer), corev1.EventTypeNormal, ReasonSessionUp, "node %s: the session is established", r.node)
		case !state.Up && known && (before.Up || state.LastError != before.LastError) && state.LastError != "":
			r.event(r.peerReference(peer), corev1.EventTypeWarning, ReasonSessionDown, "node %s: %s", r.node, state.LastError)
		}
		for family, why := range state.LeftOut {
			if before.LeftOut[family] != why {
				r.event(r.peerReference(peer), corev1.EventTypeWarning, ReasonFamilyLeft,
					"node %s: %s addresses are not announced: %s", r.node, family, why)
			}
		}
		up[peer] = 0
		if state.Up {
			up[peer] = 1
		}
		advertised[peer], pending[peer] = float64(state.Advertised), float64(state.Pending)
	}
	r.metrics.sessions.Replace(up)
	r.metrics.advertised.Replace(advertised)
	r.metrics.pending.Replace(pending)
	r.sessions = states
	r.tellStanding()
}

// tellStanding hands on what the sessions are doing. That there are none yet says nothing
// of those that an earlier process told of.
func (r *Reporter) tellStanding() {
	if r.sessions == nil || r.cluster == nil || r.cluster.Nodes[r.node] == nil {
		return
	}
	r.standing.Tell(types.UID(r.cluster.Nodes[r.node].UID), r.sessions, r.paths)
}

// HealthCheckFailed takes in why the healthCheckNodePort of a Service cannot be served.
func (r *Reporter) HealthCheckFailed(service view.Ref, port uint16, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reference := &corev1.ObjectReference{Kind: "Service", APIVersion: "v1", Namespace: service.Namespace, Name: service.Name}
	if r.cluster != nil && r.cluster.Services[service] != nil {
		reference = serviceReference(r.cluster.Services[service])
	}
	r.recorder.Eventf(reference, nil, corev1.EventTypeWarning, ReasonHealthCheckFailed, actionListen,
		"node %s failed to start healthcheck %q on port %d: %v", r.node, service, port, err)
}

// Changed takes in that an object of a kind changed in what decisions read.
func (r *Reporter) Changed(kind string) { r.metrics.changes.WithLabelValues(kind).Inc() }

// holders are the Services that have the address as a VIP.
func (r *Reporter) holders(address netip.Addr) []*view.Service {
	var found []*view.Service
	if r.cluster == nil {
		return nil
	}
	for _, s := range r.cluster.Services {
		if slices.Contains(s.VIPs, address) {
			found = append(found, s)
		}
	}
	return found
}

func (r *Reporter) event(regarding *corev1.ObjectReference, kind, reason, note string, args ...any) {
	text := problem.Clip(fmt.Sprintf(note, args...), status.MaxNote)
	r.recorder.Eventf(regarding, nil, kind, reason, action, "%s", text)
}

func serviceReference(s *view.Service) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Service", APIVersion: "v1", Namespace: s.Namespace, Name: s.Name, UID: types.UID(s.UID)}
}

// nodeReference has the node's name for a UID, as the kubelet's own Events have and
// kubectl describe expects.
func nodeReference(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: types.UID(name)}
}

// peerReference has the UID without which kubectl describe finds no Event.
func (r *Reporter) peerReference(name string) *corev1.ObjectReference {
	reference := &corev1.ObjectReference{Kind: "BGPPeer", APIVersion: v1beta1.GroupVersion.String(), Name: name}
	if r.cluster != nil && r.cluster.BGPPeers[name] != nil {
		reference.UID = types.UID(r.cluster.BGPPeers[name].UID)
	}
	return reference
}

var _ agent.Reporter = (*Reporter)(nil)
