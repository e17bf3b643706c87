package scenarios

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The chart asks for a seccomp filter, few capabilities, a root file system that is read-only and, for controllers, a user other
// than root. What holds is what the kernel says of the processes: under these every scenario runs.
func TestTheKernelConfinesThePods(t *testing.T) {
	c := cluster(t)
	const ask = `for pid in $(pgrep -f '^/usr/local/bin/(speaker|controller) '); do
		tr '\0' ' ' </proc/$pid/cmdline | cut -d ' ' -f 1,2 | sed 's/ --.*//; s,.*/,,'
		grep -E '^(Uid|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/$pid/status
		awk '$5 == "/" { split($6, options, ","); print "root", options[1] }' /proc/$pid/mountinfo
	done`
	confined := func(user, capabilities string) string {
		return " Uid:" + strings.Repeat(" "+user, 4) + " CapInh: 0000000000000000 CapPrm: " + capabilities + " CapEff: " + capabilities +
			" CapBnd: " + capabilities + " CapAmb: 0000000000000000 NoNewPrivs: 1 Seccomp: 2 root ro"
	}
	// NET_ADMIN is bit 12, NET_RAW 13, and SYS_NICE 23.
	want := map[string]int{
		"speaker" + confined("0", "0000000000003000"): len(c.Nodes()), "speaker pulse" + confined("0", "0000000000803000"): len(c.Nodes()),
		"controller" + confined("65532", "0000000000000000"): 2,
	}
	got := map[string]int{}
	for _, n := range c.Nodes() {
		out, err := n.Exec(within(t, soon), "sh", "-c", ask)
		if err != nil {
			t.Fatal(err)
		}
		for process := range strings.SplitAfterSeq(strings.Join(strings.Fields(out), " "), "root ro") {
			if process = strings.TrimSpace(process); process != "" {
				got[process]++
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("processes of the pods (-want +got):\n%s", diff)
	}
}
