package bgp

import packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

// restartState is the bit R in the flags of the graceful restart capability (RFC 4724, 3).
const restartState = 0x80

// clearRestartState clears the bit R in an OPEN of our own, in place. GoBGP sets it wherever it sets the bit F, without
// which routers drop the routes that they kept. But R also has a router not wait for our End-of-RIB: one that
// restarts itself would then program its kernel before it has heard us, and lose our routes for a moment. So R
// is for the first session of a process alone.
func clearRestartState(open []byte) {
	const parameters = headerLength + openFixed + 1
	if len(open) < parameters {
		return
	}
	for b := open[parameters:]; len(b) > 0; {
		value, rest, ok := cut(b[1:], 1)
		if !ok {
			return
		}
		for kind := b[0]; kind == packet.BGP_OPT_CAPABILITY && len(value) > 0; {
			code := packet.BGPCapabilityCode(value[0])
			var capability []byte
			if capability, value, ok = cut(value[1:], 1); !ok {
				return
			}
			if code == packet.BGP_CAP_GRACEFUL_RESTART && len(capability) > 0 {
				capability[0] &^= restartState
			}
		}
		b = rest
	}
}
