package forwarding

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/outcome"
)

// TestWhatAHostHasNot takes a family for absent only where nothing else can be meant.
func TestWhatAHostHasNot(t *testing.T) {
	missing := outcome.Caused(outcome.ReasonProgramMissing, errors.New("not in PATH"))
	feature := errors.Join(errors.New("exit status 1"), outcome.Caused(outcome.ReasonFeatureMissing, errors.New("no tables")))
	locked := outcome.Caused(outcome.ReasonTablesLocked, errors.New("the lock"))
	hangs := outcome.Caused(outcome.ReasonProgramHangs, errors.New("it hangs"))
	none := unix.EAFNOSUPPORT
	for name, test := range map[string]struct {
		socket, unlisted error
		listed           bool
		own              []string
		unread           error
		failed           error
		want             bool
	}{
		"a kernel without":                  {socket: none, own: []string{"192.0.2.1"}, failed: errors.New("no"), want: true},
		"a kernel without, and the lock":    {socket: none, own: []string{"192.0.2.1"}, failed: locked, want: true},
		"a sandbox":                         {socket: none, listed: true, own: []string{"192.0.2.1", "2001:db8::1"}, failed: errors.New("no")},
		"a sandbox without /proc":           {socket: none, unlisted: unix.EACCES, failed: errors.New("no")},
		"no descriptors":                    {socket: unix.EMFILE, failed: errors.New("no")},
		"no program, no address":            {listed: true, own: []string{"192.0.2.1", "fe80::1"}, failed: missing, want: true},
		"no tables, no address":             {listed: true, own: []string{"192.0.2.1"}, failed: feature, want: true},
		"no program":                        {listed: true, own: []string{"192.0.2.1", "2001:db8::1", "fe80::1"}, failed: missing},
		"no tables":                         {listed: true, own: []string{"192.0.2.1", "fd00::1"}, failed: feature},
		"no address, and the lock":          {listed: true, own: []string{"192.0.2.1"}, failed: locked},
		"no address, and a program hangs":   {listed: true, own: []string{"192.0.2.1"}, failed: hangs},
		"no address, and nobody knows":      {listed: true, own: []string{"192.0.2.1"}, failed: errors.New("no")},
		"no program, and no address at all": {listed: true, own: []string{"fe80::1"}, failed: missing},
		"no program, and nobody can look":   {listed: true, unread: unix.EMFILE, failed: missing},
	} {
		h := familyDetection{
			socket:    func(addr.Family) error { return test.socket },
			listed:    func(addr.Family) (bool, error) { return test.listed, test.unlisted },
			addresses: func() (map[netip.Addr]bool, error) { return addresses(test.own...), test.unread },
		}
		if why := h.lacks(addr.IPv6, test.failed); (why != nil) != test.want {
			t.Errorf("%s: it is absent: %v, want %v", name, why, test.want)
		}
	}
}

func addresses(texts ...string) map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, text := range texts {
		all[netip.MustParseAddr(text)] = true
	}
	return all
}

// TestThisHostHasBothFamilies asks the kernel.
func TestThisHostHasBothFamilies(t *testing.T) {
	for _, f := range addr.Families() {
		has, err := listed(f)
		if socketless := socket(f); socketless != nil || err != nil || !has {
			t.Errorf("%s: listed %v, %v; socket %v", f, has, err, socketless)
		}
	}
}

// TestNodeWithoutIPv6 has programs of legacy iptables for IPv4 alone (nf_tables needs none), on a node that has no address of IPv6, gets one,
// and loses it; and the programs, which may come while it has none.
func TestNodeWithoutIPv6(t *testing.T) {
	bin := t.TempDir()
	install := func(names ...string) {
		for _, name := range names {
			at, err := exec.LookPath(name)
			if err == nil {
				err = os.Symlink(at, filepath.Join(bin, name))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	node, next := netlab.NewHost(t, "node"), netlab.NewHost(t, "next")
	netlab.Connect(node, "eth0", next, "eth0")
	node.Addr("eth0", "10.0.0.1/24")
	node.Forward()
	install("iptables-legacy-restore", "iptables-legacy-save", "ip6tables-legacy-restore", "ip6tables-legacy-save")
	all := bin
	bin = t.TempDir()
	install("iptables-legacy-restore", "iptables-legacy-save")
	t.Setenv("PATH", bin)

	both := families()[0].want(families()[0].vip, 30053, "e1")
	maps.Copy(both.Ports, families()[1].want(families()[1].vip, 30053, "e1").Ports)
	var backend *Forwarder
	node.Do(func() {
		var err error
		if backend, err = New(Config{Mode: IPTables, Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
	})
	behind := func(about string, lacking int, absent, behind bool) {
		t.Helper()
		var missing outcome.Missing
		var err error
		node.Do(func() { missing, err = backend.Apply(t.Context(), both) })
		if got := outcome.Behind(missing, err); len(missing) != lacking || (err != nil) != (lacking > 0) || got[addr.IPv6] != behind ||
			got[addr.IPv4] || outcome.Absent(err)[addr.IPv6] != absent || outcome.Absent(err)[addr.IPv4] {
			t.Errorf("%s: %d ports are missing, behind in %v, absent %v, error %v", about, len(missing), got, outcome.Absent(err), err)
		}
	}
	behind("neither program nor address", 1, true, false)
	node.Addr("eth0", "fd00::1/64")
	behind("no program", 1, false, true)
	node.Do(func() { node.Sysctl("net/ipv6/conf/eth0/disable_ipv6", "1") }) // which takes the address away
	behind("neither again", 1, true, false)
	t.Setenv("PATH", all)
	behind("the program has come", 0, false, false)
}
