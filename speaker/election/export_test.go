package election

// Capacity is how many of so many addresses one of so many nodes takes.
func Capacity(node string, addresses, nodes int) int {
	return capacity(phaseOf(node), addresses, nodes)
}

// Held counts what a Spread remembers.
func (s *Spread) Held() int { return len(s.groups) + len(s.of) + len(s.changed) }
