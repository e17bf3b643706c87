package sysctl

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/outcome"
)

// defaults are kube-proxy's, as the chart has them.
func defaults() Want {
	return Want{MaxPerCore: 32768, Min: 131072, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour}
}

// TestRoomByCPUs has the figures that getConntrackMax of kube-proxy v1.36 gives.
func TestRoomByCPUs(t *testing.T) {
	for _, test := range []struct {
		perCore, min, cpus, want int
	}{
		{32768, 131072, 1, 131072},
		{32768, 131072, 8, 262144},
		{32768, 131072, 32, 1048576},
		{32768, 131072, 256, 1048576},
		{32768, 2000000, 2, 2000000},
		{32768, 2000000, 64, 1048576},
		{32768, 0, 2, 65536},
		{0, 131072, 8, 0},
	} {
		if got := (Want{MaxPerCore: test.perCore, Min: test.min}).Max(test.cpus); got != test.want {
			t.Errorf("%d for each of %d CPUs, %d at least: %d, want %d", test.perCore, test.cpus, test.min, got, test.want)
		}
	}
}

func TestCPUsOfTheKernel(t *testing.T) {
	all, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology") // which those that are online have
	if err != nil {
		t.Fatal(err)
	}
	if got, err := online(); err != nil || got < 1 || got != len(all) {
		t.Errorf("this machine has %d CPUs, want %d: %v", got, len(all), err)
	}
}

// kernel is a network namespace of its own. All settings but the sizes are its own.
type kernel struct {
	*netlab.Host
	t *testing.T
}

func (k kernel) have(names ...string) map[string]string {
	k.t.Helper()
	found := map[string]string{}
	k.Do(func() {
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(Dir, name))
			if err != nil {
				k.t.Error(err)
			}
			found[name] = strings.TrimSpace(string(text))
		}
	})
	return found
}

// apply gives the settings that could not be set, and what else failed.
func (k kernel) apply(table *Table) (unset []string, err error) {
	k.t.Helper()
	k.Do(func() { err = table.Apply() })
	for _, failed := range outcome.AllOf[*outcome.SettingError](err) {
		unset = append(unset, failed.Of)
	}
	return unset, err
}

func timeouts() []string {
	return []string{
		"nf_conntrack_tcp_timeout_established", "nf_conntrack_tcp_timeout_close_wait",
		"nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream", "nf_conntrack_tcp_be_liberal",
	}
}

