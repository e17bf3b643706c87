package metallb

import (
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/fairlead/api/v1beta1"
)

const (
	// maxTime is the longest time that fits a BGP message (RFC 4271, 4.2).
	maxTime = 65535 * time.Second
	// minHold is the shortest hold time but none (RFC 4271, 4.2).
	minHold = 3 * time.Second
	// defaultHold is that of our BGPPeers.
	defaultHold = 90 * time.Second
)

// peer translates the spec of a BGPPeer.
func (s *subject) peer(in peerSpec, namespaces Namespaces) v1beta1.BGPPeerSpec {
	s.withoutCounterpart(in)
	out := v1beta1.BGPPeerSpec{
		PeerPort:              int32(in.PeerPort & 0xffff),
		EBGPMultiHop:          in.EBGPMultiHop,
		EnableGracefulRestart: in.EnableGracefulRestart,
		NodeSelectors:         s.selectors("spec.nodeSelectors", in.NodeSelectors),
	}
	if in.PeerPort < 0 || in.PeerPort > 65535 {
		s.refuse("spec.peerPort", in.PeerPort, "must be 1 to 65535")
	}
	s.systems(in, &out)
	s.endpoints(in, &out)
	s.times(in, &out)
	s.password(in, &out, namespaces)
	if out.EBGPMultiHop && out.MyASN == out.PeerASN {
		s.find(Differs, "spec.ebgpMultiHop", true, "left out: an iBGP router may always be far")
		out.EBGPMultiHop = false
	}
	if in.EnableGracefulRestart == nil {
		s.find(Differs, "spec.enableGracefulRestart", nil, "left out, it means true, while it means false in MetalLB: routers keep the routes while a speaker restarts")
	}
	return out
}

// withoutCounterpart tells of what a BGPPeer of ours cannot say.
func (s *subject) withoutCounterpart(in peerSpec) {
	if in.Interface != "" {
		s.refuse("spec.interface", in.Interface, "there are no unnumbered sessions yet: give the router an address and name it in peerAddress")
	}
	if in.VRF != "" {
		s.refuse("spec.vrf", in.VRF, "there are no sessions in VRFs yet: have the router reached by the main routing table")
	}
	if in.BFDProfile != "" {
		s.lose("spec.bfdProfile", in.BFDProfile, "there is no BFD yet: the router notices a dead node by the hold time, so make holdTime short, such as 9s")
	}
	if in.DisableMP {
		s.lose("spec.disableMP", true, "a session carries both families if the router activates both: have the router activate one")
	}
	if in.DualStackAddressFamily == nil || !*in.DualStackAddressFamily {
		s.find(Differs, "spec.dualStackAddressFamily", in.DualStackAddressFamily, "sessions always offer both families, and carry those that the router activates")
	}
}

// systems translates the numbers of the autonomous systems.
func (s *subject) systems(in peerSpec, out *v1beta1.BGPPeerSpec) {
	out.MyASN, out.PeerASN = in.MyASN, in.PeerASN
	if in.LocalASN != 0 {
		s.find(Differs, "spec.localASN", in.LocalASN, "written as myASN, in place of %d: the router sees this number alone, as with MetalLB", in.MyASN)
		out.MyASN = in.LocalASN
	}
	switch in.DynamicASN {
	case "":
	case "internal":
		s.find(Differs, "spec.dynamicASN", in.DynamicASN, "written as peerASN %d, which is the same", out.MyASN)
		out.PeerASN = out.MyASN
	default:
		s.refuse("spec.dynamicASN", in.DynamicASN, "the number of the router's autonomous system must be known: give it in peerASN")
		return
	}
	for _, system := range []struct {
		path   string
		number int64
	}{{"spec.myASN", out.MyASN}, {"spec.peerASN", out.PeerASN}} {
		if n := system.number; n < 1 || n >= maxUint32 || n == 23456 || n == 65535 {
			s.refuse(system.path, n, "not the number of an autonomous system: must be 1 to %d, and neither 23456 nor 65535", int64(maxUint32-1))
		}
	}
}

