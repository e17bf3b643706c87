// Package problem holds what pure code has to say to people: a Problem is a
// value, and only package status turns it into conditions, Events and metrics.
package problem

import (
	"cmp"
	"fmt"
	"slices"
)

// Object names the cluster object a Problem is about. Namespace is empty for
// cluster-scoped kinds.
type Object struct {
	Kind, Namespace, Name string
}

// String is Kind/name or Kind/namespace/name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// Problem says that one object does not get what it asks for. Reason is a
// machine-readable CamelCase word, stable across releases; Message names the
// value that is wrong and the way out.
type Problem struct {
	Object  Object
	Reason  string
	Message string
}

// New makes a Problem; format and args make its message.
func New(object Object, reason, format string, args ...any) Problem {
	return Problem{Object: object, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// String is for logs: object, reason and message on one line.
func (p Problem) String() string {
	return fmt.Sprintf("%s: %s: %s", p.Object, p.Reason, p.Message)
}

// Sort orders problems by object, reason and message, so that two runs over
// the same state tell the same story.
func Sort(problems []Problem) {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.Object.Kind, b.Object.Kind),
			cmp.Compare(a.Object.Namespace, b.Object.Namespace),
			cmp.Compare(a.Object.Name, b.Object.Name),
			cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Message, b.Message),
		)
	})
}
