package desired

import (
	"net/netip"
	"slices"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

func healthCheck(s *view.Service, endpoints []view.Endpoint, node string) HealthCheck {
	check := HealthCheck{Port: s.HealthCheckPort, Ready: map[addr.Family]int{}}
	for _, a := range s.ClusterIPs {
		check.Ready[addr.FamilyOf(a)] = 0
	}
	seen := map[netip.Addr]bool{}
	for i := range endpoints {
		e := &endpoints[i]
		if e.Ready && e.Node == node && node != "" && len(e.Ports) > 0 && !seen[e.Addr] {
			seen[e.Addr] = true
			if _, has := check.Ready[addr.FamilyOf(e.Addr)]; has {
				check.Ready[addr.FamilyOf(e.Addr)]++
			}
		}
	}
	return check
}

func healthPorts(checks map[view.Ref]HealthCheck) []uint16 {
	var ports []uint16
	for _, check := range checks {
		ports = append(ports, check.Port)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
