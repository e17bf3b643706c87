package nodechecks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ipv4Dir is where the kernel says which ports it gives to connections of the node's own processes, in both families.
const ipv4Dir = "/proc/sys/net/ipv4"

// localPorts returns what reports whether the kernel may give a port to such a connection, with the range of these as the
// kernel says it. The error is that of reading the settings below dir.
func localPorts(dir string) (given func(port uint16) bool, span string, err error) {
	all, unread := os.ReadFile(filepath.Join(dir, "ip_local_port_range"))
	reserved, unknown := os.ReadFile(filepath.Join(dir, "ip_local_reserved_ports"))
	if err := errors.Join(unread, unknown); err != nil {
		return nil, "", err
	}
	span = strings.Join(strings.Fields(string(all)), " ")
	within, err := portRange(strings.ReplaceAll(span, " ", "-"))
	if err != nil {
		return nil, "", fmt.Errorf("net.ipv4.ip_local_port_range: %w", err)
	}
	var kept []func(uint16) bool
	for text := range strings.SplitSeq(strings.TrimSpace(string(reserved)), ",") {
		if text == "" {
			continue
		}
		some, err := portRange(text)
		if err != nil {
			return nil, "", fmt.Errorf("net.ipv4.ip_local_reserved_ports: %w", err)
		}
		kept = append(kept, some)
	}
	return func(port uint16) bool {
		for _, has := range kept {
			if has(port) {
				return false
			}
		}
		return within(port)
	}, span, nil
}

// portRange reads "first-last", or "one".
func portRange(text string) (has func(uint16) bool, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := strconv.ParseUint(from, 10, 16)
	if err != nil {
		return nil, err
	}
	last, err := strconv.ParseUint(to, 10, 16)
	if err != nil {
		return nil, err
	}
	return func(port uint16) bool { return uint64(port) >= first && uint64(port) <= last }, nil
}
