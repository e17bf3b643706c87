package outcome

import "errors"

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
