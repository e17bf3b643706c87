package report

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/internal/view/fromkube"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/forwarding"
	"fairlead.dev/fairlead/speaker/outcome"
)

// Reasons of conditions of the NodeForwarding without an Event, and of an Event without a condition.
const (
	// ReasonRulesChanged: others changed rules of the speaker's.
	ReasonRulesChanged = "RulesChanged"
	// ReasonAffinityFull is on a Node: its kernel has no room to remember more clients. No condition
	// says so: all that is wanted is in place.
	ReasonAffinityFull = "AffinityFull"
	// ReasonProxiesUnknown: the rules of other service proxies cannot be looked for.
	ReasonProxiesUnknown = "ProxiesUnknown"
)

// quiet is how long our rules must have been left alone to count as undisturbed.
const quiet = 10 * time.Minute

type forwardingState struct {
	kernel forwarding.Gauge // nil: another proxy forwards

	now     v1beta1.NodeForwardingStatus
	counted time.Time // when the Services last were
	// What others did to the rules.
	repairs   int       // of chains, sets and the like
	times     int       // passes that found some
	disturbed time.Time // the last
	// Of other proxies.
	looked bool
	unseen error // why not everything could be looked at
}

// programmed takes over what of the forwarding is in the kernel, but for so many ports of each family.
func (r *Reporter) programmed(want desired.Forwarding, lacking map[addr.Family]int) {
	f := &r.forwarding
	if f.kernel == nil {
		return
	}
	f.now.Tool = f.kernel.Tool()
	repairs := 0
	for _, family := range addr.Families() {
		_, of := f.kernel.Tally(family)
		repairs += of
	}
	if repairs > f.repairs {
		f.times++
		f.disturbed = time.Now()
	}
	f.repairs = repairs
	f.now.Ports = int32(len(want.Ports))
	f.now.ProgrammedPorts = f.now.Ports - int32(lacking[addr.IPv4]+lacking[addr.IPv6])
	if time.Since(f.counted) >= recount {
		f.counted, f.now.Services = time.Now(), services(want)
	}
}

// fullAffinity returns the problems of a kernel that has no room for more clients of session affinity.
func (r *Reporter) fullAffinity() []problem.Problem {
	f := &r.forwarding
	if f.kernel == nil {
		return nil
	}
	var problems []problem.Problem
	for _, family := range addr.Families() {
		if full := f.kernel.AffinityOverflows(family); full > 0 {
			problems = append(problems, problem.New(r.self(), ReasonAffinityFull,
				"the kernel remembers as many %s clients for sessionAffinity: ClientIP as it has room for (65536 of an endpoint and 4194304 in all, or with nftables 1048576 in all), "+
					"and sends others to any endpoint, each time anew: set a shorter sessionAffinityConfig.clientIP.timeoutSeconds, "+
					"or use the Helm value forwarding.mode iptables, which has room for more", family))
		}
	}
	return problems
}

// recount is the least time between two counts of the Services, which costs as much as
// there are, and is written less often.
const recount = 10 * time.Second

func services(f desired.Forwarding) int32 {
	found := map[view.Ref]struct{}{}
	for key := range f.Ports {
		found[key.Service] = struct{}{}
	}
	return int32(len(found))
}

// mostNetworks is how many a NodeForwarding lists, as its schema has it.
const mostNetworks = 64

// Networks takes in the networks that the interfaces of this node are on, sorted.
func (r *Reporter) Networks(networks []netip.Prefix) {
	texts := addr.Texts(networks[:min(len(networks), mostNetworks)])
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(texts, r.forwarding.now.Networks) {
		return
	}
	r.forwarding.now.Networks = texts
	r.writeForwarding()
}

// writeForwarding hands on the state of the forwarding, once all of it is known.
func (r *Reporter) writeForwarding() {
	f := &r.forwarding
	if !r.registered() || f.kernel != nil && !f.looked {
		return
	}
	about := map[string][]problem.Problem{}
	f.now.Problems = 0
	for _, p := range r.problems {
		if condition := r.conditionOf(p); condition != "" {
			about[condition] = append(about[condition], p)
			f.now.Problems++
		}
	}
	f.now.Conditions = slices.Clone(f.now.Conditions) // the last ones were handed on
	condition := func(kind, well string) { f.condition(kind, well, about[kind]) }
	if f.kernel != nil {
		condition(v1beta1.ConditionProgrammed, "the kernel has all that the Services want")
		f.undisturbed()
		if f.unseen != nil && len(about[v1beta1.ConditionSoleProxy]) == 0 {
			f.set(v1beta1.ConditionSoleProxy, metav1.ConditionUnknown, ReasonProxiesUnknown, f.unseen.Error())
		} else {
			condition(v1beta1.ConditionSoleProxy, "no other service proxy has rules in the kernel")
		}
		condition(v1beta1.ConditionPodsKnown, "pods are told from strangers")
		condition(v1beta1.ConditionNodeKnown, "the Node says at which addresses it is")
		condition(v1beta1.ConditionHandsOver, "connections that are open when an address moves to this node go on")
	}
	condition(v1beta1.ConditionReadable, "all Services and EndpointSlices can be read")
	r.objects.Forwarding(types.UID(r.cluster.Nodes[r.node].UID), f.now)
}

