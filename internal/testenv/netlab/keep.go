package netlab

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"
)

// State is a shell script that prints what a network namespace has: addresses, routes,
// neighbours, rules, flows and sockets.
const State = `for command in "ip -s address" "ip route show table all" "ip -6 route show table all" "ip neighbour" \
	"nft list ruleset" iptables-nft-save ip6tables-nft-save iptables-legacy-save ip6tables-legacy-save \
	"ipset list" "conntrack -L" "ss -anp"; do
	echo "# $command"
	$command 2>&1
done`

// KeepState keeps the state of the present namespace with what the test has to say, if it has
// failed. It is for a test's cleanup, while the namespace is as it was. Without go test -artifacts
// the folder for it may be gone by then, and nothing is kept.
func KeepState(t testing.TB, name string) {
	if !t.Failed() {
		return
	}
	text, _ := exec.Command("sh", "-c", State).CombinedOutput() // fails with its last command, and is kept all the same
	file, err := os.CreateTemp(t.ArtifactDir(), name+"-*.txt")
	if err == nil {
		_, err = file.Write(text)
		err = errors.Join(err, file.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Log(err)
	}
}
