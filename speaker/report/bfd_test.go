package report_test

import (
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/report"
)

func TestBFDIsToldWhenItChanges(t *testing.T) {
	var got events
	r := report.New(toldTo(&got))
	say := func(p report.Path) { r.BFD(map[string]report.Path{"tor": p}) }
	say(report.Path{})
	got.want(t)
	say(report.Path{Reason: "cannot receive"})
	say(report.Path{Reason: "cannot receive"})
	got.want(t, "tor Warning BFDDown: node node1: the BFD session is down: cannot receive")
	say(report.Path{Up: true})
	say(report.Path{Up: true})
	got.want(t, "tor Normal BFDUp: node node1: the BFD session is up")
	say(report.Path{Reason: "neighbor signaled session down"})
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
	r.BFD(map[string]report.Path{"tor": {Up: true, Since: ago}, "leaf": {Since: ago}})
	got.want(t)
	r.BFD(map[string]report.Path{"tor": {Up: true, Since: ago}, "leaf": {Up: true, Since: time.Now()}})
	got.want(t, "leaf Normal BFDUp: node node1: the BFD session is up")
	r.BFD(map[string]report.Path{"tor": {Since: time.Now(), Reason: "control detection time expired"}})
	got.want(t, "tor Warning BFDDown: node node1: the BFD session is down: control detection time expired")
}
