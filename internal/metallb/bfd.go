package metallb

import "fairlead.dev/fairlead/api/v1beta1"

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
