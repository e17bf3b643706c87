// Package fromkube reads API objects into the values of package view. It is the
// one place that knows how Kubernetes and users write things: labels, annotations,
// defaults and text. It never fails as a whole: the part of an object that cannot be
// read is left out and becomes a problem of that object.
package fromkube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/fairlead/internal/problem"
)

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

// ReasonUnreadable is of Services and EndpointSlices with values that mean nothing: they
// are left out, and all else of the object holds.
const ReasonUnreadable = "Unreadable"

// unread tells of what was left out of a Service, nil if nothing was.
func unread(s *corev1.Service) []problem.Problem {
	var wrong []string
	for i, text := range s.Spec.LoadBalancerSourceRanges {
		if len(prefixes([]string{text})) == 0 {
			wrong = append(wrong, fmt.Sprintf("spec.loadBalancerSourceRanges[%d]: %q is no prefix such as 192.0.2.0/24 and admits nobody", i, quotable(text)))
		}
	}
	for i, text := range s.Spec.ExternalIPs {
		if len(addresses([]string{text})) == 0 {
			wrong = append(wrong, fmt.Sprintf("spec.externalIPs[%d]: %q is no address", i, quotable(text)))
		}
	}
	return unreadable(problem.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name}, wrong)
}

func unreadable(object problem.Object, wrong []string) []problem.Problem {
	if len(wrong) == 0 {
		return nil
	}
	return []problem.Problem{problem.New(object, ReasonUnreadable, "left out, all else holds: %s", problem.List(wrong, "; "))}
}
