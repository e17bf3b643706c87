package fromkube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Labels of Kubernetes that decide which objects a proxy handles. Their
// presence counts, not their value.
const (
	LabelProxyName   = "service.kubernetes.io/service-proxy-name"
	labelHeadless    = corev1.IsHeadlessService
	labelExcludeNode = corev1.LabelNodeExcludeBalancers
	defaultAffinity  = 10800 * time.Second
)

// The taints that the cluster autoscaler and Karpenter set on nodes that they are about to delete.
const (
	taintCondemned = "ToBeDeletedByClusterAutoscaler"
	taintDisrupted = "karpenter.sh/disrupted"
)

// Service reads of a Service what a speaker needs; nil for those that have no address to forward:
// headless and ExternalName ones. Labels are most of a Service, of which a cluster has thousands: they
// are read where it may be announced.
func Service(s *corev1.Service) *view.Service {
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	_, elsewhere := s.Labels[LabelProxyName]
	v := &view.Service{
		Ref:              view.Ref{Namespace: s.Namespace, Name: s.Name},
		Type:             view.ServiceType(s.Spec.Type),
		Class:            ptr.Deref(s.Spec.LoadBalancerClass, ""),
		ClusterIPs:       addresses(clusterIPs(s)),
		ExternalIPs:      addresses(s.Spec.ExternalIPs),
		Ports:            servicePorts(s.Spec.Ports),
		SourceRanges:     sourceRanges(s.Spec.LoadBalancerSourceRanges),
		InternalLocal:    ptr.Deref(s.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal,
		Deleting:         s.DeletionTimestamp != nil,
		ProxiedElsewhere: elsewhere,
		Unread:           unread(s),
	}
	if v.Type == view.LoadBalancer {
		v.UID, v.Labels, v.Created, v.Guest = string(s.UID), s.Labels, s.CreationTimestamp.Time, guest(s.Status.Conditions)
	}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		vip := ptr.Deref(ingress.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeVIP
		for _, a := range addresses([]string{ingress.IP}) {
			if vip && !slices.Contains(v.VIPs, a) { // the API server accepts one twice
				v.VIPs = append(v.VIPs, a)
			}
		}
	}
	external := v.Type != view.ClusterIP || len(v.ExternalIPs) > 0
	v.ExternalLocal = external && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if v.Type == view.LoadBalancer && v.ExternalLocal {
		v.HealthCheckPort = uint16(s.Spec.HealthCheckNodePort)
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		v.Affinity = defaultAffinity
		if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			v.Affinity = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	return v
}

// guest are the addresses that the condition Guest names.
func guest(conditions []metav1.Condition) []netip.Addr {
	condition := meta.FindStatusCondition(conditions, v1beta1.ConditionGuest)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return nil
	}
	_, list, _ := strings.Cut(condition.Message, v1beta1.GuestOf)
	return addresses(strings.Split(list, ", "))
}

// ClusterIPs returns the ClusterIPs of a Service; none of a Service that is
// gone (nil), headless or ExternalName.
func ClusterIPs(s *corev1.Service) []netip.Addr {
	if s == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	return addresses(clusterIPs(s))
}

// ExternalIPs returns the spec.externalIPs of a Service; none of one that is gone (nil) or headless, which no proxy
// forwards.
func ExternalIPs(s *corev1.Service) []netip.Addr {
	if s == nil || len(s.Spec.ExternalIPs) == 0 || s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	return addresses(s.Spec.ExternalIPs)
}

// Networks reads the networks that a node is on, and leaves out what is none.
func Networks(f *v1beta1.NodeForwarding) []netip.Prefix { return prefixes(f.Status.Networks) }

// Withheld reads which address no node answers for, and why; the zero address if one does, or may. No node writes one by
// another name than that of its address.
func Withheld(a *v1beta1.L2Address) (address netip.Addr, why string) {
	c := meta.FindStatusCondition(a.Status.Conditions, v1beta1.ConditionAnswering)
	if c == nil || c.Status != metav1.ConditionFalse {
		return netip.Addr{}, ""
	}
	address, err := netip.ParseAddr(a.Spec.Address)
	if err != nil || a.Name != v1beta1.L2AddressName(address) {
		return netip.Addr{}, ""
	}
	return address, c.Message
}

// ServiceRanges reads the ranges that ClusterIPs are from.
func ServiceRanges(s *networkingv1.ServiceCIDR) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range s.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, p.Masked())
		}
	}
	return ranges
}

// clusterIPs reads objects of before dual stack, too, which have only clusterIP.
func clusterIPs(s *corev1.Service) []string {
	if len(s.Spec.ClusterIPs) > 0 {
		return s.Spec.ClusterIPs
	}
	return []string{s.Spec.ClusterIP}
}

