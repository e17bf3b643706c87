package report_test

import (
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/bfd"
	"fairlead.dev/fairlead/speaker/report"
)

func TestBFDIsToldWhenItChanges(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	say := func(p bfd.Status) { r.BFD(map[string]bfd.Status{"tor": p}) }
	say(bfd.Status{})
	got.want(t)
	say(bfd.Status{Trouble: "cannot receive"})
	say(bfd.Status{Trouble: "cannot receive"})
	got.want(t, "tor Warning BFDDown: node node1: the BFD session is down: cannot receive")
	say(bfd.Status{State: bfd.Up})
	say(bfd.Status{State: bfd.Up})
	got.want(t, "tor Normal BFDUp: node node1: the BFD session is up")
	say(bfd.Status{Diag: bfd.NeighborDown})
	got.want(t, "tor Warning BFDDown: node node1: the BFD session is down: neighbor signaled session down")
	r.BFD(nil)
	got.want(t)
}

// TestBFDGoesOnWithoutTheSpeaker: a session that pulse held while the speaker restarted has not come up
// again; one that came up since has.
func TestBFDGoesOnWithoutTheSpeaker(t *testing.T) {
	ago := time.Now().Add(-time.Minute)
	var got events
	r := report.New(toldTo(&got))
	r.BFD(map[string]bfd.Status{"tor": {State: bfd.Up, Since: ago}, "leaf": {Since: ago}})
	got.want(t)
	r.BFD(map[string]bfd.Status{"tor": {State: bfd.Up, Since: ago}, "leaf": {State: bfd.Up, Since: time.Now()}})
	got.want(t, "leaf Normal BFDUp: node node1: the BFD session is up")
	r.BFD(map[string]bfd.Status{"tor": {Since: time.Now(), Diag: bfd.Expired}})
	got.want(t, "tor Warning BFDDown: node node1: the BFD session is down: control detection time expired")
}
