package forwarding

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// onLocalhost is a state with NodePorts on loopback addresses.
func onLocalhost(want desired.Forwarding) desired.Forwarding {
	want.Loopback, want.Guard = []netip.Prefix{addr.Loopback()}, true
	return want
}

// routeLocalnet is the node's setting.
func (l *lab) routeLocalnet() string {
	l.t.Helper()
	var value []byte
	var err error
	l.node.Do(func() { value, err = os.ReadFile(RouteLocalnet) })
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.TrimSpace(string(value))
}

// expectSetting checks the node's setting.
func (l *lab) expectSetting(when, want string) {
	l.t.Helper()
	if got := l.routeLocalnet(); got != want {
		l.t.Errorf("%s: route_localnet is %s, want %s", when, got, want)
	}
}

func (l *lab) cleanup(file string) error {
	var err error
	l.node.Do(func() { err = Cleanup(l.t.Context(), file) })
	return err
}

// nodePortOfLocalhost is that of family.want in the tests below.
func nodePortOfLocalhost() netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:30053") }

// TestFlowsToLocalhostFollowTheService keeps one UDP flow of the node to itself sending:
// from before NodePorts answer on localhost to after they do no more, which another
// process finds. The kernel's setting is switched on and off with them.
func TestFlowsToLocalhostFollowTheService(t *testing.T) {
	for _, mode := range []Mode{IPTables, NFTables} {
		t.Run(string(mode), func(t *testing.T) {
			l := newLab(t)
			l.inMode(mode)
			f := families()[0]
			l.apply(f.want(f.vip, 30053, "e1"))
			l.expectSetting("not asked for", "0")
			flow, err := l.node.Dial("udp", netip.MustParseAddrPort("127.0.0.1:0"), nodePortOfLocalhost(), answerIn)
			if err != nil {
				t.Fatal(err)
			}
			defer flow.Close()
			if got, err := flow.Ask(); !errors.Is(err, netlab.ErrRefused) {
				t.Errorf("not asked for: %v, %v, want a refusal", got, err)
			}
			for _, endpoint := range []string{"e1", "e2", "", "e1"} {
				if endpoint == "" {
					l.apply(onLocalhost(f.want(f.vip, 30053)))
					if l.flows(f.Family)[nodePortOfLocalhost()] {
						t.Error("the flow is left though no endpoint is")
					}
					continue
				}
				l.apply(onLocalhost(f.want(f.vip, 30053, endpoint)))
				l.expectSetting("asked for", "2")
				if got, err := flow.Ask(); err != nil || got.Server != endpoint {
					t.Errorf("%v, %v, want an answer of %s", got, err, endpoint)
				}
			}
			l.inMode(mode)
			l.apply(f.want(f.vip, 30053, "e1"))
			l.expectSetting("asked for no more", "0")
			if l.flows(f.Family)[nodePortOfLocalhost()] {
				t.Error("the flow is left though NodePorts answer no more on localhost")
			}
		})
	}
}

// TestTheSettingOutlivesAChangeOfModeAndNotACleanup asks for it in each mode in turn.
func TestTheSettingOutlivesAChangeOfModeAndNotACleanup(t *testing.T) {
	l := newLab(t)
	f := families()[0]
	for _, mode := range []Mode{NFTables, IPTables, NFTables} {
		l.inMode(mode)
		l.apply(onLocalhost(f.want(f.vip, 30053, "e1")))
		l.expectSetting(string(mode), "2")
		if got, err := l.node.Ask("udp", nodePortOfLocalhost(), answerIn); err != nil || got.Server != "e1" {
			t.Errorf("%s: %v, %v, want an answer of e1", mode, got, err)
		}
	}
	if err := l.cleanup(""); err != nil || l.tables() || l.chains() {
		t.Errorf("rules are left: %t, error %v", l.tables() || l.chains(), err)
	}
	l.expectSetting("cleaned up", "0")
}

// TestTheSettingOfOthersStays has somebody set it before us, and after us.
func TestTheSettingOfOthersStays(t *testing.T) {
	f := families()[0]
	off := f.want(f.vip, 30053, "e1")
	for _, first := range []string{"1", "0"} {
		l := newLab(t)
		set := func(value string) {
			l.node.Do(func() { l.node.Sysctl("net/ipv4/conf/all/route_localnet", value) })
		}
		set(first)
		l.apply(onLocalhost(off))
		if first == "0" {
			l.expectSetting("ours", "2")
			set("1") // as kube-proxy does, which asks for 1
		}
		l.expectSetting("theirs", "1")
		l.apply(off)
		l.expectSetting("theirs, and not ours any more", "1")
		l.apply(onLocalhost(off))
		if err := l.cleanup(""); err != nil {
			t.Error(err)
		}
		l.expectSetting("cleaned up", "1")
		set("0")
		l.apply(onLocalhost(off))
		l.expectSetting("they do not need it any more, we do", "2")
	}
}

// TestASettingThatCannotBeWritten has it read-only, as in a container without the
// chart's mount: switching it on fails and is told, and while it cannot be switched off the
// guard stays, in "speaker cleanup" too, until somebody does it by hand.
func TestASettingThatCannotBeWritten(t *testing.T) {
	l := newLab(t)
	file := filepath.Join(t.TempDir(), "route_localnet")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.node.Do(func() {
		if err := unix.Mount(RouteLocalnet, file, "", unix.MS_BIND, ""); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
	access := func(flags uintptr) {
		if err := unix.Mount("", file, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	restart := func() {
		var err error
		l.node.Do(func() {
			l.backend, err = New(Config{Mode: IPTables, Log: slog.New(slog.DiscardHandler), RouteLocalnet: file})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	fails := func(want desired.Forwarding, says string) {
		t.Helper()
		for range 2 { // it is told for as long as it lasts
			var missing outcome.Missing
			var err error
			l.node.Do(func() { missing, err = clean(t, l.backend, want) })
			unset := outcome.AllOf[*outcome.SettingError](err)
			if len(missing) > 0 || len(unset) != 1 || !strings.Contains(unset[0].Error(), says) {
				t.Errorf("%d ports are missing, error %v, want one that says %q", len(missing), err, says)
			}
		}
	}
	guarded := func() bool {
		return strings.Contains(l.saved(), "-d 127.0.0.0/8 ! -i lo")
	}
	f := families()[0]
	off := f.want(f.vip, 30053, "e1")

	access(unix.MS_RDONLY)
	restart()
	fails(onLocalhost(off), "NodePorts cannot answer on 127.0.0.1")
	l.expectSetting("read-only", "0")
	access(0)
	l.apply(onLocalhost(off))
	l.expectSetting("writable", "2")

	access(unix.MS_RDONLY)
	restart()
	fails(off, "cannot be set back")
	if l.expectSetting("read-only again", "2"); !guarded() {
		t.Error("the guard is gone before the setting")
	}
	if err := l.cleanup(file); err == nil || !guarded() {
		t.Errorf("cleanup: guarded %t, error %v", guarded(), err)
	}
	access(0)
	l.apply(off)
	if l.expectSetting("writable again", "0"); guarded() {
		t.Error("the guard is left")
	}
}
