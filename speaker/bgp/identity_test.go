package bgp

import (
	"strings"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/desired"
)

// TestNothingIsAssumed of what a BGPPeer has a default for: who reads BGPPeers fills that in.
func TestNothingIsAssumed(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*desired.Identity){
		"":                     func(*desired.Identity) {},
		"peer port 0":          func(id *desired.Identity) { id.PeerPort = 0 },
		"hold time 0s":         func(id *desired.Identity) { id.HoldTime, id.KeepaliveTime = 0, 0 },
		"hold time 2s":         func(id *desired.Identity) { id.HoldTime, id.KeepaliveTime = 2*time.Second, time.Second },
		"keepalive time 10m0s": func(id *desired.Identity) { id.KeepaliveTime = 10 * time.Minute },
	} {
		id := toRouter(node4)
		id.HoldTime, id.KeepaliveTime = 90*time.Second, 30*time.Second
		change(&id)
		if err := validate(id); (err != nil) != (want != "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