// endpoints translates the addresses of both sides.
func (s *subject) endpoints(in peerSpec, out *v1beta1.BGPPeerSpec) {
	peer, ok := unicast(in.PeerAddress)
	if !ok && in.Interface == "" {
		s.refuse("spec.peerAddress", in.PeerAddress, "must be the unicast address of a router, without zone, and no IPv6 link-local address")
	}
	out.PeerAddress = peer.String()
	if in.SourceAddress != "" {
		source, ok := unicast(in.SourceAddress)
		if !ok || source.Is4() != peer.Is4() {
			s.refuse("spec.sourceAddress", in.SourceAddress, "must be a unicast address of the family of peerAddress, and no IPv6 link-local address")
		}
		out.SourceAddress = source.String()
	}
	if in.RouterID != "" {
		id, err := netip.ParseAddr(in.RouterID)
		if err != nil || !id.Is4() || id.IsUnspecified() {
			s.refuse("spec.routerID", in.RouterID, "must be written as an IPv4 address other than 0.0.0.0")
		}
		out.RouterID = id.String()
	}
}

// unicast reads an address that a session can be held with.
func unicast(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	return a, err == nil && !a.Is4In6() && a.Zone() == "" && (a.IsGlobalUnicast() || a.IsLoopback() || a.Is4() && a.IsLinkLocalUnicast())
}

// times translates the timers.
func (s *subject) times(in peerSpec, out *v1beta1.BGPPeerSpec) {
	hold := s.seconds("spec.holdTime", in.HoldTime, minHold)
	keepalive := s.seconds("spec.keepaliveTime", in.KeepaliveTime, time.Second)
	limit := defaultHold
	switch {
	case hold != nil:
		limit = hold.Duration
	case in.HoldTime == nil && keepalive != nil:
		// As MetalLB derives the one that is missing.
		limit = min(max(3*keepalive.Duration, minHold), maxTime)
		hold = &metav1.Duration{Duration: limit}
		s.find(Differs, "spec.holdTime", nil, "written as %s, three times keepaliveTime, which is what MetalLB takes", limit)
	}
	if keepalive != nil && keepalive.Duration >= limit {
		s.lose("spec.keepaliveTime", keepalive, "not less than the hold time of %s: left out, so that it is a third of that", limit)
		keepalive = nil
	}
	out.HoldTime, out.KeepaliveTime = hold, keepalive
	out.ConnectTime = s.seconds("spec.connectTime", in.ConnectTime, time.Second)
}

// seconds takes a time in whole seconds, or tells why it is left out.
func (s *subject) seconds(path string, in *metav1.Duration, least time.Duration) *metav1.Duration {
	if in == nil {
		return nil
	}
	whole := in.Truncate(time.Second)
	switch {
	case whole < least || whole > maxTime:
		s.lose(path, in, "must be %s to %s: left out, so that the default holds", least, maxTime)
		return nil
	case whole != in.Duration:
		s.find(Differs, path, in, "written as %s: BGP counts whole seconds", whole)
	}
	return &metav1.Duration{Duration: whole}
}

// password refers to a Secret, which the user makes: none is ever printed.
func (s *subject) password(in peerSpec, out *v1beta1.BGPPeerSpec, namespaces Namespaces) {
	switch {
	case in.PasswordSecret != nil && in.PasswordSecret.Name != "" && in.Password != "":
		s.refuse("spec.password", nil, "there is a passwordSecret as well, which MetalLB refuses: take one of them out")
	case in.PasswordSecret != nil && in.PasswordSecret.Name != "":
		name, from := in.PasswordSecret.Name, in.PasswordSecret.Namespace
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			s.refuse("spec.passwordSecret", name, "not the name of a Secret: %s", problems[0])
			return
		}
		if from == "" {
			from = namespaces.MetalLB
		}
		out.PasswordSecret = &v1beta1.SecretReference{Name: name}
		s.find(Step, "spec.passwordSecret", name, "copy the Secret, without which there is no session: "+
			"kubectl -n %s get secret %s -o jsonpath='{.data.password}' | base64 -d | kubectl -n %s create secret generic %s --type=kubernetes.io/basic-auth --from-file=password=/dev/stdin",
			from, name, namespaces.Fairlead, name)
	case in.Password != "":
		name := s.name + "-password"
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			s.refuse("metadata.name", s.name, "too long for the name of a Secret beside it, which the password must be in")
			return
		}
		out.PasswordSecret = &v1beta1.SecretReference{Name: name}
		s.find(Step, "spec.password", nil, "passwords are in Secrets: put it into a file and make the Secret, without which there is no session: "+
			"kubectl -n %s create secret generic %s --type=kubernetes.io/basic-auth --from-file=password=FILE (no new line at its end)", namespaces.Fairlead, name)
	}
}
