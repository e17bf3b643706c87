package netlab

import (
	"os"
	"time"
)

// emulated tells that the processor is emulated, as e2e/kernels has it.
const emulated = "FAIRLEAD_TEST_EMULATED"

// Emulated reports whether the processor is emulated, in a kernel that has what the host's may lack.
func Emulated() bool { return os.Getenv(emulated) != "" }

// Patience returns the time itself, and ten times as long on an emulated processor.
func Patience(t time.Duration) time.Duration {
	if Emulated() {
		return 10 * t
	}
	return t
}