// conditionOf returns the type of the condition that has a problem; "" if none does.
func (r *Reporter) conditionOf(p problem.Problem) string {
	switch p.Reason {
	case fromkube.ReasonUnreadable:
		return v1beta1.ConditionReadable
	case ReasonRefused:
		return v1beta1.ConditionProgrammed
	}
	if p.Object != r.self() {
		return ""
	}
	switch p.Reason {
	case ReasonOtherProxy:
		return v1beta1.ConditionSoleProxy
	case desired.ReasonPodsUnknown, desired.ReasonPodsOutside:
		return v1beta1.ConditionPodsKnown
	case desired.ReasonNodeMissing, desired.ReasonAddressUnknown:
		return v1beta1.ConditionNodeKnown
	case ReasonHandoverFailed:
		return v1beta1.ConditionHandsOver
	}
	if slices.Contains(r.failed, p) || slices.Contains(r.faults, p) {
		return v1beta1.ConditionProgrammed
	}
	return ""
}

// condition sets a condition to False if there are problems, and else to True with the message well.
func (f *forwardingState) condition(kind, well string, problems []problem.Problem) {
	if len(problems) == 0 {
		f.set(kind, metav1.ConditionTrue, v1beta1.ReasonAsExpected, well)
		return
	}
	texts := make([]string, 0, len(problems))
	for _, p := range problems {
		text := p.Message
		if p.Object.Kind != "Node" {
			text = p.Object.String() + ": " + text
		}
		texts = append(texts, text)
	}
	f.set(kind, metav1.ConditionFalse, problems[0].Reason, problem.List(texts, "; "))
}

// maxMessage is how long the message of a condition may be, in bytes: what people read, and
// a fraction of what the API server takes.
const maxMessage = 4096

// set sets a condition. Its transition time changes with its status alone.
func (f *forwardingState) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&f.now.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: problem.Clip(message, maxMessage)})
}

// undisturbed sets the condition that says whether other programs leave our rules alone.
func (f *forwardingState) undisturbed() {
	if f.disturbed.IsZero() || time.Since(f.disturbed) > quiet {
		f.set(v1beta1.ConditionUndisturbed, metav1.ConditionTrue, v1beta1.ReasonAsExpected, "nobody else has changed the speaker's rules of late")
		return
	}
	f.set(v1beta1.ConditionUndisturbed, metav1.ConditionFalse, ReasonRulesChanged, fmt.Sprintf(
		"others changed the speaker's rules, last at %s: %d chains, sets or elements on %d occasions since the speaker began; they are written again each time; "+
			"find who does it, such as a firewall that flushes all rules when it loads its own",
		f.disturbed.UTC().Format(time.RFC3339), f.repairs, f.times))
}

// failure identifies what went wrong in a pass, whatever the words for it.
type failure struct {
	object problem.Object
	reason string
	of     string // which of several
}

// failures returns the problems of the forwarding and of layer 2 in the error of the last pass, and that of the
// handover. Each keeps the words with which it began: these name times and lines, which differ at each attempt.
func (r *Reporter) failures() []problem.Problem {
	err, node := r.passErr, r.self()
	now := map[failure]problem.Problem{}
	note := func(f failure, format string, args ...any) {
		p, known := r.failing[f]
		if !known {
			p = problem.New(f.object, f.reason, format, args...)
		}
		now[f] = p
	}
	for _, refused := range outcome.AllOf[*outcome.RefusedError](err) {
		service := refused.Key.Service
		note(failure{problem.Object{Kind: "Service", Namespace: service.Namespace, Name: service.Name}, ReasonRefused, fmt.Sprint(refused.Key)},
			"node %s: the kernel does not take port %q (%s, %s), which stays as it was: %v",
			r.node, refused.Key.Name, refused.Key.Protocol, refused.Key.Family, refused.Err)
	}
	for _, failed := range outcome.AllOf[*outcome.FamilyError](err) {
		if why := failed.Beyond(); why != nil {
			note(failure{node, cmp.Or(outcome.ReasonOf(why), ReasonForwardingFailed), failed.Family.String()},
				"what is forwarded of %s is not all as wanted; it is tried again: %v", failed.Family, why)
		}
	}
	for _, unset := range outcome.AllOf[*outcome.SettingError](err) {
		note(failure{node, ReasonSettingFailed, unset.Of}, "%v; it is tried again", unset)
	}
	if r.handover != "" {
		note(failure{object: node, reason: ReasonHandoverFailed}, "%s; it is tried again", r.handover)
	}
	r.failing = now
	problems := slices.Collect(maps.Values(now))
	problem.Sort(problems)
	return problems
}
