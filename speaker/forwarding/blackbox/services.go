package blackbox

import (
	"net/netip"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/desired"
)

// Service makes the ports of one Service, TCP and UDP, of both families.
type Service struct {
	Name string
	N    byte // last byte of its addresses; its NodePort is 30000 more
	Fill func(a Addresses, p *desired.Port)
}

// At is these addresses, all with one port.
func At(port uint16, addrs ...netip.Addr) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range addrs {
		out = append(out, netip.AddrPortFrom(a, port))
	}
	return out
}

// Forwarding is a wanted state with these Services.
func Forwarding(services ...Service) desired.Forwarding {
	want := desired.Forwarding{Ports: map[desired.PortKey]desired.Port{}}
	for _, f := range addr.Families() {
		a := Plan(f)
		want.Pods = append(want.Pods, a.Pods)
		want.NodePorts = append(want.NodePorts, addr.HostPrefix(a.Node))
		for _, s := range services {
			for _, protocol := range []view.Protocol{view.TCP, view.UDP} {
				p := desired.Port{
					ClusterIP: Nth(a.ClusterIPs, s.N), VIPs: []netip.Addr{Nth(a.VIPs, s.N)},
					Port: 80, NodePort: 30000 + uint16(s.N),
				}
				s.Fill(a, &p)
				want.Ports[Key(s.Name, protocol, f)] = p
			}
		}
	}
	return want
}

// Key names the port of a Service.
func Key(service string, protocol view.Protocol, f addr.Family) desired.PortKey {
	return desired.PortKey{
		Service: view.Ref{Namespace: "shop", Name: service}, Name: "web", Protocol: protocol, Family: f,
	}
}

// Services are one for each row of the tables in desired.Port.
func Services() []Service {
	return []Service{
		{"cluster", 1, func(a Addresses, p *desired.Port) {
			p.Cluster, p.Anywhere = At(ServePort, a.P1, a.P2, a.P3), true
		}},
		{"local", 2, func(a Addresses, p *desired.Port) {
			p.Cluster, p.Local = At(ServePort, a.P1, a.P3), At(ServePort, a.P1)
			p.ExternalLocal, p.Anywhere = true, true
		}},
		{"elsewhere", 3, func(a Addresses, p *desired.Port) {
			p.Cluster, p.ExternalLocal, p.Anywhere = At(ServePort, a.P3), true, true
		}},
		{"empty", 4, func(_ Addresses, p *desired.Port) { p.ExternalLocal = true }},
		{"admitted", 5, func(a Addresses, p *desired.Port) {
			p.Cluster, p.Restricted = At(ServePort, a.P2), true
			p.SourceRanges = []netip.Prefix{a.Nobody, addr.HostPrefix(a.Client)}
		}},
		{"barred", 6, func(a Addresses, p *desired.Port) {
			p.Cluster, p.Restricted = At(ServePort, a.P2), true
			p.SourceRanges = []netip.Prefix{a.Nobody}
		}},
		{"hairpin", 7, func(a Addresses, p *desired.Port) {
			p.Cluster, p.Local = At(ServePort, a.P1), At(ServePort, a.P1)
			p.ExternalLocal = true
		}},
		{"inside-local", 8, func(a Addresses, p *desired.Port) {
			p.Cluster, p.Local, p.InternalLocal = At(ServePort, a.P1, a.P3), At(ServePort, a.P1), true
		}},
		{"inside-elsewhere", 9, func(a Addresses, p *desired.Port) {
			p.Cluster, p.InternalLocal, p.Anywhere = At(ServePort, a.P3), true, true
		}},
		{"barred-empty", 10, func(a Addresses, p *desired.Port) {
			p.Restricted, p.SourceRanges = true, []netip.Prefix{addr.HostPrefix(a.Client)}
		}},
	}
}
