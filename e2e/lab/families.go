package lab

import "strings"

// ordered gives what there is for each family that the cluster has, in its order.
func ordered[T any](o Options, v4, v6 T) []T {
	switch {
	case o.PodNetwork == BridgeIPv6:
		return []T{v6}
	case o.IPv6First:
		return []T{v6, v4}
	}
	return []T{v4, v6}
}

// list is ordered, as Kubernetes' flags take it.
func (o Options) list(v4, v6 string) string { return strings.Join(ordered(o, v4, v6), ",") }

// dnsService is the ClusterIP of CoreDNS, of the first family.
func (o Options) dnsService() string { return ordered(o, dnsService4, dnsService6)[0] }
