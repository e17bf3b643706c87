package bgp

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// die ends a node's speaker with SIGKILL: die [2]
func (s *scene) die(args []string) {
	n, _, _ := s.number(args)
	n.kill()
}

// upgrade ends it as an upgrade does: it closes its connections without a word.
func (s *scene) upgrade(args []string) {
	n, _, _ := s.number(args)
	n.end("silent")
}

// leave ends it for good, as an uninstall does.
func (s *scene) leave(args []string) {
	n, _, _ := s.number(args)
	n.end("planned")
}

// drain asks the router to prefer others (RFC 8326) to all routes of a node, until its speaker ends, or to some,
// as when the node or a BGPPeer is taken out: drain [2] [VIP]
func (s *scene) drain(args []string) {
	n, _, args := s.number(args)
	if len(args) == 0 {
		n.must(order{Drain: time.Millisecond})
		return
	}
	n.change(func() {
		s.each(args, func(args []string) {
			for _, arg := range args {
				prefix := netip.MustParsePrefix(arg)
				n.leaving[prefix] = n.routes[prefix]
				delete(n.routes, prefix)
			}
		})
	})
}

func (s *scene) mend([]string) { s.near().must("nft", "delete table netdev cut") }

// port changes one end of the cable: port node|router mac=ADDRESS, port node gone, port node new
func (s *scene) port(args []string) {
	if len(args) != 2 {
		s.fail("want: port node|router mac=ADDRESS|gone|new")
	}
	at := map[string][]string{"node": {"ip", "link"}, "router": {"ip", "-n", s.near().ns, "link"}}[args[0]]
	end := map[string]string{"node": cable, "router": "tonode"}[args[0]]
	ip := func(words ...string) { s.near().must(slices.Concat(at, words)...) }
	mac, changed := strings.CutPrefix(args[1], "mac=")
	switch {
	case at == nil:
		s.fail("the cable has no end at %q", args[0])
	case changed:
		for _, what := range [][]string{{"down"}, {"address", mac}, {"up"}} {
			ip(append([]string{"set", end}, what...)...)
		}
	case args[1] == "gone":
		ip("del", end)
	case args[1] == "new":
		ip("add", end, "type", "veth", "peer", "name", "tonode", "netns", s.near().ns)
		ip("set", end, "up")
		s.near().must("ip", "-n", s.near().ns, "link", "set", "tonode", "up")
	default:
		s.fail("an end of the cable has no %q", args[1])
	}
}

// watch records what the router's kernel loses from now on, for lost, and what memory node 1 has, for memory.
func (s *scene) watch([]string) {
	s.lost = s.near().watchKernel()
	if process := s.nodes[0].process; process != nil {
		if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(process.Process.Pid), "clear_refs"), []byte("5"), 0); err != nil { // begins to look for the peak anew
			s.fail("%v", err)
		}
		s.had = s.resident("VmRSS")
	}
}

// losses compares what was lost since watch: lost none, or lost VIP2
func (s *scene) losses(args []string) {
	if s.lost == nil {
		s.fail("watch comes first")
	}
	var want []netip.Prefix
	if !slices.Equal(args, []string{"none"}) {
		s.each(args, func(args []string) {
			for _, arg := range args {
				want = append(want, netip.MustParsePrefix(arg))
			}
		})
	}
	gone := s.lost()
	s.lost = nil
	slices.SortFunc(gone, netip.Prefix.Compare)
	slices.SortFunc(want, netip.Prefix.Compare)
	if !slices.Equal(gone, want) {
		s.fail("the router's kernel lost %v, and should have lost %v", gone, want)
	}
}

// memory holds that node 1 never had more than so many MiB more than when watch was said: memory 32
func (s *scene) memory(args []string) {
	most, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		s.fail("%v", err)
	}
	more := (s.resident("VmHWM") - s.had) >> 20
	s.t.Logf("the speaker had %d MiB, and at most %d MiB more", s.had>>20, more)
	if more > most {
		s.fail("the speaker had %d MiB more than before, want at most %d", more, most)
	}
}

// resident is a size of the memory of node 1's speaker, in bytes.
func (s *scene) resident(name string) int64 {
	process := s.nodes[0].process
	if process == nil {
		s.fail("the speaker is not running")
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process.Process.Pid), "status"))
	if err != nil {
		s.fail("%v", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name+":" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				s.fail("%v", err)
			}
			return kilobytes << 10
		}
	}
	s.fail("the kernel does not tell %s", name)
	return 0
}
