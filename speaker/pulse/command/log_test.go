package command_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"fairlead.dev/fairlead/speaker/pulse/command"
)

// stuck is a log whose reader stands still until the test ends.
type stuck struct{ until <-chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.until
	return len(p), nil
}

// Pulse works and ends as ever while nobody reads its log.
func TestALogThatNobodyReadsStopsNothing(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "pulse.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- command.Run(ctx, []string{
			"--node-name=a", "--metrics-bind-address=", "--realtime=false", "--socket=" + socket, "--log-level=debug",
		}, stuck{t.Context().Done()})
	}()
	for deadline := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		var dialer net.Dialer
		if conn, err := dialer.DialContext(ctx, "unix", socket); err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			cancel()
			t.Fatal("pulse does not begin to work")
		}
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Fatal("pulse does not end")
	}
}
