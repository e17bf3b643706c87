package election

import (
	"crypto/sha256"
	"encoding/binary"
)

// Capacities are on a ladder of steps, each half as high again as the one before, so that a
// node's capacity changes rarely: when there are half as many addresses more, and not with
// each. The first step is 8 to 12 addresses, for each node another one by its name, so that
// the nodes do not all go up at once, which would move many addresses at one moment. Fewer
// are spread by the hash alone: to have them more even is not worth one that moves.
const (
	ladderUnit   = 1 << 10 // fractions of an address, since the steps are none of whole ones
	ladderBottom = 8 * ladderUnit
	ladderPhases = ladderBottom / 2
)

// capacity is how many of so many addresses a node takes, if it is one of so many nodes: the
// lowest of its steps that is at least five quarters of the mean. Together they have room
// for all. It reckons in whole numbers, which are the same on every kind of machine.
func capacity(phase, addresses, nodes int) int {
	step := ladderBottom + phase
	for (step/ladderUnit)*4*nodes < 5*addresses {
		step += step / 2
	}
	return step / ladderUnit
}

// phaseOf is where between two steps of the ladder those of a node are.
func phaseOf(node string) int {
	digest := sha256.Sum256([]byte("capacity of " + node))
	return int(binary.BigEndian.Uint32(digest[:]) % ladderPhases)
}
