package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
)

// lease says how long a leader leads without renewing. One that cannot renew gives up
// after renew, and nobody takes over before duration: what lies between is for writes
// under way to end.
type lease struct {
	duration, renew, retry time.Duration
}

// standardLease has the times that Kubernetes' own controllers have.
func standardLease() lease {
	return lease{duration: 15 * time.Second, renew: 10 * time.Second, retry: 2 * time.Second}
}

// writeTimeout is within what lies between: a write that hangs must not land after the
// new leader has looked.
func (l lease) writeTimeout() time.Duration { return (l.duration - l.renew) * 4 / 5 }

var errLapsed = errors.New("the lease ran out while this process was held up: another one may lead")

// tenure is how long this process may write as the leader. The elector itself finds out
// late: a process that was stopped for longer than the lease, as on a machine that is
// suspended, tries to renew first, for as long as it may, and would go on writing beside
// the new leader meanwhile.
type tenure struct {
	lease  lease
	lapsed chan struct{} // closed when a write was refused

	mu    sync.Mutex
	since time.Time // when the renewal began that succeeded last
	over  bool
}

func newTenure(l lease) *tenure { return &tenure{lease: l, lapsed: make(chan struct{})} }

// guard returns the configuration of a client that writes only during the tenure.
func (t *tenure) guard(cluster *rest.Config) *rest.Config {
	cluster = rest.CopyConfig(cluster)
	cluster.Wrap(func(next http.RoundTripper) http.RoundTripper { return guarded{t, next} })
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: t.forget}
	cluster.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return line{conn, t}, nil
	}
	return cluster
}

// line is a connection to the API server that takes nothing more from who has lost the
// lease. A process may be held up between the look at a request and its first byte, which
// waits for a connection or for the processor.
type line struct {
	net.Conn
	tenure *tenure
}

// Write fails with errLapsed when the lease was lost.
func (l line) Write(b []byte) (int, error) {
	if _, lost := l.tenure.state(time.Now()); lost {
		return 0, errLapsed
	}
	return l.Conn.Write(b)
}

// forget has the kernel give up what it was told to send and that nobody takes. It would
// go on for minutes, even for a process that is gone, and deliver it to the API server
// when the network is whole again.
func (t *tenure) forget(_, _ string, c syscall.RawConn) error {
	var err error
	control := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(t.lease.writeTimeout().Milliseconds()))
	})
	return errors.Join(control, err)
}

// Start waits until the tenure is over, which is an error, or the context ends.
func (t *tenure) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-t.lapsed:
		return errLapsed
	}
}

// NeedLeaderElection tells the manager to start it on the leader only.
func (*tenure) NeedLeaderElection() bool { return true }

// renewed notes that the lease was written by a request that began at this time.
func (t *tenure) renewed(began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = began
}

// state tells whether this process leads, and whether it did and has lost the lease,
// which is for ever.
func (t *tenure) state(now time.Time) (leads, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.since.IsZero() {
		return false, t.over
	}
	// Of a machine that is suspended, the monotonic clock may stand still.
	if passed := max(now.Sub(t.since), now.Round(0).Sub(t.since.Round(0))); passed < t.lease.renew {
		return true, false
	}
	t.over = true
	close(t.lapsed)
	return false, true
}

// guarded sees the lease being renewed and keeps other writes back when it was not.
type guarded struct {
	tenure *tenure
	next   http.RoundTripper
}

// leases is in the path of requests for Leases, behind whatever the API server's own URL
// ends in, and of no others: a name or a namespace has no slashes.
const leases = "/apis/" + coordinationv1.GroupName + "/"

// RoundTrip refuses writes of who does not lead. Of who has lost the lease it refuses
// writes of the lease, too: the elector gives back what it believes to have, and would take
// it from the new leader.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return g.next.RoundTrip(r)
	}
	began := time.Now()
	leads, lost := g.tenure.state(began)
	switch elects := strings.Contains(r.URL.Path, leases); {
	case elects && !lost:
		response, err := g.next.RoundTrip(r)
		if err == nil && response.StatusCode < http.StatusMultipleChoices {
			g.tenure.renewed(began)
		}
		return response, err
	case elects, !leads:
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, errLapsed)
	}
	return g.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find what can cancel requests.
func (g guarded) WrappedRoundTripper() http.RoundTripper { return g.next }
