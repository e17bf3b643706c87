package netlab

import (
	"os"
	"time"
)

// emulated tells that the processor is emulated, as e2e/kernels has it.
const emulated = "FAIRLEAD_TEST_EMULATED"

// Patience returns the time itself, and ten times as long on an emulated processor.
func Patience(t time.Duration) time.Duration {
	if os.Getenv(emulated) != "" {
		return 10 * t
	}
	return t
}
