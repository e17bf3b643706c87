package shutdown

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// The tables of TCP sockets of this network namespace, which is the node's. That of IPv6 comes first, since a
// kubelet listens on both families by one socket there.
const (
	tcp6 = "/proc/net/tcp6"
	tcp4 = "/proc/net/tcp"
)

// listens reports whether a process listens on a TCP port of the node. The error is that of a table that cannot
// be read.
func listens(port uint16) (bool, error) {
	for _, table := range []string{tcp6, tcp4} {
		file, err := os.Open(table)
		if errors.Is(err, fs.ErrNotExist) && table == tcp6 {
			continue // a kernel without IPv6
		}
		if err != nil {
			return false, err
		}
		found, err := listenerIn(bufio.NewScanner(file), port)
		_ = file.Close()
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// listenerIn reports whether a table has a socket that listens on the port. The error is that of reading it. The
// kernel writes listening sockets first: of a table with a listener on the port, little is read.
func listenerIn(table *bufio.Scanner, port uint16) (bool, error) {
	const localField, stateField, listen = 1, 3, "0A"
	suffix := fmt.Sprintf(":%04X", port)
	for table.Scan() {
		fields := strings.Fields(table.Text())
		if len(fields) > stateField && fields[stateField] == listen && strings.HasSuffix(fields[localField], suffix) {
			return true, nil
		}
	}
	return false, table.Err()
}
