package desired

import (
	"errors"
	"fmt"
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
