// Package wake has somebody who works look again: whatever happens while he is at it is one reason,
// and whoever has the reason does not wait.
package wake

// Fill puts a reason into a slot, a channel with room for one, unless there is one already.
func Fill(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}
