package bgp

import (
	"strings"
	"testing"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
)

// TestTTLSecurity meets routers with GTSM (RFC 5082) and without, over both families.
// Ours must come up with either unless it is told to ask for the same; then only with
// one that sends 255.
func TestTTLSecurity(t *testing.T) {
	t.Parallel()
	routers := map[string]func(t *testing.T, security bool) *router{
		"FRR": func(t *testing.T, security bool) *router {
			var more []string
			if security {
				more = []string{"ttl-security hops 1"}
			}
			return startRouter(t, neighborLines(node4, nodeASN, more...)+neighborLines(node6, nodeASN, more...))
		},
		"BIRD": func(t *testing.T, security bool) *router {
			if security {
				return startBIRD(t, node4, nodeASN, "ttl security on;").router
			}
			return startBIRD(t, node4, nodeASN).router
		},
	}
	for name, start := range routers {
		for _, theirs := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " without", true: " with"}[theirs], func(t *testing.T) {
				if netlab.Apart(t) {
					return
				}
				r := start(t, theirs)
				nodes := []string{"10.98.0.2", "fd98::2"}
				if name == "BIRD" {
					nodes = nodes[:1]
				}
				for _, node := range nodes {
					for _, ours := range []bool{false, true} {
						s := newSpeaker(t)
						id := toRouter(node4)
						prefix := vip
						if node == "fd98::2" {
							id, prefix = toRouter(node6), vip6
						}
						id.TTLSecurity, id.GracefulRestart = ours, false
						mustApply(t, s, map[string]desired.Session{"tor": {Identity: id, Routes: prefixes(prefix)}})
						if ours && !theirs {
							waitFor(t, "the TTL is suspected", func() bool {
								return strings.Contains(s.States()["tor"].LastError, "the TTL of 255 that ttlSecurity asks for")
							})
							if got := r.kernel(prefix); len(got) != 0 {
								t.Errorf("%s: a route although nobody could have checked", node)
							}
						} else {
							r.waitForKernel(prefix, node)
						}
						if err := s.Close(t.Context(), true); err != nil {
							t.Fatal(err)
						}
						r.waitForKernel(prefix)
					}
				}
			})
		}
	}
}
