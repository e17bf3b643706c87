package metallb

import (
	"cmp"
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
	if in.VRF != "" {
		s.refuse("spec.vrf", in.VRF, "there are no sessions in VRFs yet: have the router reached by the main routing table")
	}
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
	s.families(in, &out)
	s.endpoints(in, &out)
	s.times(in, &out)
	s.password(in, &out, namespaces)
	if problems := validation.IsDNS1123Subdomain(in.BFDProfile); in.BFDProfile == "" || len(problems) == 0 {
		out.BFDProfile = in.BFDProfile
	} else {
		s.lose("spec.bfdProfile", in.BFDProfile, "not the name of a BFDProfile: %s", problems[0])
	}
	if out.EBGPMultiHop && (out.DynamicASN == v1beta1.DynamicInternal || cmp.Or(out.LocalASN, out.MyASN) == out.PeerASN) {
		s.find(Differs, "spec.ebgpMultiHop", true, "left out: an iBGP router may always be far")
		out.EBGPMultiHop = false
	}
	if in.EnableGracefulRestart == nil {
		s.find(Differs, "spec.enableGracefulRestart", nil, "left out, it means true, while it means false in MetalLB: routers keep the routes while a speaker restarts")
	}
	return out
}

// families says which families the session offers. Versions of MetalLB differ in what it
// means to say nothing.
func (s *subject) families(in peerSpec, out *v1beta1.BGPPeerSpec) {
	switch {
	case in.Interface != "":
		if in.DisableMP || in.DualStackAddressFamily != nil && !*in.DualStackAddressFamily {
			s.find(Differs, "spec.dualStackAddressFamily", false, "left out, so that it means true: MetalLB offers both families on a session by interface, whatever this says")
		}
	case in.DisableMP:
		s.find(Differs, "spec.disableMP", true, "written as dualStackAddressFamily false, which is the same")
		out.DualStackAddressFamily = new(false)
	case in.DualStackAddressFamily == nil:
		s.find(Differs, "spec.dualStackAddressFamily", nil, "left out, it means true, while it means false in newer versions of MetalLB: the session offers both families, and carries those that the router activates")
	default:
		out.DualStackAddressFamily = in.DualStackAddressFamily
	}
}

// number is that of an autonomous system in a field.
type number struct {
	path string
	asn  int64
}

// systems translates the numbers of the autonomous systems.
func (s *subject) systems(in peerSpec, out *v1beta1.BGPPeerSpec) {
	out.MyASN, out.LocalASN, out.PeerASN, out.DynamicASN = in.MyASN, in.LocalASN, in.PeerASN, v1beta1.DynamicASN(in.DynamicASN)
	numbers := []number{{"spec.myASN", out.MyASN}}
	if in.LocalASN != 0 {
		numbers = append(numbers, number{"spec.localASN", out.LocalASN})
	}
	switch out.DynamicASN {
	case "":
		numbers = append(numbers, number{"spec.peerASN", out.PeerASN})
	case v1beta1.DynamicInternal, v1beta1.DynamicExternal:
		if in.PeerASN != 0 {
			s.refuse("spec.dynamicASN", in.DynamicASN, "there is a peerASN as well, which MetalLB refuses: take one of them out")
		}
	default:
		s.refuse("spec.dynamicASN", in.DynamicASN, "must be internal or external")
	}
	for _, system := range numbers {
		if n := system.asn; n < 1 || n >= maxUint32 || n == 23456 || n == 65535 {
			s.refuse(system.path, n, "not the number of an autonomous system: must be 1 to %d, and neither 23456 nor 65535", int64(maxUint32-1))
		}
	}
}

// endpoints translates the addresses of both sides.
func (s *subject) endpoints(in peerSpec, out *v1beta1.BGPPeerSpec) {
	peer, ok := unicast(in.PeerAddress)
	switch {
	case in.Interface != "":
		s.overInterface(in, out)
	case !ok:
		s.refuse("spec.peerAddress", in.PeerAddress, "must be the unicast address of a router, without zone, and no IPv6 link-local address")
	default:
		out.PeerAddress = peer.String()
	}
	if in.SourceAddress != "" && in.Interface == "" {
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

// overInterface translates an unnumbered session, which has no addresses.
func (s *subject) overInterface(in peerSpec, out *v1beta1.BGPPeerSpec) {
	out.Interface = in.Interface
	if !isInterface(in.Interface) {
		s.refuse("spec.interface", in.Interface, "not the name of a network interface")
	}
	if in.PeerAddress != "" {
		s.refuse("spec.interface", in.Interface, "there is a peerAddress as well, which MetalLB refuses: take one of them out")
	}
	if in.SourceAddress != "" {
		s.find(Differs, "spec.sourceAddress", in.SourceAddress, "left out: a session by interface comes from the link-local address of the interface")
	}
	if out.EBGPMultiHop {
		s.find(Differs, "spec.ebgpMultiHop", true, "left out: the router at the other end of an interface is one hop away")
		out.EBGPMultiHop = false
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
	if in.HoldTime == nil && hold == nil {
		s.find(Differs, "spec.holdTime", nil, "left out, it means %.0fs, while it means 180s where MetalLB speaks BGP by FRR: routers notice a dead node sooner", defaultHold.Seconds())
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

// bfdSpec is that of a BFDProfile of MetalLB.
type bfdSpec struct {
	ReceiveInterval  *int64 `json:"receiveInterval"`
	TransmitInterval *int64 `json:"transmitInterval"`
	DetectMultiplier *int64 `json:"detectMultiplier"`
	EchoInterval     *int64 `json:"echoInterval"`
	EchoMode         bool   `json:"echoMode"`
	PassiveMode      bool   `json:"passiveMode"`
	MinimumTTL       *int64 `json:"minimumTtl"`
}

// bfd translates the spec of a BFDProfile.
func (s *subject) bfd(in bfdSpec) v1beta1.BFDProfileSpec {
	const least, most = 10, 60000 // milliseconds
	if in.EchoMode {
		s.lose("spec.echoMode", true, "the echo function is not supported: make transmitInterval and receiveInterval as short as echoInterval, which is as quick")
	}
	return v1beta1.BFDProfileSpec{
		ReceiveInterval:  s.number("spec.receiveInterval", in.ReceiveInterval, least, most),
		TransmitInterval: s.number("spec.transmitInterval", in.TransmitInterval, least, most),
		DetectMultiplier: s.number("spec.detectMultiplier", in.DetectMultiplier, 2, 255),
		EchoInterval:     s.number("spec.echoInterval", in.EchoInterval, least, most),
		PassiveMode:      in.PassiveMode,
		MinimumTTL:       s.number("spec.minimumTtl", in.MinimumTTL, 1, 254),
	}
}

// number takes a number of a range, or tells why it is left out.
func (s *subject) number(path string, in *int64, least, most int64) int32 {
	switch {
	case in == nil:
		return 0
	case *in < least || *in > most:
		s.lose(path, *in, "must be %d to %d: left out, so that the default holds", least, most)
		return 0
	default:
		return int32(*in)
	}
}
