// Package fromkube reads API objects into the values of package view. It is the
// one place that knows how Kubernetes and users write things: labels, annotations,
// defaults and text. It never fails as a whole: the part of an object that cannot be
// read is left out and becomes a problem of that object.
package fromkube

// Reasons of the problems that are found while reading.
const (
	ReasonInvalidRequest   = "InvalidRequest"   // a Service asks for what is no address
	ReasonInvalidAddresses = "InvalidAddresses" // a pool has a range that is none
	// ReasonUnusableAddresses: a pool has loopback addresses among its own, or others that
	// no Service can have. They are left out, and the pool is in use.
	ReasonUnusableAddresses = "UnusableAddresses"
	ReasonInvalidSelector   = "InvalidSelector"  // a label selector that no label could match
	ReasonInvalidPeer       = "InvalidPeer"      // a BGP peer without a usable address, number or time
	ReasonInvalidCommunity  = "InvalidCommunity" // a BGP community that is none
	ReasonSecretMissing     = "SecretMissing"    // a Secret that is named does not exist
	ReasonSecretInvalid     = "SecretInvalid"    // a Secret has no password in it
)
