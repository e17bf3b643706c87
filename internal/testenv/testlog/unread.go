package testlog

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Unread is a pipe that is full and that nothing reads, for the standard error of a program: a write to it waits
// until the test ends. So does a program's log while the container runtime stands still.
func Unread(t testing.TB) *os.File {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	read, write := os.NewFile(uintptr(ends[0]), "read"), os.NewFile(uintptr(ends[1]), "unread")
	t.Cleanup(func() { _ = errors.Join(read.Close(), write.Close()) })
	for text := make([]byte, 4096); ; {
		if _, err := unix.Write(ends[1], text); errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetNonblock(ends[1], false); err != nil {
		t.Fatal(err)
	}
	return write
}