func families(s *corev1.Service, clusterIPs []netip.Addr) []addr.Family {
	var found []addr.Family
	for _, f := range s.Spec.IPFamilies {
		switch f {
		case corev1.IPv4Protocol:
			found = append(found, addr.IPv4)
		case corev1.IPv6Protocol:
			found = append(found, addr.IPv6)
		}
	}
	if len(found) == 0 {
		for _, a := range clusterIPs {
			found = append(found, addr.FamilyOf(a))
		}
	}
	return found
}

func servicePorts(ports []corev1.ServicePort) []view.ServicePort {
	var found []view.ServicePort
	for _, p := range ports {
		protocol, ok := protocolOf(p.Protocol)
		if !ok {
			continue
		}
		found = append(found, view.ServicePort{Name: p.Name, Protocol: protocol, Port: uint16(p.Port), NodePort: uint16(p.NodePort)})
	}
	return found
}

// protocolOf reads a protocol; false for one that is not forwarded. Unset is TCP.
func protocolOf(p corev1.Protocol) (view.Protocol, bool) {
	switch p {
	case corev1.ProtocolTCP, "":
		return view.TCP, true
	case corev1.ProtocolUDP:
		return view.UDP, true
	case corev1.ProtocolSCTP:
		return view.SCTP, true
	default:
		return "", false
	}
}

// sourceRanges reads loadBalancerSourceRanges. An unreadable range admits no source
// and does not lift the restriction: it fails closed.
func sourceRanges(texts []string) []netip.Prefix {
	if len(texts) == 0 {
		return nil
	}
	return prefixes(texts)
}

// prefixes reads CIDRs and leaves out what is none; never nil.
func prefixes(texts []string) []netip.Prefix {
	found := []netip.Prefix{}
	for _, text := range texts {
		_, ipnet, err := utilnet.ParseCIDRSloppy(strings.TrimSpace(text))
		if err != nil {
			continue
		}
		ones, _ := ipnet.Mask.Size()
		a, ok := netip.AddrFromSlice(ipnet.IP)
		if a.Is4In6() { // of which 96 bits say that it is IPv4
			a, ones = a.Unmap(), ones-96
		}
		if ok {
			found = append(found, netip.PrefixFrom(a, ones))
		}
	}
	return found
}

// addresses reads IP addresses as the API server has always stored them,
// leading zeros included, and leaves out what is none.
func addresses(texts []string) []netip.Addr {
	var found []netip.Addr
	for _, text := range texts {
		if a, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(strings.TrimSpace(text))); ok {
			found = append(found, a.Unmap())
		}
	}
	return found
}

// EndpointSlice reads the endpoints of a slice and the Service they belong to; nil for slices
// that a proxy does not handle: those of headless Services, with no Service, or with names for
// addresses. problems tell of what is left out of a slice that is a Service's, nil if nothing is.
func EndpointSlice(s *discoveryv1.EndpointSlice) (service view.Ref, endpoints []view.Endpoint, problems []problem.Problem) {
	name := s.Labels[discoveryv1.LabelServiceName]
	if _, headless := s.Labels[labelHeadless]; headless || name == "" {
		return view.Ref{}, nil, nil
	}
	object := problem.Object{Kind: "EndpointSlice", Namespace: s.Namespace, Name: s.Name}
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return view.Ref{}, nil, unreadable(object, []string{"addressType: nothing is forwarded to names (FQDN); list addresses in a slice of IPv4 or IPv6"})
	}
	ports, wrong := endpointPorts(s.Ports)
	endpoints = make([]view.Endpoint, 0, len(s.Endpoints))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) == 0 {
			wrong = append(wrong, fmt.Sprintf("endpoints[%d]: no address", i))
			continue
		}
		a := addresses(e.Addresses[:1])
		if len(a) == 0 || a[0].Is4() != (s.AddressType == discoveryv1.AddressTypeIPv4) {
			wrong = append(wrong, fmt.Sprintf("endpoints[%d]: %q is no %s address", i, e.Addresses[0], s.AddressType))
			continue
		}
		endpoints = append(endpoints, view.Endpoint{
			Addr:        a[0],
			Node:        unique.Make(ptr.Deref(e.NodeName, "")).Value(), // one text for all endpoints of a node
			Ready:       ptr.Deref(e.Conditions.Ready, true),
			Serving:     ptr.Deref(e.Conditions.Serving, true),
			Terminating: ptr.Deref(e.Conditions.Terminating, false),
			Pod:         e.TargetRef != nil && e.TargetRef.Kind == "Pod",
			Ports:       ports,
			Hints:       hints(e.Hints),
		})
	}
	return view.Ref{Namespace: s.Namespace, Name: name}, endpoints, unreadable(object, wrong)
}

