// Package memlimit keeps a process within the memory that its container may use.
package memlimit

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// Variable is the environment variable that has the container's limit in bytes.
const Variable = "MEMORY_LIMIT"

// Apply has garbage collected the more often, the nearer what Go uses comes to three quarters of the container's limit, unless
// there is none or GOMEMLIMIT says otherwise. The rest is for what the kernel counts beside: the programs that
// are run, the rules in the kernel, and buffers. The error names the variable.
func Apply() error {
	text := os.Getenv(Variable)
	if text == "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("%s is %q: set it to a number of bytes, or not at all", Variable, text)
	}
	debug.SetMemoryLimit(limit / 4 * 3)
	return nil
}
