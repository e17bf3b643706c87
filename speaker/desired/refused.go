package desired

import (
	"errors"
	"fmt"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
)

// RefusedError says that the kernel did not take one port, whatever else it is asked
// to do. All other ports are in place, and so is what this port had before.
type RefusedError struct {
	Key PortKey
	Err error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("forward Service %s, port %q (%s, %s): %v",
		e.Key.Service, e.Key.Name, e.Key.Protocol, e.Key.Family, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// FamilyError says that something failed in one family, whatever the other one does.
type FamilyError struct {
	Family addr.Family
	// Settled: all is in place that is no port's, such as the guard of loopback addresses.
	Settled bool
	Err     error
}

func (e *FamilyError) Error() string { return fmt.Sprintf("%s: %v", e.Family, e.Err) }

func (e *FamilyError) Unwrap() error { return e.Err }

// Settled tells whether all that is no port's is in place in a family, by the error of a
// backend: nil, or FamilyErrors joined. Of another error nobody knows.
func Settled(err error, family addr.Family) bool {
	if err == nil {
		return true
	}
	failed, ok := errors.AsType[*FamilyError](err)
	if !ok || failed.Family == family && !failed.Settled {
		return false
	}
	others, _ := errors.AsType[several](err)
	return others == nil || !slices.ContainsFunc(others.Unwrap(), func(each error) bool {
		other, ok := errors.AsType[*FamilyError](each)
		return ok && other.Family == family && !other.Settled
	})
}

// Refused are the ports that an error of several, joined and wrapped, says are refused.
func Refused(err error) map[PortKey]bool {
	refused := map[PortKey]bool{}
	refusals(err, refused)
	return refused
}

func refusals(err error, into map[PortKey]bool) {
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok {
		return
	}
	into[refused.Key] = true
	if joined, ok := errors.AsType[several](err); ok {
		for _, each := range joined.Unwrap() {
			refusals(each, into)
		}
	}
}

// several is what errors.Join makes.
type several interface {
	error
	Unwrap() []error
}
