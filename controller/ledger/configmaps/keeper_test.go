package configmaps

import (
	"maps"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/controller/ledger"
	"fairlead.dev/fairlead/internal/testenv/apiserver"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/internal/testenv/testlog"
	"fairlead.dev/fairlead/internal/view"
)

// patience is how long a test waits for what should take milliseconds.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { netlab.Isolated(m.Run) }

// TestKeeper against a real API server: what is wanted is stored, one write for each page that
// changes, and nothing for the others; and what somebody deletes is found though nothing
// changes.
func TestKeeper(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	api, err := client.New(server.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	writes := 0
	woken := make(chan struct{}, 100)
	k := New(Options{
		Namespace: metav1.NamespaceDefault, Live: api, Client: api, Logger: testlog.New(t), Timeout: 30 * time.Second,
		Wrote: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if writes++; err != nil {
				t.Errorf("a write fails: %v", err)
			}
		},
		Wake: func() { woken <- struct{}{} },
	})
	var running sync.WaitGroup
	running.Go(func() { k.Run(t.Context()) })
	t.Cleanup(running.Wait)

	first, second, third := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1")
	entry := ledger.Entry{Owner: view.Ref{Namespace: "default", Name: "web"}}
	book := ledger.Book{}.With(map[netip.Addr]ledger.Entry{first: entry, second: entry})
	if k.Records(first, entry) {
		t.Error("it is recorded before anything was read or written")
	}
	k.Want(book)
	if found, err := k.Read(t.Context()); err != nil || len(maps.Collect(found.All())) > 0 {
		t.Fatalf("nothing is stored, and read is %v, %v", found, err)
	}
	wrote := func(want int) {
		t.Helper()
		for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
			mu.Lock()
			got := writes
			mu.Unlock()
			if got >= want {
				break
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if writes != want {
			t.Fatalf("%d writes, want %d", writes, want)
		}
	}
	wrote(2)
	<-woken // somebody had asked
	recorded(t, k, first, entry)
	recorded(t, k, second, entry)

	resting := entry
	resting.Until = time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	book = book.With(map[netip.Addr]ledger.Entry{first: resting, third: entry})
	k.Want(book)
	wrote(4) // one of these pages is new, and one did not change
	recorded(t, k, first, resting)
	recorded(t, k, third, entry)
	other := New(k.Options)
	if found, err := other.Read(t.Context()); err != nil || !maps.Equal(maps.Collect(found.All()), maps.Collect(book.All())) {
		t.Errorf("another one reads %v, %v", found, err)
	}

	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: ledger.Name(ledger.Shard(second))}}
	if err := api.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	k.doubt() // as after a while
	wrote(5)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || object.Data["198.51.100.1"] != "default/web" {
		t.Errorf("what was deleted is %v, %v", object.Data, err)
	}
	k.Want(book.With(map[netip.Addr]ledger.Entry{second: {}}))
	wrote(6)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(object), object); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("an empty page is still there: %v, %v", object.Data, err)
	}
}

// recorded waits until the Keeper knows that this is stored.
func recorded(t *testing.T, k *Keeper, a netip.Addr, e ledger.Entry) {
	t.Helper()
	for began := time.Now(); !k.Records(a, e); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%s: %v is not recorded", a, e)
		}
	}
}
