package fromkube

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

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

// Pool reads an IPAddressPool. A range that cannot be read is a problem and is
// left out; the others stay, since Services may hold addresses of them.
func Pool(p *v1beta1.IPAddressPool) (*view.Pool, []problem.Problem) {
	v := &view.Pool{
		Name:          p.Name,
		Created:       p.CreationTimestamp.Time,
		Labels:        p.Labels,
		AutoAssign:    value(p.Spec.AutoAssign, true),
		AvoidBuggyIPs: p.Spec.AvoidBuggyIPs,
		Disabled:      p.Spec.Disabled,
		Priority:      p.Spec.Priority,
		CoolDown:      duration(p.Spec.CoolDown, 0),

		MaxPerNamespace: int(value(p.Spec.MaxPerNamespace, 0)),
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
	var ranges netipx.IPSetBuilder
	for i, text := range p.Spec.Addresses {
		r, err := addr.ParseRange(text)
		if err != nil {
			problems = append(problems, problem.New(v.Object(), ReasonInvalidAddresses, "spec.addresses[%d]: %v", i, err))
			continue
		}
		ranges.AddRange(r)
	}
	whole, err := ranges.IPSet()
	if err != nil {
		return v, problems // only invalid ranges err, and none was added
	}
	for _, p := range addr.Unreachable() {
		if whole.OverlapsPrefix(p) {
			problems = append(problems, problem.New(v.Object(), ReasonUnusableAddresses,
				"spec.addresses: no Service can have addresses of %s; they are left out", p))
			ranges.RemovePrefix(p)
		}
	}
	if usable, err := ranges.IPSet(); err == nil {
		v.Ranges = usable.Ranges()
	}
	return v, problems
}

// former reads the ranges in the status of a pool. They are ours; what is none was
// written by somebody else, and is left out.
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
	return &view.L2Advertisement{
		Name:             a.Name,
		Pools:            view.PoolMatch{Names: a.Spec.IPAddressPools, Selectors: r.read("ipAddressPoolSelectors", a.Spec.IPAddressPoolSelectors)},
		ServiceSelectors: r.read("serviceSelectors", a.Spec.ServiceSelectors),
		NodeSelectors:    r.read("nodeSelectors", a.Spec.NodeSelectors),
		Interfaces:       a.Spec.Interfaces,
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
		LocalPref:        uint32(a.Spec.LocalPref),
	}
	for i, text := range a.Spec.Communities {
		community, err := parseCommunity(text)
		if err != nil {
			r.problems = append(r.problems, problem.New(r.object, ReasonInvalidCommunity, "spec.communities[%d]: %v", i, err))
			continue
		}
		v.Communities = append(v.Communities, community)
	}
	slices.Sort(v.Communities)
	return v, r.problems
}

// parseCommunity reads "asn:value" (RFC 1997), both halves 0 to 65535.
func parseCommunity(text string) (uint32, error) {
	high, low, ok := strings.Cut(text, ":")
	h, errHigh := strconv.ParseUint(high, 10, 16)
	l, errLow := strconv.ParseUint(low, 10, 16)
	if !ok || errHigh != nil || errLow != nil {
		return 0, fmt.Errorf("%q is no community; write asn:value, each 0 to 65535", text)
	}
	return uint32(h)<<16 | uint32(l), nil
}

// BGPPeer reads a BGPPeer; secret finds a Secret of our own namespace by name. A
// peer that names a Secret which is missing or holds no password is unusable: no
// session is better than one without the password that was asked for.
func BGPPeer(p *v1beta1.BGPPeer, secret func(name string) (*corev1.Secret, bool)) (*view.BGPPeer, []problem.Problem) {
	v := &view.BGPPeer{
		Name:            p.Name,
		UID:             string(p.UID),
		MyASN:           uint32(p.Spec.MyASN),
		PeerASN:         uint32(p.Spec.PeerASN),
		PeerPort:        uint16(p.Spec.PeerPort),
		HoldTime:        duration(p.Spec.HoldTime, defaultHoldTime),
		ConnectTime:     duration(p.Spec.ConnectTime, defaultConnectTime),
		EBGPMultiHop:    p.Spec.EBGPMultiHop,
		GracefulRestart: value(p.Spec.EnableGracefulRestart, true),
	}
	if v.PeerPort == 0 {
		v.PeerPort = defaultPeerPort
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
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() || a.Zone() != "" {
			invalid(ReasonInvalidPeer, "spec.%s: %q is not an IP address", field, text)
			return
		}
		*into = a
	}
	readAddress("peerAddress", p.Spec.PeerAddress, &v.PeerAddress)
	readAddress("sourceAddress", p.Spec.SourceAddress, &v.SourceAddress)
	readAddress("routerID", p.Spec.RouterID, &v.RouterID)
	switch {
	case !v.PeerAddress.IsValid():
		invalid(ReasonInvalidPeer, "spec.peerAddress is empty: name the router's address")
	case v.MyASN == 0 || v.PeerASN == 0:
		invalid(ReasonInvalidPeer, "spec.myASN and spec.peerASN must both be given")
	case v.RouterID.IsValid() && !v.RouterID.Is4():
		invalid(ReasonInvalidPeer, "spec.routerID: %s is not written as an IPv4 address", v.RouterID)
	}
	if ref := p.Spec.PasswordSecret; ref != nil {
		s, ok := secret(ref.Name)
		switch {
		case !ok:
			invalid(ReasonSecretMissing, "spec.passwordSecret: there is no Secret %q in Fairlead's namespace; "+
				"until there is, no session is opened", ref.Name)
		case len(s.Data[corev1.BasicAuthPasswordKey]) == 0:
			invalid(ReasonSecretInvalid, "spec.passwordSecret: Secret %q has nothing under the key %q; "+
				"until it has, no session is opened", ref.Name, corev1.BasicAuthPasswordKey)
		default:
			v.Password = view.Secret(s.Data[corev1.BasicAuthPasswordKey])
		}
	}
	return v, r.problems
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

// read compiles one field's selectors. One that cannot be read matches nothing: a
// typing error must not announce to everybody.
func (r *selectorReader) read(field string, selectors []metav1.LabelSelector) []view.Selector {
	var compiled []view.Selector
	for i := range selectors {
		s, err := metav1.LabelSelectorAsSelector(&selectors[i])
		if err != nil {
			r.problems = append(r.problems, problem.New(r.object, ReasonInvalidSelector, "spec.%s[%d]: %v", field, i, err))
			s = labels.Nothing()
		}
		compiled = append(compiled, selector{s})
	}
	return compiled
}

// selector lets a Kubernetes selector read plain maps.
type selector struct{ labels.Selector }

func (s selector) Matches(of map[string]string) bool { return s.Selector.Matches(labels.Set(of)) }
