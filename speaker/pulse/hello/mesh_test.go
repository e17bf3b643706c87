package hello

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/pulse/hello/hellotest"
)

// lan is a network for meshes of this test.
type lan struct{ *hellotest.LAN }

func newLAN() lan { return lan{hellotest.NewLAN(testDelay)} }

// listen gives Config.Listen for a host.
func (l lan) listen(a netip.Addr) func(context.Context, uint16) (Transport, error) {
	return func(context.Context, uint16) (Transport, error) { return l.Open(a), nil }
}

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("2001:db8::b")
	vip   = netip.MustParseAddr("192.0.2.1")
)

func wantedA() Wanted {
	return Wanted{Key: testKey, Serving: true, Peers: map[string]Peer{"b": {Addrs: []netip.Addr{addrB}}}}
}

func wantedB() Wanted {
	return Wanted{Key: testKey, Serving: true, Peers: map[string]Peer{"a": {Addrs: []netip.Addr{addrA}}}}
}

// run starts a mesh; stop ends it and waits until it is gone.
func run(t *testing.T, cfg Config, want Wanted) (m *Mesh, stop func()) {
	t.Helper()
	cfg.Port, cfg.Interval, cfg.Multiplier = 7475, testInterval, testMultiplier
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	m.Set(want)
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return m, stop
}

// await waits for a view and tells how long it took.
func await(t *testing.T, m *Mesh, limit time.Duration, what string, good func(View) bool) time.Duration {
	t.Helper()
	begin := time.Now()
	timeout := time.After(limit)
	for !good(m.View()) {
		select {
		case <-m.Changed():
		case <-timeout:
			t.Fatalf("%s: not within %v; the view is %+v", what, limit, m.View())
		}
	}
	return time.Since(begin)
}

func hears(node string) func(View) bool {
	return func(v View) bool { return v.Settled && v.Alive[node].Heard && v.CanServe(node, vip) }
}

func gone(node string) func(View) bool {
	return func(v View) bool { _, alive := v.Alive[node]; return !alive }
}

func TestMeshDetectsADeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN()
		a, _ := run(t, Config{Node: "a", Listen: l.listen(addrA)}, wantedA())
		b, stopB := run(t, Config{Node: "b", Listen: l.listen(addrB)}, wantedB())
		await(t, a, testDetect+testInterval, "a hears b", hears("b"))
		await(t, b, testDetect+testInterval, "b hears a", hears("a"))
		l.Remove(addrB) // its last word is lost as well: a crash
		stopB()
		took := await(t, a, time.Minute, "a buries b", gone("b"))
		if took < (testMultiplier-1)*testInterval || took > (testMultiplier+1)*testInterval {
			t.Errorf("b was buried after %v", took)
		}
		if !a.View().CanServe("a", vip) {
			t.Error("a itself cannot serve")
		}
		if s := a.Stats(); s.Deaths != 1 || s.Heard != 0 || s.Sent == 0 || s.Received == 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestMeshRestartMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN()
		a, _ := run(t, Config{Node: "a", Listen: l.listen(addrA)}, wantedA())
		_, stopB := run(t, Config{Node: "b", Listen: l.listen(addrB)}, wantedB())
		await(t, a, testDetect+testInterval, "a hears b", hears("b"))
		for range 3 {
			stopB()
			for range 100 {
				time.Sleep(MaxHold / 110)
				if !a.View().CanServe("b", vip) {
					t.Fatal("b restarts, and lost its addresses")
				}
			}
			_, stopB = run(t, Config{Node: "b", Listen: l.listen(addrB)}, wantedB())
			time.Sleep(2 * testDetect)
			if !a.View().CanServe("b", vip) {
				t.Fatal("b is back, and lost its addresses")
			}
		}
		stopB()
		if took := await(t, a, time.Minute, "b never came back", gone("b")); took > MaxHold {
			t.Errorf("b was held for %v, at most %v allowed", took, MaxHold)
		}
	})
}

func TestMeshTellsChangesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN()
		a, _ := run(t, Config{Node: "a", Listen: l.listen(addrA)}, wantedA())
		b, stopB := run(t, Config{Node: "b", Listen: l.listen(addrB)}, wantedB())
		await(t, a, testDetect+testInterval, "a hears b", hears("b"))
		cannot := func(v View) bool { _, alive := v.Alive["b"]; return alive && !v.CanServe("b", vip) }
		can := func(v View) bool { return v.CanServe("b", vip) }
		for _, change := range []struct {
			what string
			set  func(w *Wanted)
			good func(View) bool
		}{
			{"not serving", func(w *Wanted) { w.Serving = false }, cannot},
			{"serving", func(*Wanted) {}, can},
			{"unable", func(w *Wanted) { w.Unable = []netip.Addr{vip} }, cannot},
			{"able", func(*Wanted) {}, can},
			{"leaving", func(w *Wanted) { w.Leaving = true }, cannot},
			{"staying after all", func(*Wanted) {}, can},
		} {
			w := wantedB()
			change.set(&w)
			b.Set(w)
			if !change.good(b.View()) {
				t.Errorf("%s: b itself does not know: %+v", change.what, b.View())
			}
			if took := await(t, a, testInterval, change.what, change.good); took > testDelay {
				t.Errorf("%s: a knew after %v", change.what, took)
			}
		}
		b.Goodbye(0)
		await(t, a, testDelay, "b said goodbye", cannot)
		time.Sleep(testInterval)
		stopB()
		if took := await(t, a, time.Minute, "b has left", gone("b")); took > testDetect {
			t.Errorf("a node that left was counted as alive for %v", took)
		}
	})
}

func TestMeshSpeaksOnChangeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN()
		a, _ := run(t, Config{Node: "a", Listen: l.listen(addrA)}, wantedA())
		time.Sleep(testDetect)
		before := a.Stats().Sent
		for range 1000 {
			a.Set(wantedA())
		}
		synctest.Wait()
		if after := a.Stats().Sent; after != before {
			t.Errorf("the same state set again sent %d hellos", after-before)
		}
	})
}

func TestMeshToleratesSendErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN()
		var log bytes.Buffer
		a, stopA := run(t, Config{
			Node: "a", Listen: l.listen(addrA), Log: slog.New(slog.NewTextHandler(&log, nil)),
		}, wantedA())
		b, _ := run(t, Config{Node: "b", Listen: l.listen(addrB)}, wantedB())
		await(t, b, testDetect+testInterval, "b hears a", hears("a"))
		l.Fail(unix.ENETUNREACH)
		await(t, b, time.Minute, "b buries a", gone("a"))
		await(t, a, time.Minute, "a buries b", gone("b"))
		time.Sleep(time.Minute)
		l.Fail(nil)
		await(t, b, 2*testInterval, "b hears a again", hears("a"))
		await(t, a, testInterval, "a hears b again", hears("b")) // by the answer, or by an answer to that
		if a.Stats().SendErrors == 0 {
			t.Error("no send error was counted")
		}
		stopA()
		for _, line := range []string{"cannot send hellos", "can be sent again", "fell silent", "heard again"} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%q was told %d times, want once:\n%s", line, n, log.String())
			}
		}
	})
}

func TestMeshListensWhenItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN()
		var log bytes.Buffer
		busy := 5
		a, stopA := run(t, Config{
			Node: "a", Log: slog.New(slog.NewTextHandler(&log, nil)),
			Listen: func(ctx context.Context, port uint16) (Transport, error) {
				if busy--; busy >= 0 {
					return nil, errors.New("address already in use")
				}
				return l.listen(addrA)(ctx, port)
			},
		}, wantedA())
		if v := a.View(); v.Settled || !v.CanServe("a", vip) {
			t.Errorf("before it listens the view is %+v", v)
		}
		run(t, Config{Node: "b", Listen: l.listen(addrB)}, wantedB())
		if took := await(t, a, time.Minute, "a hears b", hears("b")); took < 5*relisten {
			t.Errorf("settled after %v, before it could listen", took)
		}
		stopA()
		if n := strings.Count(log.String(), "cannot listen"); n != 1 {
			t.Errorf("told %d times, want once:\n%s", n, log.String())
		}
	})
}

func TestMeshEndsWhileItCannotListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, stop := run(t, Config{Node: "a", Listen: func(context.Context, uint16) (Transport, error) {
			return nil, errors.New("address already in use")
		}}, wantedA())
		time.Sleep(10 * relisten)
		stop()
	})
}

func TestSetKeepsNothingOfItsArgument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLAN()
		w := wantedA()
		w.Key, w.Unable = bytes.Clone(testKey), []netip.Addr{vip}
		a, _ := run(t, Config{Node: "a", Listen: l.listen(addrA)}, w)
		clear(w.Key)
		clear(w.Peers)
		w.Unable[0] = addrA
		run(t, Config{Node: "b", Listen: l.listen(addrB)}, wantedB())
		await(t, a, testDetect+testInterval, "a hears b", hears("b"))
		if a.View().CanServe("a", vip) {
			t.Error("a can serve what it was told it cannot")
		}
	})
}

func TestNewRefusesBadConfigs(t *testing.T) {
	good := Config{Node: "a", Port: 7475, Interval: testInterval, Multiplier: testMultiplier}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"node name":  func(c *Config) { c.Node = "" },
		"bytes":      func(c *Config) { c.Node = strings.Repeat("n", maxName+1) },
		"port":       func(c *Config) { c.Port = 0 },
		"interval":   func(c *Config) { c.Interval = time.Millisecond },
		"multiplier": func(c *Config) { c.Multiplier = 2 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that names the %s", err, want)
		}
	}
}
