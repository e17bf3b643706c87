package fromkube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"fairlead.dev/fairlead/internal/problem"
)

// ReasonUnreadable is of Services and EndpointSlices with values that mean nothing: they
// are left out, and all else of the object holds.
const ReasonUnreadable = "Unreadable"

// unread tells of what was left out of a Service, nil if nothing was.
func unread(s *corev1.Service) []problem.Problem {
	var wrong []string
	for i, text := range s.Spec.LoadBalancerSourceRanges {
		if len(prefixes([]string{text})) == 0 {
			wrong = append(wrong, fmt.Sprintf("spec.loadBalancerSourceRanges[%d]: %q is no prefix such as 192.0.2.0/24 and admits nobody", i, text))
		}
	}
	for i, text := range s.Spec.ExternalIPs {
		if len(addresses([]string{text})) == 0 {
			wrong = append(wrong, fmt.Sprintf("spec.externalIPs[%d]: %q is no address", i, text))
		}
	}
	return unreadable(problem.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name}, wrong)
}

// UnreadEndpoints tells of what EndpointSlice leaves out of a slice that is a Service's,
// nil if nothing is.
func UnreadEndpoints(s *discoveryv1.EndpointSlice) []problem.Problem {
	if _, headless := s.Labels[labelHeadless]; headless || s.Labels[discoveryv1.LabelServiceName] == "" {
		return nil
	}
	object := problem.Object{Kind: "EndpointSlice", Namespace: s.Namespace, Name: s.Name}
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return unreadable(object, []string{"addressType: nothing is forwarded to names (FQDN); list addresses in a slice of IPv4 or IPv6"})
	}
	var wrong []string
	for i, p := range s.Ports {
		if port := ptr.Deref(p.Port, 0); port <= 0 || port > 65535 {
			wrong = append(wrong, fmt.Sprintf("ports[%d]: %d is no port from 1 to 65535", i, port))
		}
	}
	for i := range s.Endpoints {
		texts := s.Endpoints[i].Addresses
		if len(texts) == 0 {
			wrong = append(wrong, fmt.Sprintf("endpoints[%d]: no address", i))
			continue
		}
		a := addresses(texts[:1])
		if len(a) == 0 || a[0].Is4() != (s.AddressType == discoveryv1.AddressTypeIPv4) {
			wrong = append(wrong, fmt.Sprintf("endpoints[%d]: %q is no %s address", i, texts[0], s.AddressType))
		}
	}
	return unreadable(object, wrong)
}

func unreadable(object problem.Object, wrong []string) []problem.Problem {
	if len(wrong) == 0 {
		return nil
	}
	return []problem.Problem{problem.New(object, ReasonUnreadable, "left out, all else holds: %s", problem.List(wrong, "; "))}
}
