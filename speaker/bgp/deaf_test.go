package bgp

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/speaker/desired"
)

// TestASessionOutlivesAWantOfFiles has a process open all the files that it may have, just as a connection comes to
// GoBGP: it takes no more of them for good, and the next session comes up nevertheless.
func TestASessionOutlivesAWantOfFiles(t *testing.T) {
	if runsApart(t) {
		return
	}
	var log buffer
	s := newSpeaker(t, slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p := startPeer(t, "127.0.0.11:0", nil)
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: p.identity(), Routes: prefixes(vip)}})
	p.waitFor(t, vip)

	stranger, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(stranger) }()
	release := openAllFiles(t)
	at := s.sessions["tor"].daemon.at
	if err := unix.Connect(stranger, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		t.Error(err)
	}
	waitFor(t, "GoBGP says that it takes no more connections", func() bool { return strings.Contains(log.text(), "Failed to AcceptTCP") })
	release()

	p.drop()
	mustApply(t, s, map[string]desired.Session{"tor": {Identity: p.identity(), Routes: prefixes(vip, vip2)}})
	p.waitFor(t, vip, vip2)
}

// openAllFiles opens as many files as there may be, until they are released.
func openAllFiles(t *testing.T) (release func()) {
	t.Helper()
	const most = 256
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for len(files) < most {
		file, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, file)
	}
	return func() {
		for _, file := range files {
			_ = file.Close()
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}
}
