// Package outcome says how far an applier brought a wanted state about: what is missing, what failed
// and why, and when what failed is worth another attempt.
package outcome

import (
	"errors"
	"fmt"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/desired"
)

// RefusedError says that the kernel did not take one port, whatever else it is asked
// to do. All other ports are in place, and so is what this port had before.
type RefusedError struct {
	Key desired.PortKey
	Err error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("forward Service %s, port %q (%s, %s): %v",
		e.Key.Service, e.Key.Name, e.Key.Protocol, e.Key.Family, e.Err)
}

// Unwrap returns the error that was met.
func (e *RefusedError) Unwrap() error { return e.Err }

// FamilyError says that something failed in one family, whatever the other one does.
type FamilyError struct {
	Family addr.Family
	// Settled: all is in place that is no port's, such as the guard of loopback addresses.
	Settled bool
	Err     error
}

func (e *FamilyError) Error() string { return fmt.Sprintf("%s: %v", e.Family, e.Err) }

// Unwrap returns the error that was met.
func (e *FamilyError) Unwrap() error { return e.Err }

// Beyond returns the errors besides those of ports that the kernel refuses one by one, nil if there are none.
func (e *FamilyError) Beyond() error {
	var others []error
	walk(e.Err, func(err error, leaf bool) bool {
		if _, refused := any(err).(*RefusedError); refused {
			return false
		}
		if leaf {
			others = append(others, err)
		}
		return !leaf
	})
	return errors.Join(others...)
}

// SettingError says that a setting of the host on which forwarding relies is not as wanted.
// All ports are in place.
type SettingError struct {
	Of  string // which setting, the same at each attempt
	Err error
}

func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap returns the error that was met.
func (e *SettingError) Unwrap() error { return e.Err }

// Settled reports whether all that is no port's is in place in a family, by the error of a
// backend: nil, or FamilyErrors joined. Another error says nothing of a family: false.
func Settled(err error, family addr.Family) bool {
	if err == nil {
		return true
	}
	return len(AllOf[*FamilyError](err))+len(PutOff(err)) > 0 && !Unsettled(err)[family]
}

// Behind are the families in which the kernel is not as wanted, be it that a port has not
// come, changed or gone, or something that is no port's. A port that it refuses by itself
// does not count: nothing that is done again would help. Neither do one that is put off, since a large Service that
// changes all the time would have the family be behind for ever, and a family that the host has not at all.
func Behind(missing Missing, err error) map[addr.Family]bool {
	behind := Unsettled(err)
	if later := PutOff(err); len(missing) > len(later) { // else they are the same
		refused := Refused(err)
		for key := range missing {
			if _, putOff := later[key]; !putOff && !refused[key] {
				behind[key.Family] = true
			}
		}
	}
	for family := range Absent(err) {
		delete(behind, family)
	}
	return behind
}

// Absent are the families of which the error of a backend says that the host has none.
func Absent(err error) map[addr.Family]bool {
	return families(err, func(failed *FamilyError) bool { return ReasonOf(failed.Err) == ReasonFamilyAbsent })
}

func families(err error, are func(*FamilyError) bool) map[addr.Family]bool {
	of := map[addr.Family]bool{}
	for _, failed := range AllOf[*FamilyError](err) {
		if are(failed) {
			of[failed.Family] = true
		}
	}
	return of
}

// Failing is what is left of an error without what families did that the host has not at all, since they are
// told of and there is nothing to be tried again for them, and without what is put off. nil: nothing else failed.
func Failing(err error) error {
	if failed, is := any(err).(*FamilyError); is && len(Absent(failed)) > 0 {
		return nil
	}
	if _, putOff := any(err).(*PutOffError); putOff {
		return nil
	}
	joined, is := any(err).(several)
	if !is {
		return err
	}
	var others []error
	for _, each := range joined.Unwrap() {
		others = append(others, Failing(each))
	}
	return errors.Join(others...)
}

// Unsettled are the families of which the error of a backend says that something is not in
// place that is no port's.
func Unsettled(err error) map[addr.Family]bool {
	return families(err, func(failed *FamilyError) bool { return !failed.Settled })
}

// Refused are the ports that an error of several, joined and wrapped, says are refused.
func Refused(err error) map[desired.PortKey]bool {
	refused := map[desired.PortKey]bool{}
	for _, e := range AllOf[*RefusedError](err) {
		refused[e.Key] = true
	}
	return refused
}

// AllOf are the errors of a type in one of several, joined and wrapped.
func AllOf[E error](err error) []E {
	var all []E
	walk(err, func(err error, _ bool) bool {
		e, is := any(err).(E)
		if is {
			all = append(all, e)
		}
		return !is
	})
	return all
}

// walk visits an error and, while visit says so, all that are joined or wrapped in it. A
// leaf has no several in it.
func walk(err error, visit func(err error, leaf bool) bool) {
	if err == nil {
		return
	}
	_, joins := errors.AsType[several](err)
	_, refuses := errors.AsType[*RefusedError](err)
	if !visit(err, !joins && !refuses) {
		return
	}
	switch wrapper := any(err).(type) {
	case several:
		for _, each := range wrapper.Unwrap() {
			walk(each, visit)
		}
	case interface{ Unwrap() error }:
		walk(wrapper.Unwrap(), visit)
	}
}

// several is what errors.Join makes.
type several interface {
	error
	Unwrap() []error
}

// Reasons why the kernel of a node is not as wanted that are told apart, since each has a
// way out of its own.
const (
	// ReasonProgramMissing: a program that forwarding needs is not on the node.
	ReasonProgramMissing = "ProgramMissing"
	// ReasonProgramHangs: such a program does not end.
	ReasonProgramHangs = "ProgramHangs"
	// ReasonTablesLocked: another program keeps the tables of the kernel to itself.
	ReasonTablesLocked = "TablesLocked"
	// ReasonFeatureMissing: the kernel has not all that the rules need.
	ReasonFeatureMissing = "FeatureMissing"
	// ReasonFamilyAbsent: the host has not the address family at all, so that there is nothing
	// of it that could be forwarded. Nothing mends that but another host.
	ReasonFamilyAbsent = "FamilyAbsent"
	// ReasonSetFull: an ipset takes no more, or the kernel no more ipsets.
	ReasonSetFull = "SetFull"
	// ReasonForwardingDisabled: the host forwards no packets of the family, whatever the rules are.
	ReasonForwardingDisabled = "ForwardingDisabled"
	// ReasonBridgeBypassed: packets between pods on a bridge of the host go past netfilter.
	ReasonBridgeBypassed = "BridgeBypassed"
	// ReasonRouteMissing: the host has no route to ClusterIPs.
	ReasonRouteMissing = "RouteMissing"
)

// CausedError is an error whose cause is one of the reasons above.
type CausedError struct {
	reason string
	err    error
}

// Caused returns a *CausedError with the reason; nil for nil.
func Caused(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &CausedError{reason, err}
}

func (e *CausedError) Error() string { return e.err.Error() }

// Unwrap returns the error that was met.
func (e *CausedError) Unwrap() error { return e.err }

// Reason is the cause.
func (e *CausedError) Reason() string { return e.reason }

// ReasonOf is the first cause in an error, of which other types may tell as well; "" if
// none is known.
func ReasonOf(err error) string {
	caused, ok := errors.AsType[interface {
		error
		Reason() string
	}](err)
	if !ok {
		return ""
	}
	return caused.Reason()
}
