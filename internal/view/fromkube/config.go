package fromkube

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"fairlead.dev/fairlead/api/v1beta1"
	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/problem"
	"fairlead.dev/fairlead/internal/view"
)

// Times of a BGPPeer that says nothing; the schema has the same defaults.
const (
	defaultHoldTime    = 90 * time.Second
	defaultConnectTime = 10 * time.Second
	defaultPeerPort    = 179
)

// defaultAnnounceInterval is that of an L2Advertisement that says nothing; the schema has the same.
const defaultAnnounceInterval = time.Minute

// maxPassword is how many bytes the kernel takes of a TCP MD5 key (TCP_MD5SIG_MAXKEYLEN).
const maxPassword = 80

// Pool reads an IPAddressPool. A range that cannot be read is a problem and is
// left out; the others stay, since Services may hold addresses of them.
func Pool(p *v1beta1.IPAddressPool) (*view.Pool, []problem.Problem) {
	v := &view.Pool{
		Name:          p.Name,
		Created:       p.CreationTimestamp.Time,
		Labels:        p.Labels,
		AutoAssign:    ptr.Deref(p.Spec.AutoAssign, true),
		AvoidBuggyIPs: p.Spec.AvoidBuggyIPs,
		Disabled:      p.Spec.Disabled,
		Priority:      p.Spec.Priority,
		CoolDown:      duration(p.Spec.CoolDown, 0),

		MaxPerNamespace: int(ptr.Deref(p.Spec.MaxPerNamespace, 0)),
		Former:          former(p.Status.Addresses),
		Renumber:        p.Spec.OnPoolChange == v1beta1.PoolChangeRenumber,
	}
	var problems []problem.Problem
	if a := p.Spec.ServiceAllocation; a != nil {
		r := selectorReader{object: v.Object()}
		if v.Priority == 0 {
			v.Priority = a.Priority
		}
		v.Namespaces = a.Namespaces
		v.NamespaceSelectors = r.read("serviceAllocation.namespaceSelectors", a.NamespaceSelectors)
		v.ServiceSelectors = r.read("serviceAllocation.serviceSelectors", a.ServiceSelectors)
		problems = r.problems
	}
	var ranges []netipx.IPRange
	for i, text := range p.Spec.Addresses {
		r, err := addr.ParseRange(text)
		if err != nil {
			problems = append(problems, problem.New(v.Object(), ReasonInvalidAddresses, "spec.addresses[%d]: %v", i, err))
			continue
		}
		ranges = append(ranges, r)
	}
	for _, p := range addr.Unreachable() {
		if slices.ContainsFunc(ranges, netipx.RangeOfPrefix(p).Overlaps) {
			problems = append(problems, problem.Advice(v.Object(), ReasonUnusableAddresses,
				"spec.addresses: no Service can have addresses of %s; they are left out", p))
		}
	}
	v.Ranges = addr.Join(ranges, addr.Unreachable()...)
	return v, problems
}

