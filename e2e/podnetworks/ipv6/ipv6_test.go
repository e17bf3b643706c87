// Package ipv6 tries a cluster whose nodes, pods, Services and API server have no address of IPv4.
package ipv6

import (
	"errors"
	"os/exec"
	"regexp"
	"testing"

	"fairlead.dev/fairlead/e2e/lab"
)

// TestMainScenariosOverIPv6Alone runs the row of such a cluster of the table of pod networks, as far as scenarios go.
func TestMainScenariosOverIPv6Alone(t *testing.T) {
	if absent := errors.Join(append(lab.Missing(), lab.Built(lab.Helm3))...); absent != nil {
		t.Skip(absent)
	}
	root, err := lab.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	row := exec.CommandContext(t.Context(), "go", "run", "./e2e/podnetworks", "-networks="+string(lab.BridgeIPv6), "-suites=^scenarios$")
	row.Dir = root
	out, err := row.CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^\| bridge-ipv6 \| \d+ passed \|`).Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
}
