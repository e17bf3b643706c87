package bgp

import (
	"bytes"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// TestOnlyTheFirstSessionIsOneOfARestart: in the flags alone, wherever the capability is.
func TestOnlyTheFirstSessionIsOneOfARestart(t *testing.T) {
	t.Parallel()
	restart := packet.NewCapGracefulRestart(true, false, 120, []*packet.CapGracefulRestartTuple{packet.NewCapGracefulRestartTuple(packet.RF_IPv4_UC, true)})
	four := packet.NewCapFourOctetASNumber(routerASN)
	for name, parameters := range map[string][]packet.OptionParameterInterface{
		"alone":                 {packet.NewOptionParameterCapability([]packet.ParameterCapabilityInterface{restart})},
		"behind another":        {packet.NewOptionParameterCapability([]packet.ParameterCapabilityInterface{four, restart})},
		"in a parameter of its": {packet.NewOptionParameterCapability([]packet.ParameterCapabilityInterface{four}), packet.NewOptionParameterCapability([]packet.ParameterCapabilityInterface{restart, four})},
		"nowhere":               {packet.NewOptionParameterCapability([]packet.ParameterCapabilityInterface{four})},
		"without parameters":    nil,
	} {
		raw, err := packet.NewBGPOpenMessage(nodeASN, 90, "192.0.2.1", parameters).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		flags := []byte{byte(packet.BGP_CAP_GRACEFUL_RESTART), 6, 0x80, 120}
		want := bytes.Replace(raw, flags, []byte{flags[0], flags[1], 0, flags[3]}, 1)
		if clearRestartState(raw); !bytes.Equal(raw, want) {
			t.Errorf("%s: %x, want %x", name, raw, want)
		}
	}
}

// FuzzClearRestartState: it changes one bit at most, and reads nothing beyond the end.
func FuzzClearRestartState(f *testing.F) {
	f.Add(message(packet.BGP_MSG_OPEN, 4, 0xfc, 0, 0, 90, 192, 0, 2, 1, 8, 2, 6, 64, 6, 0x80, 120, 0, 1))
	f.Add(message(packet.BGP_MSG_OPEN, 4, 0xfc, 0, 0, 90, 192, 0, 2, 1, 4, 2, 2, 64, 0))
	f.Fuzz(func(t *testing.T, raw []byte) {
		was := bytes.Clone(raw)
		clearRestartState(raw)
		for i := range raw {
			if raw[i] != was[i] && raw[i] != was[i]&^restartState {
				t.Fatalf("octet %d of %x is %x", i, was, raw[i])
			}
		}
	})
}
