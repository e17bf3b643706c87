package owner

import (
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/hello"
	"fairlead.dev/fairlead/speaker/pulse/neighbour"
)

// TestWhoseFrameItIs: the Ethernet source and the sender of ARP and NDP have to be of one node.
func TestWhoseFrameItIs(t *testing.T) {
	second := neighbour.MAC{2, 0, 0, 0, 0, 21}
	n := stations{complete: true, known: map[hello.Station]knownStation{}}
	for _, m := range []neighbour.MAC{colleague, second} {
		n.known[hello.Station(m)] = knownStation{"b", noon.Add(time.Hour)}
	}
	for name, test := range map[string]struct{ station, source, want neighbour.MAC }{
		"of a node":                  {colleague, neighbour.MAC{}, colleague},
		"of a stranger":              {stranger, neighbour.MAC{}, stranger},
		"of a node, by another card": {colleague, second, colleague},
		"a stranger tells of a node": {colleague, stranger, stranger},
		"of a virtual router":        {stranger, neighbour.MAC{2, 0, 0, 0, 9, 8}, stranger},
		"a node tells of a stranger": {stranger, colleague, stranger},
	} {
		claim := says(vip4, test.station)
		claim.Source = test.source
		if got := n.attribute(claim).Station; got != test.want {
			t.Errorf("%s: it is of %v, want %v", name, got, test.want)
		}
	}
}
