package bgp

import (
	"math"
	"net/netip"
	"slices"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"fairlead.dev/fairlead/speaker/desired"
)

// gracefulShutdown is the community of routes that are about to go (RFC 8326).
const gracefulShutdown = 0xffff0000

// renderPath returns a path as GoBGP takes it, which adds our own ASN for an eBGP peer, and a local preference
// of 100 for an iBGP peer. The error is that of GoBGP's encoding.
func renderPath(prefix netip.Prefix, r route, id desired.Identity) (*api.Path, error) {
	prefix = prefix.Masked()
	attributes := []packet.PathAttributeInterface{packet.NewPathAttributeOrigin(packet.BGP_ORIGIN_ATTR_TYPE_IGP)}
	var nlri packet.AddrPrefixInterface
	if prefix.Addr().Is4() {
		nlri = packet.NewIPAddrPrefix(uint8(prefix.Bits()), prefix.Addr().String())
		attributes = append(attributes, packet.NewPathAttributeNextHop(r.nextHop.String()))
	} else {
		nlri = packet.NewIPv6AddrPrefix(uint8(prefix.Bits()), prefix.Addr().String())
		attributes = append(attributes, packet.NewPathAttributeMpReachNLRI(r.nextHop.String(), []packet.AddrPrefixInterface{nlri}))
	}
	if r.draining && !slices.Contains(r.attrs.Communities, gracefulShutdown) {
		r.attrs.Communities = append(slices.Clone(r.attrs.Communities), gracefulShutdown)
	}
	attributes = append(attributes, preferences(r, internal(id), id.MyASN)...)
	if len(r.attrs.Communities) != 0 {
		attributes = append(attributes, packet.NewPathAttributeCommunities(r.attrs.Communities))
	}
	if r.attrs.Bandwidth != 0 {
		attributes = append(attributes, packet.NewPathAttributeExtendedCommunities([]packet.ExtendedCommunityInterface{linkBandwidth(r.attrs.Bandwidth, id.MyASN)}))
	}
	if len(r.attrs.LargeCommunities) != 0 {
		var large []*packet.LargeCommunity
		for _, c := range r.attrs.LargeCommunities {
			large = append(large, packet.NewLargeCommunity(c.Global, c.Local1, c.Local2))
		}
		attributes = append(attributes, packet.NewPathAttributeLargeCommunities(large))
	}
	return apiutil.NewPath(nlri, false, attributes, time.Now())
}

// linkBandwidth returns the extended community of draft-ietf-idr-link-bandwidth for so many Mbit/s. It counts bytes
// a second, and has AS_TRANS for AS numbers of more than 16 bits.
func linkBandwidth(mbits, asn uint32) *packet.LinkBandwidthExtended {
	if asn > math.MaxUint16 {
		asn = packet.AS_TRANS
	}
	return packet.NewLinkBandwidthExtended(uint16(asn), float32(mbits)*1e6/8)
}

// preferences are the attributes by which routers choose among paths. A local preference is for iBGP peers alone
// (RFC 4271, 5.1.5), and prepending for eBGP peers: a router refuses a path with its own ASN.
//
// A draining route has the lowest local preference. Routers of another AS give it that themselves, by its
// community (RFC 8326, 4.1).
func preferences(r route, internal bool, asn uint32) []packet.PathAttributeInterface {
	var attributes []packet.PathAttributeInterface
	attrs := r.attrs
	switch {
	case internal && r.draining:
		attributes = append(attributes, packet.NewPathAttributeLocalPref(0))
	case internal && attrs.LocalPref != 0:
		attributes = append(attributes, packet.NewPathAttributeLocalPref(attrs.LocalPref))
	}
	if attrs.MED != nil {
		attributes = append(attributes, packet.NewPathAttributeMultiExitDisc(*attrs.MED))
	}
	if !internal && attrs.Prepend > 0 {
		segment := packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, slices.Repeat([]uint32{asn}, attrs.Prepend))
		attributes = append(attributes, packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{segment}))
	}
	return attributes
}
