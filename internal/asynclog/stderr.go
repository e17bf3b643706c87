package asynclog

import (
	"os"

	"golang.org/x/sys/unix"
)

// Stderr returns standard error for a Writer. What is written to a pipe besides it, by LastWords and by the runtime
// when a program panics, does not wait for the reader any more: what finds no room is lost, and the program ends.
func Stderr() *os.File {
	var stat unix.Stat_t
	if err := unix.Fstat(unix.Stderr, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return os.Stderr // a file, or a terminal, which is its shell's as well
	}
	own, err := unix.FcntlInt(uintptr(unix.Stderr), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.Stderr
	}
	if err := unix.SetNonblock(own, true); err != nil {
		_ = unix.Close(own)
		return os.Stderr
	}
	return os.NewFile(uintptr(own), "stderr") // its writes wait in Go's poller
}

// LastWords writes a line to standard error, once.
func LastWords(line string) { _, _ = unix.Write(unix.Stderr, []byte(line+"\n")) }
