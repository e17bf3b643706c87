package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/links"
)

// onPage is the configuration of a router in docs/guide/routers.md, with the network and the AS numbers of these tests.
func onPage(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/guide/routers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "\n```"+language+"\n")
	if !found {
		t.Fatalf("the page has nothing in %s", language)
	}
	text, _, _ := strings.Cut(rest, "```")
	return strings.NewReplacer(
		"192.0.2.0/24", "10.98.0.0/24", "64512", strconv.Itoa(routerASN), "64500", strconv.Itoa(nodeASN),
	).Replace(text)
}

// talk has two nodes announce an address of the page's pool and one that is not: the router balances the first
// over both, and takes no other.
func talk(t *testing.T, r *router) {
	t.Helper()
	speaker := newSpeaker(t)
	sessions, _ := runBFD(t)
	want, paths := map[string]desired.Session{}, map[string]desired.BFD{}
	for _, node := range []netip.Addr{node4, node4b} {
		id := toRouter(node)
		id.NextHop4 = node
		want[node.String()] = desired.Session{Identity: id, Routes: prefixes("203.0.113.7/32", vip)}
		paths[node.String()] = bfdTo(id, false)
	}
	have, err := links.Read()
	if err != nil {
		t.Fatal(err)
	}
	sessions.Set("that of the cluster", paths, have)
	mustApply(t, speaker, want)
	r.waitForKernel("203.0.113.7/32", node4.String(), node4b.String())
	if taken := r.kernel(vip); len(taken) > 0 {
		t.Errorf("the router took %s, which is of no pool, from %v", vip, taken)
	}
}

// TestFRROnThePage runs FRR as docs/guide/routers.md has it, with BFD up.
func TestFRROnThePage(t *testing.T) {
	r := newFRR(t)
	for _, daemon := range []string{"zebra", "bgpd"} {
		r.start(daemon, "")
		r.waitFor(daemon, func() bool { return r.vty(daemon, "show version") != "" })
	}
	r.withBFD(patientBFD())
	file := filepath.Join(r.dir, "page.conf")
	if err := os.WriteFile(file, []byte(onPage(t, "frr")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/usr/bin/vtysh", "--vty_socket", r.dir, "-f", file).CombinedOutput(); err != nil || strings.Contains(string(out), "%") {
		t.Fatalf("FRR refuses the page: %v\n%s", err, out)
	}
	talk(t, r)
	for _, node := range []netip.Addr{node4, node4b} {
		r.waitFor(fmt.Sprintf("BFD with %v", node), func() bool { return r.bfd(node).Status == "up" })
	}
}

// TestBIRDOnThePage does so with BIRD.
func TestBIRDOnThePage(t *testing.T) {
	b := newBIRD(t)
	config := filepath.Join(b.dir, "bird.conf")
	if err := os.WriteFile(config, []byte("router id 10.98.0.1;\n"+onPage(t, "bird")), 0o644); err != nil {
		t.Fatal(err)
	}
	b.run(config)
	talk(t, b.router)
	for _, node := range []netip.Addr{node4, node4b} {
		up := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(node.String()) + `\s+\S+\s+Up\s`)
		b.waitFor(fmt.Sprintf("BFD with %v", node), func() bool { return up.MatchString(b.ask("show bfd sessions")) })
	}
}