// TestTimeoutsOfAKernel has a real kernel remember as kube-proxy has it remember, again
// after somebody else has changed that, and leaves what is not asked for.
func TestTimeoutsOfAKernel(t *testing.T) {
	k := kernel{netlab.NewHost(t, "node"), t}
	before := k.have(timeouts()...)
	want := defaults()
	want.MaxPerCore = 0 // is the whole machine's
	expect := func(when string, table *Table, values ...string) {
		t.Helper()
		if unset, err := k.apply(table); err != nil || len(unset) > 0 {
			t.Errorf("%s: %v", when, err)
		}
		wanted := map[string]string{}
		for i, name := range timeouts() {
			wanted[name] = values[i]
		}
		if diff := cmp.Diff(wanted, k.have(timeouts()...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	log := slog.New(slog.DiscardHandler)
	udp, stream, liberal := before["nf_conntrack_udp_timeout"], before["nf_conntrack_udp_timeout_stream"], before["nf_conntrack_tcp_be_liberal"]
	table := New("", want, log)
	expect("at first", table, "86400", "3600", udp, stream, liberal)
	k.Do(func() { k.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_close_wait", "60") })
	expect("changed by others", table, "86400", "3600", udp, stream, liberal)
	expect("nothing wanted", New("", Want{}, log), "86400", "3600", udp, stream, liberal)
	all := Want{TCPEstablished: 2 * time.Hour, TCPCloseWait: time.Minute, UDP: 45 * time.Second, UDPStream: 3 * time.Minute, TCPBeLiberal: true}
	expect("all of them", New("", all, log), "7200", "60", "45", "180", "1")
}

// TestTheMachinesSizeIsNotANamespaces asks for more room from within a network namespace, where
// the kernel refuses: that is told, and the timeouts are set. Enough room is left alone.
func TestTheMachinesSizeIsNotANamespaces(t *testing.T) {
	k := kernel{netlab.NewHost(t, "node"), t}
	log := slog.New(slog.DiscardHandler)
	room := func() int {
		n, err := strconv.Atoi(k.have("nf_conntrack_max")["nf_conntrack_max"])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := room()
	want := defaults()
	want.MaxPerCore, want.Min = 1, before+1
	table := New("", want, log)
	for range 2 { // it is told for as long as it lasts
		unset, err := k.apply(table)
		if diff := cmp.Diff([]string{"nf_conntrack_max"}, unset); diff != "" {
			t.Errorf("unset (-want +got):\n%s", diff)
		}
		for _, says := range []string{"net.netfilter.nf_conntrack_max is " + strconv.Itoa(before), "should be " + strconv.Itoa(before+1), "forwarding.conntrack.maxPerCore"} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want it to say %q", err, says)
			}
		}
	}
	if got := k.have("nf_conntrack_tcp_timeout_close_wait")["nf_conntrack_tcp_timeout_close_wait"]; got != "3600" {
		t.Errorf("what else is wanted was held up: %s", got)
	}
	want.Min = 1
	if unset, err := k.apply(New("", want, log)); err != nil || room() != before {
		t.Errorf("there is room enough: %v, %v; %d flows, want %d", unset, err, room(), before)
	}
}

// TestSettingsThatCannotBeWritten has them read-only, as in a container without the chart's
// mount: each is told, and set as soon as it can be.
func TestSettingsThatCannotBeWritten(t *testing.T) {
	k := kernel{netlab.NewHost(t, "node"), t}
	dir := t.TempDir()
	k.Do(func() {
		if err := unix.Mount(Dir, dir, "", unix.MS_BIND, ""); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	access := func(flags uintptr) {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	want := defaults()
	want.MaxPerCore = 0
	table := New(dir, want, slog.New(slog.DiscardHandler))
	access(unix.MS_RDONLY)
	unset, err := k.apply(table)
	if diff := cmp.Diff(timeouts()[:2], unset); diff != "" || !errors.Is(err, unix.EROFS) {
		t.Errorf("%v; unset (-want +got):\n%s", err, diff)
	}
	access(0)
	if unset, err := k.apply(table); err != nil || len(unset) > 0 {
		t.Errorf("writable: %v", err)
	}
	if got := k.have(timeouts()[:2]...); got[timeouts()[0]] != "86400" || got[timeouts()[1]] != "3600" {
		t.Errorf("writable: %v", got)
	}
}

// TestRoomIsRaisedAndNeverLowered goes by files that are nobody's kernel: the size of a
// kernel's table is the whole machine's.
func TestRoomIsRaisedAndNeverLowered(t *testing.T) {
	for name, test := range map[string]struct{ max, buckets, wantMax, wantBuckets string }{
		"small":           {"65536", "16384", "262144", "65536"},
		"narrow":          {"262144", "16384", "262144", "65536"},
		"just right":      {"262144", "65536", "262144", "65536"},
		"somebody's more": {"1000000", "250000", "1000000", "250000"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{"nf_conntrack_max": test.max, "nf_conntrack_buckets": test.buckets}
			for file, value := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(value+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			table := New(dir, Want{MaxPerCore: 32768, Min: 131072}, slog.New(slog.DiscardHandler))
			table.cpus = func() (int, error) { return 8, nil }
			if err := table.Apply(); err != nil {
				t.Fatal(err)
			}
			for file, want := range map[string]string{"nf_conntrack_max": test.wantMax, "nf_conntrack_buckets": test.wantBuckets} {
				text, err := os.ReadFile(filepath.Join(dir, file))
				if got := strings.TrimSpace(string(text)); err != nil || got != want {
					t.Errorf("%s is %s, want %s: %v", file, got, want, err)
				}
			}
		})
	}
}

// TestAKernelWithoutConnectionTracking has no such settings: what they are called is told.
func TestAKernelWithoutConnectionTracking(t *testing.T) {
	err := New(t.TempDir(), defaults(), slog.New(slog.DiscardHandler)).Apply()
	if got := len(outcome.AllOf[*outcome.SettingError](err)); got != 3 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%d settings are told of, want 3: %v", got, err)
	}
}

// TestFill reads how full a real kernel's table is, and one that is as the files say.
func TestFill(t *testing.T) {
	k := kernel{netlab.NewHost(t, "node"), t}
	k.Do(func() {
		flows, room, err := Fill(Dir)
		if err != nil || flows < 0 || room < 1 {
			t.Errorf("%d flows, room for %d: %v", flows, room, err)
		}
	})
	dir := t.TempDir()
	if _, _, err := Fill(dir); err == nil {
		t.Error("a kernel that tracks nothing has a fill")
	}
	for name, text := range map[string]string{"nf_conntrack_count": "119\n", "nf_conntrack_max": "131072\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if flows, room, err := Fill(dir); flows != 119 || room != 131072 || err != nil {
		t.Errorf("%d flows, room for %d: %v", flows, room, err)
	}
}