// Trigger reads which endpoints a slice is about, and when what led to its newest
// change happened; the zero time if the slice does not say or cannot be read.
func Trigger(s *discoveryv1.EndpointSlice) (view.EndpointsOf, time.Time) {
	of := view.EndpointsOf{Service: view.Ref{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}, Family: addr.IPv4}
	if s.AddressType == discoveryv1.AddressTypeIPv6 {
		of.Family = addr.IPv6
	}
	at, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return of, time.Time{}
	}
	return of, at
}

// endpointPorts reads the ports of a slice. wrong says which are left out for their numbers.
func endpointPorts(ports []discoveryv1.EndpointPort) (found []view.EndpointPort, wrong []string) {
	for i, p := range ports {
		port := ptr.Deref(p.Port, 0)
		if port <= 0 || port > 65535 {
			wrong = append(wrong, fmt.Sprintf("ports[%d]: %d is no port from 1 to 65535", i, port))
		} else if protocol, ok := protocolOf(ptr.Deref(p.Protocol, corev1.ProtocolTCP)); ok {
			found = append(found, view.EndpointPort{Name: ptr.Deref(p.Name, ""), Protocol: protocol, Port: uint16(port)})
		}
	}
	return found, wrong
}

func hints(h *discoveryv1.EndpointHints) *view.Hints {
	if h == nil {
		return nil
	}
	found := &view.Hints{}
	for _, n := range h.ForNodes {
		found.ForNodes = append(found.ForNodes, n.Name)
	}
	for _, z := range h.ForZones {
		found.ForZones = append(found.ForZones, z.Name)
	}
	return found
}

// Nodes reads nodes.
type Nodes struct {
	// IgnoreExclude: read each node as if it had no label
	// node.kubernetes.io/exclude-from-external-load-balancers.
	IgnoreExclude bool
}

// Read reads a node.
func (o Nodes) Read(n *corev1.Node) *view.Node {
	v := &view.Node{Name: n.Name, UID: string(n.UID), Labels: n.Labels, Deleting: n.DeletionTimestamp != nil, Cordoned: n.Spec.Unschedulable}
	v.Addresses, v.ExternalIPs = nodeAddresses(n)
	cidrs := n.Spec.PodCIDRs
	if len(cidrs) == 0 && n.Spec.PodCIDR != "" {
		cidrs = []string{n.Spec.PodCIDR}
	}
	v.PodCIDRs = prefixes(cidrs)
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			v.Ready = c.Status == corev1.ConditionTrue
		case corev1.NodeNetworkUnavailable:
			v.NetworkUnavailable = c.Status == corev1.ConditionTrue
		}
	}
	tainted := func(key string) bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	}
	_, labelled := n.Labels[labelExcludeNode]
	v.Excluded = labelled && !o.IgnoreExclude || tainted(corev1.TaintNodeOutOfService)
	v.Condemned = tainted(taintCondemned) || tainted(taintDisrupted)
	v.KubeletPort = uint16(n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	return v
}

// nodeAddresses are the InternalIPs of a node, and of a family that has none its ExternalIPs:
// so kube-proxy and the kubelet find a node's addresses, and some clouds
// give a node no others. All of its ExternalIPs, which lead to the node as well, are external.
func nodeAddresses(n *corev1.Node) (all, external []netip.Addr) {
	var internal []netip.Addr
	for _, a := range n.Status.Addresses {
		switch a.Type {
		case corev1.NodeInternalIP:
			internal = append(internal, addresses([]string{a.Address})...)
		case corev1.NodeExternalIP:
			external = append(external, addresses([]string{a.Address})...)
		}
	}
	all = internal
	for _, a := range external {
		inside := slices.ContainsFunc(internal, func(other netip.Addr) bool { return addr.FamilyOf(other) == addr.FamilyOf(a) })
		if !inside {
			all = append(all, a)
		}
	}
	return all, external
}

// SpeakerPod reads a pod of the speaker's DaemonSet; false while it has no node, and when it
// has ended. One that is told to end is not ready, and may still answer for addresses.
func SpeakerPod(p *corev1.Pod) (view.Speaker, bool) {
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return view.Speaker{}, false
	}
	ready := p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return view.Speaker{Node: p.Spec.NodeName, Ready: ready, BoundsLoad: p.Annotations[v1beta1.AnnotationBoundedLoad] == "true"}, true
}
