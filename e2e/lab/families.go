package lab

// ordered gives what there is for each family in the cluster's order.
func ordered[T any](o Options, v4, v6 T) [2]T {
	if o.IPv6First {
		return [2]T{v6, v4}
	}
	return [2]T{v4, v6}
}

// list is ordered, as Kubernetes' flags take it.
func (o Options) list(v4, v6 string) string {
	both := ordered(o, v4, v6)
	return both[0] + "," + both[1]
}

// dnsService is the ClusterIP of CoreDNS, of the first family.
func (o Options) dnsService() string { return ordered(o, dnsService4, dnsService6)[0] }
