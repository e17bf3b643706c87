package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/speaker/outcome"
)

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
