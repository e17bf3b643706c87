package sysctl

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// online counts the CPUs of the machine. Those that this process may use are fewer where
// the kubelet gives CPUs to containers of their own.
func online() (int, error) {
	const file = "/sys/devices/system/cpu/online"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	cpus, err := count(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return cpus, nil
}

// count counts what the kernel lists as numbers and ranges: 0-3,8 are five.
func count(list string) (int, error) {
	found := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is no list of CPUs: %w", list, err)
		}
		last, err := strconv.ParseUint(to, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is no list of CPUs: %w", list, err)
		}
		if last < first {
			return 0, fmt.Errorf("%q is no list of CPUs: %s ends before it begins", list, part)
		}
		found += int(last-first) + 1
	}
	return found, nil
}
