package report

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/gauge"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/status"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
	"fairlead.dev/fairlead/speaker/desired"
)

// Reasons of the Events that a speaker writes on Services and on its Node.
const (
	ReasonAnsweringARP = "AnsweringARP" // on a Service: this node answers for its IPv4 address
	ReasonAnsweringNDP = "AnsweringNDP" // on a Service: this node answers for its IPv6 address
	ReasonOtherProxy   = "OtherProxy"   // on a Node: another service proxy's rules are in its kernel
	// ReasonRefused is on a Service of which the kernel of this node does not take a port.
	ReasonRefused = "ForwardingRefused"
	// ReasonForwardingFailed is on a Node: its kernel is not as wanted, and no Service is to blame.
	ReasonForwardingFailed = "ForwardingFailed"
	// ReasonSettingFailed is on a Node: a setting of its kernel is not as NodePorts on localhost need it, or
	// as the connection table is to have it.
	ReasonSettingFailed = "SettingFailed"
	// ReasonHandoverFailed is on a Node: it does not hand over open connections of addresses that move to it.
	ReasonHandoverFailed = "HandoverFailed"
	// ReasonConnectionTableFull is on a Node: its kernel soon refuses new connections, or does already.
	ReasonConnectionTableFull = "ConnectionTableFull"
	// ReasonNodePortsNotReserved is on a Node: its kernel may give NodePorts to connections of its own processes.
	ReasonNodePortsNotReserved = "NodePortsNotReserved"
	// ReasonHealthCheckFailed is on a Service with a healthCheckNodePort that cannot be
	// served, in kube-proxy's words.
	ReasonHealthCheckFailed = "FailedToStartServiceHealthcheck"
)

// Actions: what the speaker was doing that an Event is about.
const (
	action       = "Announce"
	actionListen = "Listen"
)

// maxListed bounds the problems that are told one by one at a time, of those that come and of those that go. The next time it is
// others' turn; the metric counts all.
const maxListed = 20

// Recorder writes Events.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// publishProblems logs the problems that have come and gone since it was called last. Those
// that no condition has are Events as well. Those for which there is no room yet are told the next time.
func (r *Reporter) publishProblems() {
	problems := slices.Concat(r.passed, r.failed, r.rivals, r.preempted, r.faults, r.connections, r.localPorts, r.unread, r.contests(), r.isolation(), r.obstructions())
	problem.Sort(problems)
	r.problems = slices.Compact(problems)
	counts := gauge.Series{}
	for _, p := range r.problems {
		counts[gauge.Key(p.Object.Kind, p.Reason)]++
	}
	r.metrics.problems.Replace(counts)
	r.tellProblems()
	r.writeForwarding()
}

// tellProblems tells some of the problems that have come and of those that are gone.
func (r *Reporter) tellProblems() {
	come, gone := without(r.problems, r.told), without(r.told, r.problems)
	if len(come) > maxListed {
		r.log.Warn("more problems have come than are told one by one at a time", "come", len(come), "problems", len(r.problems))
		come = inTurn(come)[:maxListed]
	}
	for _, p := range come {
		r.log.Warn("an object does not get what it asks for", "object", p.Object.String(), "reason", p.Reason, "message", p.Message)
		r.problemEvent(p)
	}
	gone = gone[:min(len(gone), maxListed)]
	for _, p := range gone {
		r.log.Info("a problem is gone", "object", p.Object.String(), "reason", p.Reason)
		r.resolvedEvent(p)
	}
	r.told = append(without(r.told, gone), come...)
}

// inTurn orders problems so that of each namespace one comes before a second one of any.
func inTurn(problems []problem.Problem) []problem.Problem {
	turn, seen := make(map[problem.Problem]int, len(problems)), map[string]int{}
	for _, p := range problems {
		turn[p] = seen[p.Object.Namespace]
		seen[p.Object.Namespace]++
	}
	slices.SortStableFunc(problems, func(a, b problem.Problem) int { return cmp.Compare(turn[a], turn[b]) })
	return problems
}

func without(problems, others []problem.Problem) []problem.Problem {
	known := make(map[problem.Problem]struct{}, len(others))
	for _, p := range others {
		known[p] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(problems), func(p problem.Problem) bool { _, is := known[p]; return is })
}

// problemEvent writes the Event of a problem that has come, if it is this node's to write.
func (r *Reporter) problemEvent(p problem.Problem) {
	followed, _ := resolutionOf(p.Reason)
	here := p.Reason == ReasonRefused || followed != ""                         // no other node finds it
	all := p.Reason == fromkube.ReasonUnreadable || desired.IsRefusal(p.Reason) // all do, and one writes
	switch {
	case p.Object == r.self():
		r.event(nodeReference(r.node), corev1.EventTypeWarning, p.Reason, "%s", p.Message)
	case r.cluster == nil || !here && (!all || !r.first()):
	case p.Object.Kind == "EndpointSlice":
		reference := &corev1.ObjectReference{Kind: p.Object.Kind, APIVersion: "discovery.k8s.io/v1", Namespace: p.Object.Namespace, Name: p.Object.Name}
		r.event(reference, corev1.EventTypeWarning, p.Reason, "%s", p.Message)
	default:
		if s := r.serviceOf(p); s != nil {
			r.event(serviceReference(s), corev1.EventTypeWarning, p.Reason, "%s", p.Message)
		}
	}
}

// resolutionOf returns the reason and the note, with the node's name, of the Normal Event that follows when the last
// problem of a Service with such reasons is gone; "" if none does.
func resolutionOf(of string) (reason, note string) {
	switch of {
	case ReasonAddressContested, ReasonAddressTaken:
		return ReasonAddressUncontested, "node %s hears no other station claim the addresses of this Service any more"
	case ReasonAddressUnanswered, ReasonAddressAnsweredElsewhere, ReasonAddressAnsweredTwice:
		return ReasonAddressAnswered, "node %s finds the addresses of this Service answered for as they should be, or has no more to do with them"
	case ReasonAddressLeft:
		return ReasonAddressAgreed, "node %s agrees with the others on who answers for the addresses of this Service"
	}
	return "", ""
}

// resolvedEvent writes the Event that follows a problem, if the Service has no other one like it.
func (r *Reporter) resolvedEvent(p problem.Problem) {
	reason, note := resolutionOf(p.Reason)
	if reason == "" || r.cluster == nil || slices.ContainsFunc(r.problems, func(o problem.Problem) bool {
		other, _ := resolutionOf(o.Reason)
		return o.Object == p.Object && other == reason
	}) {
		return
	}
	if s := r.serviceOf(p); s != nil {
		r.event(serviceReference(s), corev1.EventTypeNormal, reason, note, r.node)
	}
}

func (r *Reporter) serviceOf(p problem.Problem) *view.Service {
	return r.cluster.Services[view.Ref{Namespace: p.Object.Namespace, Name: p.Object.Name}]
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
