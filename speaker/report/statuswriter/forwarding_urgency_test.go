package statuswriter

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/api/v1beta1"
)

// forwarding is how a node does that is well.
func forwarding(since time.Time) v1beta1.NodeForwardingStatus {
	condition := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.NewTime(since)}
	}
	return v1beta1.NodeForwardingStatus{
		Mode: "iptables", Tool: "iptables-nft", Since: metav1.NewTime(since), Services: 3, Ports: 5, ProgrammedPorts: 5,
		Conditions: []metav1.Condition{condition("Programmed"), condition("Readable")},
	}
}

// TestWhatIsNewsOfTheForwarding: numbers and words may wait, what is well or not may not.
func TestWhatIsNewsOfTheForwarding(t *testing.T) {
	t.Parallel()
	since := time.Now()
	before := renderForwarding("node1", "uid", forwarding(since))
	for name, c := range map[string]struct {
		change func(*v1beta1.NodeForwardingStatus)
		want   urgency
	}{
		"nothing":            {func(*v1beta1.NodeForwardingStatus) {}, unchanged},
		"a part of a second": {func(f *v1beta1.NodeForwardingStatus) { f.Since = metav1.NewTime(since.Truncate(time.Second)) }, unchanged},
		"what it knew already": {func(f *v1beta1.NodeForwardingStatus) {
			f.Conditions[0].LastTransitionTime = metav1.NewTime(since.Add(time.Hour))
		}, unchanged},
		"the Services":       {func(f *v1beta1.NodeForwardingStatus) { f.Services++ }, throttled},
		"the ports":          {func(f *v1beta1.NodeForwardingStatus) { f.Ports, f.ProgrammedPorts = 6, 5 }, throttled},
		"the words":          {func(f *v1beta1.NodeForwardingStatus) { f.Conditions[0].Message = "other words" }, throttled},
		"the reason":         {func(f *v1beta1.NodeForwardingStatus) { f.Conditions[0].Reason = "ProgramHangs" }, immediate},
		"what is not well":   {func(f *v1beta1.NodeForwardingStatus) { f.Conditions[1].Status = metav1.ConditionFalse }, immediate},
		"one condition less": {func(f *v1beta1.NodeForwardingStatus) { f.Conditions = f.Conditions[:1] }, immediate},
		"the mode":           {func(f *v1beta1.NodeForwardingStatus) { f.Mode = "nftables" }, immediate},
		"the tool":           {func(f *v1beta1.NodeForwardingStatus) { f.Tool = "iptables-legacy" }, immediate},
		"the networks":       {func(f *v1beta1.NodeForwardingStatus) { f.Networks = []string{"192.0.2.0/24"} }, immediate},
		"another process":    {func(f *v1beta1.NodeForwardingStatus) { f.Since = metav1.NewTime(since.Add(time.Minute)) }, immediate},
	} {
		f := forwarding(since)
		c.change(&f)
		if got := (forwardingKind{}).compare(before, renderForwarding("node1", "uid", f)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestAChurnIsWrittenSeldom: a cluster in which Services come and go all the time costs two
// writes a minute for each node, and what goes wrong meanwhile is there within two seconds.
func TestAChurnIsWrittenSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{stored: map[string]client.Object{}}
		k := NewForwardings("node1", s, slog.New(slog.DiscardHandler))
		stop := running(t, k.Run)
		defer stop()
		f := forwarding(time.Now())
		tell := func() {
			f.Conditions = slices.Clone(f.Conditions)
			k.Set("uid", f)
			time.Sleep(time.Second)
		}
		is := func() v1beta1.NodeForwardingStatus {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.stored["node1"].(*v1beta1.NodeForwarding).Status
		}
		for range 60 {
			tell()
		}
		if _, written := s.counted(); written != 2 { // to make it, and its status
			t.Errorf("%d writes of what does not change, want 2", written)
		}
		for range 600 {
			f.Services, f.Ports = f.Services+1, f.Ports+2
			f.Conditions[1].Message += "."
			tell()
		}
		if _, written := s.counted(); written < 15 || written > 25 {
			t.Errorf("%d writes in ten minutes of churn, want 15 to 25", written)
		}
		f.Conditions[0].Status, f.Conditions[0].Reason = metav1.ConditionFalse, "ProgramMissing"
		tell()
		tell()
		if c := is().Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != "ProgramMissing" {
			t.Errorf("two seconds after a program went missing: %+v", c)
		}
		s.counted()
		for i := range 3600 { // a program that comes and goes
			f.Conditions[0].Status = []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue}[i%2]
			tell()
		}
		if _, written := s.counted(); written < 60 || written > 130 {
			t.Errorf("%d writes in an hour of coming and going, want 60 to 130", written)
		}
		for range 60 {
			tell()
		}
		if got := is(); got.Services != 603 || got.Conditions[0].Status != f.Conditions[0].Status {
			t.Errorf("in the end: %+v", got)
		}
	})
}
