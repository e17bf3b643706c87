package watch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
)

func of(name string) view.EndpointsOf {
	return view.EndpointsOf{Service: view.Ref{Namespace: "shop", Name: name}, Family: addr.IPv4}
}

func TestTriggersAreOfThisProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		triggers, began := newTriggers(), time.Now()
		triggers.note(of("old"), began.Add(-time.Second))
		triggers.note(of("unknown"), time.Time{})
		triggers.note(of("web"), began.Add(time.Second))
		triggers.note(of("web"), began.Add(3*time.Second))
		triggers.note(of("web"), began.Add(2*time.Second)) // another slice, behind
		if diff := cmp.Diff(map[view.EndpointsOf]time.Time{of("web"): began.Add(3 * time.Second)}, triggers.share()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestASnapshotKeepsItsTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		triggers := newTriggers()
		first := time.Now().Add(time.Second)
		triggers.note(of("web"), first)
		before := triggers.share()
		time.Sleep(triggersKept + 2*time.Second)
		triggers.note(of("dns"), time.Now())
		if diff := cmp.Diff(map[view.EndpointsOf]time.Time{of("web"): first}, before); diff != "" {
			t.Errorf("the old snapshot (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[view.EndpointsOf]time.Time{of("dns"): time.Now()}, triggers.share()); diff != "" {
			t.Errorf("the new snapshot (-want +got):\n%s", diff)
		}
	})
}
