package links

// Shrink leaves room for so few bytes of notices that a burst of them overflows it.
func (w *Watcher) Shrink(bytes int) { w.buffer = bytes }
