package statuswriter

import (
	"log/slog"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/speaker/bgp"
	"fairlead.dev/fairlead/speaker/pulse/api"
	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/report"
)

// Each is the writer of one kind, to be run alone.
type (
	Sessions struct {
		*Writer[*v1beta1.BGPSession]
		of *Objects
	}
	Addresses struct {
		*Writer[*v1beta1.L2Address]
		of *Objects
	}
	Doubts struct {
		*Writer[*v1beta1.L2Address]
		of *Objects
	}
	Forwardings struct {
		*Writer[*v1beta1.NodeForwarding]
		of *Objects
	}
)

func NewSessions(node string, api client.Client, log *slog.Logger) *Sessions {
	o := newObjects(node, api, api, log)
	return &Sessions{o.sessions, o}
}

func NewAddresses(node string, api client.Client, log *slog.Logger) *Addresses {
	o := newObjects(node, api, api, log)
	return &Addresses{o.addresses, o}
}

func NewDoubts(node string, api client.Client, log *slog.Logger) *Doubts {
	o := newObjects(node, api, api, log)
	return &Doubts{o.doubts, o}
}

func NewForwardings(node string, api client.Client, log *slog.Logger) *Forwardings {
	o := newObjects(node, api, api, log)
	return &Forwardings{o.forwarding, o}
}

func (s *Sessions) Set(uid types.UID, sessions map[string]bgp.State, paths map[string]bfd.Status) {
	s.of.Sessions(uid, sessions, paths)
}

func (a *Addresses) Set(uid types.UID, addresses map[netip.Addr]report.Address) {
	a.of.Addresses(uid, addresses)
}

func (d *Doubts) Set(doubts map[netip.Addr]api.Doubt) { d.of.Doubts(doubts) }

func (f *Forwardings) Set(uid types.UID, is v1beta1.NodeForwardingStatus) { f.of.Forwarding(uid, is) }
