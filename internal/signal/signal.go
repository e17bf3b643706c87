// Package signal wakes a goroutine without waiting for it: all signals that are sent while it
// works are one.
package signal

// Send fills a channel with room for one, unless it is full.
func Send(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}
