// Package problem lets pure code report what users should know: a Problem is a
// value, and only package status turns it into conditions, Events and metrics.
package problem

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	// Advisory: the object nevertheless has everything that it insists on, or takes part.
	Advisory bool
}

// New makes a Problem; format and args make its message.
func New(object Object, reason, format string, args ...any) Problem {
	return Problem{Object: object, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Advice is New of a problem with which the object has all that it insists on, or takes
// part, nevertheless.
func Advice(object Object, reason, format string, args ...any) Problem {
	p := New(object, reason, format, args...)
	p.Advisory = true
	return p
}

// MostListed is how many things of one kind a message lists.
const MostListed = 8

// List joins things for a message: not more of them than one would read, and how many
// there are beside.
func List(things []string, separator string) string {
	text := strings.Join(things[:min(len(things), MostListed)], separator)
	if more := len(things) - MostListed; more > 0 {
		return fmt.Sprintf("%s and %d more", text, more)
	}
	return text
}

// Clip keeps a text within so many bytes, and shows by its end that something is left out.
func Clip(text string, most int) string {
	const end = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(end)], "") + end
}

// String is for logs: object, reason and message on one line.
func (p Problem) String() string {
	return fmt.Sprintf("%s: %s: %s", p.Object, p.Reason, p.Message)
}

// Sort orders problems by object, reason and message, so that two runs over the same
// state tell the same story. Those that are advice come last, since the first of an object
// gives its condition the reason.
func Sort(problems []Problem) {
	rank := func(p Problem) int {
		if p.Advisory {
			return 1
		}
		return 0
	}
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.Object.Kind, b.Object.Kind),
			cmp.Compare(a.Object.Namespace, b.Object.Namespace),
			cmp.Compare(a.Object.Name, b.Object.Name),
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Message, b.Message),
		)
	})
}