// former reads the ranges in the status of a pool, which the controller wrote. Text that is no range was
// written by another program, and is left out.
func former(texts []string) []netipx.IPRange {
	var ranges []netipx.IPRange
	for _, text := range texts {
		if r, err := addr.ParseRange(text); err == nil {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// L2Advertisement reads an L2Advertisement.
func L2Advertisement(a *v1beta1.L2Advertisement) (*view.L2Advertisement, []problem.Problem) {
	r := selectorReader{object: problem.Object{Kind: "L2Advertisement", Name: a.Name}}
	var preferred []view.Preference
	for i, p := range a.Spec.PreferredNodeSelectors {
		nodes := r.compile(fmt.Sprintf("preferredNodeSelectors[%d].preference", i), &p.Preference)
		preferred = append(preferred, view.Preference{Nodes: nodes, Weight: int(p.Weight)})
	}
	return &view.L2Advertisement{
		Name:             a.Name,
		Pools:            view.PoolMatch{Names: a.Spec.IPAddressPools, Selectors: r.read("ipAddressPoolSelectors", a.Spec.IPAddressPoolSelectors)},
		ServiceSelectors: r.read("serviceSelectors", a.Spec.ServiceSelectors),
		NodeSelectors:    r.read("nodeSelectors", a.Spec.NodeSelectors),
		PreferredNodes:   preferred,
		Interfaces:       a.Spec.Interfaces,
		AnnounceInterval: duration(a.Spec.AnnounceInterval, defaultAnnounceInterval),
		NoPreempt:        a.Spec.Preempt == v1beta1.PreemptNever,
	}, r.problems
}

// BGPAdvertisement reads a BGPAdvertisement.
func BGPAdvertisement(a *v1beta1.BGPAdvertisement) (*view.BGPAdvertisement, []problem.Problem) {
	r := selectorReader{object: problem.Object{Kind: "BGPAdvertisement", Name: a.Name}}
	v := &view.BGPAdvertisement{
		Name:             a.Name,
		Pools:            view.PoolMatch{Names: a.Spec.IPAddressPools, Selectors: r.read("ipAddressPoolSelectors", a.Spec.IPAddressPoolSelectors)},
		ServiceSelectors: r.read("serviceSelectors", a.Spec.ServiceSelectors),
		NodeSelectors:    r.read("nodeSelectors", a.Spec.NodeSelectors),
		Peers:            a.Spec.Peers,
		AggregationLength: map[addr.Family]int{
			addr.IPv4: int(ptr.Deref(a.Spec.AggregationLength, 0)), addr.IPv6: int(ptr.Deref(a.Spec.AggregationLengthV6, 0)),
		},
		LocalPref: uint32(a.Spec.LocalPref),
		Prepend:   int(a.Spec.ASPathPrepend),

		EndpointBandwidth: uint32(ptr.Deref(a.Spec.LinkBandwidthPerEndpoint, 0)),
		WithoutEndpoints:  a.Spec.WithoutEndpoints,
	}
	if a.Spec.MED != nil {
		v.MED = new(uint32(*a.Spec.MED))
	}
	for i, text := range a.Spec.Communities {
		if isName(text) {
			v.CommunityNames = append(v.CommunityNames, text)
			continue
		}
		value, err := readCommunity(text)
		if err != nil {
			r.problems = append(r.problems, problem.New(r.object, ReasonInvalidCommunity, "spec.communities[%d]: %v", i, err))
			continue
		}
		v.Add(value)
	}
	slices.Sort(v.Communities)
	slices.SortFunc(v.LargeCommunities, view.LargeCommunity.Compare)
	return v, r.problems
}

// BGPPeer reads a BGPPeer; secret finds a Secret of Fairlead's namespace by name. A
// peer with a Secret that is missing or holds no password is unusable: no
// session is better than one without the password that was asked for.
func BGPPeer(p *v1beta1.BGPPeer, secret func(name string) (*corev1.Secret, bool)) (*view.BGPPeer, []problem.Problem) {
	v := &view.BGPPeer{
		Name:            p.Name,
		UID:             string(p.UID),
		Created:         p.CreationTimestamp.Time,
		MyASN:           uint32(cmp.Or(p.Spec.LocalASN, p.Spec.MyASN)),
		PeerASN:         uint32(p.Spec.PeerASN),
		DynamicASN:      p.Spec.DynamicASN != "",
		Interface:       p.Spec.Interface,
		Passive:         p.Spec.Passive,
		PeerPort:        uint16(cmp.Or(p.Spec.PeerPort, defaultPeerPort)),
		HoldTime:        duration(p.Spec.HoldTime, defaultHoldTime),
		ConnectTime:     duration(p.Spec.ConnectTime, defaultConnectTime),
		EBGPMultiHop:    p.Spec.EBGPMultiHop,
		TTLSecurity:     p.Spec.TTLSecurity,
		OneFamily:       !ptr.Deref(p.Spec.DualStackAddressFamily, true),
		GracefulRestart: ptr.Deref(p.Spec.EnableGracefulRestart, true),
		BFDProfile:      p.Spec.BFDProfile,
		Password:        key(p.Spec.Password),
	}
	if p.Spec.DynamicASN == v1beta1.DynamicInternal {
		v.PeerASN = v.MyASN
	}
	v.KeepaliveTime = duration(p.Spec.KeepaliveTime, v.HoldTime/3)
	r := selectorReader{object: v.Object()}
	v.NodeSelectors = r.read("nodeSelectors", p.Spec.NodeSelectors)
	invalid := func(reason, format string, args ...any) {
		if v.Unusable == nil {
			found := problem.New(v.Object(), reason, format, args...)
			v.Unusable = &found
			r.problems = append(r.problems, found)
		}
	}
	readAddress := func(field, text string, into *netip.Addr) {
		if text == "" {
			return
		}
		a, ok := plainAddress(text)
		if !ok {
			invalid(ReasonInvalidPeer, "spec.%s: %q is not an IP address", field, text)
			return
		}
		*into = a
	}
	readAddress("peerAddress", p.Spec.PeerAddress, &v.PeerAddress)
	readAddress("sourceAddress", p.Spec.SourceAddress, &v.SourceAddress)
	readAddress("routerID", p.Spec.RouterID, &v.RouterID)
	if wrong := unusablePeer(&p.Spec, v); wrong != "" {
		invalid(ReasonInvalidPeer, "%s", wrong)
	}
	if ref := p.Spec.PasswordSecret; ref != nil {
		found, there := secret(ref.Name)
		md5, reason, why := password(ref.Name, found, there)
		if reason != "" {
			invalid(reason, "spec.passwordSecret: %s", why)
		}
		v.Password = md5
	}
	return v, r.problems
}

// unusablePeer says what keeps the fields of a peer from being used; "" if nothing does.
func unusablePeer(spec *v1beta1.BGPPeerSpec, v *view.BGPPeer) string {
	switch {
	case v.PeerAddress.IsValid() == (v.Interface != ""):
		return "give one of spec.peerAddress and spec.interface: the address of the router, or the interface at whose other end it is"
	case v.Interface != "" && (v.SourceAddress.IsValid() || v.EBGPMultiHop || v.Passive):
		return "spec.interface: leave spec.sourceAddress, spec.ebgpMultiHop and spec.passive out: the session is between link-local addresses"
	case v.MyASN == 0 || v.PeerASN == 0 && spec.DynamicASN != v1beta1.DynamicExternal:
		return "spec.myASN must be given, and one of spec.peerASN and spec.dynamicASN"
	case spec.Password != "" && spec.PasswordSecret != nil:
		return "give one of spec.password and spec.passwordSecret; until then, no session is opened"
	case spec.Password != "" && v.Password == "":
		return "spec.password has nothing but a line break; until it has more, no session is opened"
	case len(v.Password) > maxPassword:
		return fmt.Sprintf("spec.password has %d bytes, and TCP MD5 (RFC 2385) takes at most %d; until it is shorter, no session is opened",
			len(v.Password), maxPassword)
	case spec.DisableMP:
		return "spec.disableMP: write dualStackAddressFamily: false, which is the same"
	case spec.VRF != "":
		return "spec.vrf: there are no sessions in VRFs: have the main routing table reach the router, and leave vrf out"
	case v.RouterID.IsValid() && !v.RouterID.Is4():
		return fmt.Sprintf("spec.routerID: %s is not written as an IPv4 address", v.RouterID)
	}
	return ""
}

// key returns the TCP MD5 key that a password is: without the line break that echo and editors put at its end. No router can be
// given one with it, and FRR, which MetalLB writes its configuration for, reads none.
func key(password string) view.Secret { return view.Secret(strings.TrimRight(password, "\r\n")) }

// password reads the TCP MD5 key from a Secret of this name, if it is there. Without a key there
// is a reason, and words that say why.
func password(name string, s *corev1.Secret, there bool) (found view.Secret, reason, why string) {
	if !there {
		return "", ReasonSecretMissing, fmt.Sprintf("there is no Secret %q in Fairlead's namespace; until there is, no session is opened", name)
	}
	switch found = key(string(s.Data[corev1.BasicAuthPasswordKey])); {
	case len(found) == 0:
		return "", ReasonSecretInvalid, fmt.Sprintf("Secret %q has nothing under the key %q; until it has, no session is opened", name, corev1.BasicAuthPasswordKey)
	case len(found) > maxPassword:
		return "", ReasonSecretInvalid, fmt.Sprintf("the password in Secret %q has %d bytes, and TCP MD5 (RFC 2385) takes at most %d; "+
			"until it is shorter, no session is opened", name, len(found), maxPassword)
	default:
		return found, "", ""
	}
}

// BGPSession reads a BGPSession.
func BGPSession(s *v1beta1.BGPSession) *view.BGPSession {
	v := &view.BGPSession{Node: s.Spec.Node, Peer: s.Spec.Peer, Established: s.Status.State == v1beta1.SessionEstablished, Changed: s.Status.Since.Time}
	if !v.Established {
		v.LastError = s.Status.LastError
	}
	return v
}

// Timers of a BFDProfile that says nothing; the schema has the same defaults.
const (
	defaultBFDInterval   = 300 // milliseconds
	defaultBFDMultiplier = 3
)

// BFDProfile reads a BFDProfile. Nothing can be wrong with one that the schema let in.
func BFDProfile(p *v1beta1.BFDProfile) (*view.BFDProfile, []problem.Problem) {
	milliseconds := func(n int32) time.Duration {
		return time.Duration(cmp.Or(n, defaultBFDInterval)) * time.Millisecond
	}
	return &view.BFDProfile{
		Name:     p.Name,
		Transmit: milliseconds(p.Spec.TransmitInterval), Receive: milliseconds(p.Spec.ReceiveInterval),
		Multiplier: uint8(cmp.Or(p.Spec.DetectMultiplier, defaultBFDMultiplier)),
		Passive:    p.Spec.PassiveMode,
		MinTTL:     uint8(p.Spec.MinimumTTL),

		EchoInterval: p.Spec.EchoInterval != 0,
	}, nil
}

func duration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// selectorReader compiles the label selectors of one object.
type selectorReader struct {
	object   problem.Object
	problems []problem.Problem
}

// read compiles one field's selectors.
func (r *selectorReader) read(field string, selectors []metav1.LabelSelector) []view.Selector {
	var compiled []view.Selector
	for i := range selectors {
		compiled = append(compiled, r.compile(fmt.Sprintf("%s[%d]", field, i), &selectors[i]))
	}
	return compiled
}

// compile compiles one selector. One that cannot be read matches nothing: a typing error
// must not announce to all.
func (r *selectorReader) compile(field string, text *metav1.LabelSelector) view.Selector {
	s, err := metav1.LabelSelectorAsSelector(text)
	if err != nil {
		r.problems = append(r.problems, problem.New(r.object, ReasonInvalidSelector, "spec.%s: %v", field, err))
		s = labels.Nothing()
	}
	return selector{s}
}

// selector lets a Kubernetes selector read plain maps.
type selector struct{ labels.Selector }

func (s selector) Matches(of map[string]string) bool { return s.Selector.Matches(labels.Set(of)) }
