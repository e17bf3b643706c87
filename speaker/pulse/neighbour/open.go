package neighbour

import (
	"fmt"
	"net"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
)

// Open gives a Protocol a packet socket on an interface, which reads the whole frames of an EtherType
// that pass the filter.
func Open(i Interface, etherType int, filter []bpf.Instruction) (*packet.Conn, error) {
	program, err := bpf.Assemble(filter)
	if err != nil {
		return nil, fmt.Errorf("assemble the filter: %w", err)
	}
	return packet.Listen(&net.Interface{Index: i.Index, Name: i.Name}, packet.Raw, etherType, &packet.Config{Filter: program})
}
