package metallb

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Weight is what a Finding means for a migration.
type Weight string

// The weights.
const (
	// Lost is what MetalLB does and Fairlead does not, or not yet.
	Lost Weight = "LOST"
	// Differs is what Fairlead does as well, in another way.
	Differs Weight = "DIFFERS"
	// Step is what the user has to do.
	Step Weight = "DO"
)

// Finding is one thing to know about the translation of one field.
type Finding struct {
	Weight Weight
	// Object is a kind and a name, such as BGPPeer/tor, or a kind alone, of which
	// it tells all.
	Object string
	// Field is the path of MetalLB's field, such as spec.bfdProfile; empty when it
	// is about the object as a whole.
	Field string
	// Value is what stands in the field, as JSON; empty when nothing does, or when
	// it is a password.
	Value string
	// Message says what becomes of it, and what to do.
	Message string
}

// String is the finding on one line.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-7s %s", f.Weight, f.Object)
	if f.Field != "" {
		fmt.Fprintf(&b, " %s", f.Field)
	}
	if f.Value != "" {
		fmt.Fprintf(&b, "=%s", f.Value)
	}
	return b.String() + ": " + f.Message
}

// subject is the object that is being translated, with what there is to tell of it.
type subject struct {
	kind, name string
	findings   []Finding
	// refused: there is no object of ours that says the same or a part of it.
	refused bool
}

func (s *subject) find(weight Weight, field string, value any, format string, args ...any) {
	object := s.kind
	if s.name != "" {
		object += "/" + s.name
	}
	s.findings = append(s.findings, Finding{weight, object, field, shown(value), fmt.Sprintf(format, args...)})
}

// lose tells of what is not in the translation.
func (s *subject) lose(field string, value any, format string, args ...any) {
	s.find(Lost, field, value, format, args...)
}

// refuse tells why there is no translation of the object: it would not be admitted,
// or would mean more than MetalLB's, such as all nodes for want of a selector.
func (s *subject) refuse(field string, value any, format string, args ...any) {
	s.refused = true
	s.find(Lost, field, value, format+"; the object is left out", args...)
}

// shown is a value as a reader can compare it with what they wrote.
func shown(value any) string {
	text, err := json.Marshal(value)
	switch {
	case err != nil:
		return fmt.Sprint(value)
	case string(text) == "null":
		return ""
	default:
		return string(text)
	}
}
