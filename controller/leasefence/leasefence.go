// Package leasefence lets a process write to the API server only while it holds the lease
// of the leader. The elector of client-go finds out late that it does not: a process that was
// stopped for longer than the lease, as on a machine that is suspended, tries to renew first,
// for as long as it may, and would go on writing beside the new leader meanwhile.
package leasefence

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

// Lease has the times of a lease. A leader that cannot renew it gives up after Renew, and no
// replica takes over before Duration: what lies between is for writes under way to end.
type Lease struct {
	Duration, Renew, Retry time.Duration
}

// Standard returns the times that Kubernetes' own controllers have.
func Standard() Lease {
	return Lease{Duration: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}
}

// WriteTimeout returns how long a write may take. A write that hangs must not land after the
// new leader has read the cluster.
func (l Lease) WriteTimeout() time.Duration { return (l.Duration - l.Renew) * 4 / 5 }

// ErrLapsed is the error of writes without the lease.
var ErrLapsed = errors.New("the lease ran out while this process was held up: another one may lead")

// Fence is open from the first renewal of the lease until one is overdue, and closed for ever
// after that.
type Fence struct {
	lease  Lease
	lapsed chan struct{} // closed when a write was refused

	mu      sync.Mutex
	renewed time.Time // when the renewal began that succeeded last
	closed  bool
}

// New returns the fence of a process that does not lead yet.
func New(l Lease) *Fence { return &Fence{lease: l, lapsed: make(chan struct{})} }

// Guard returns the configuration of a client whose writes the fence stops.
func (f *Fence) Guard(cluster *rest.Config) *rest.Config {
	cluster = rest.CopyConfig(cluster)
	cluster.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{f, next} })
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: f.limitRetransmission}
	cluster.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn{c, f}, nil
	}
	return cluster
}

// conn is a connection to the API server that sends nothing once the lease is lost. A process
// may be held up between the check of a request and its first byte, which waits for a
// connection or for the processor.
type conn struct {
	net.Conn
	fence *Fence
}

// Write fails with ErrLapsed once the lease is lost.
func (c conn) Write(b []byte) (int, error) {
	if _, lost := c.fence.state(time.Now()); lost {
		return 0, ErrLapsed
	}
	return c.Conn.Write(b)
}

// limitRetransmission has the kernel drop what the API server does not acknowledge. The kernel
// would go on for minutes, even for a process that is gone, and deliver it when the network is
// whole again.
func (f *Fence) limitRetransmission(_, _ string, c syscall.RawConn) error {
	var err error
	control := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(f.lease.WriteTimeout().Milliseconds()))
	})
	return errors.Join(control, err)
}

func (*Fence) String() string { return "holding the lease" }

// Ready returns no error: a stand-by is ready, too.
func (*Fence) Ready() error { return nil }

// Run returns ErrLapsed when a write was refused because the lease was lost, or nil when ctx
// ends before.
func (f *Fence) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-f.lapsed:
		return ErrLapsed
	}
}

// renew notes that a request that began at this time wrote the lease.
func (f *Fence) renew(began time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed = began
}

// state returns whether this process leads, and whether it did and has lost the lease.
func (f *Fence) state(now time.Time) (leads, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.renewed.IsZero() {
		return false, f.closed
	}
	// The monotonic clock may stand still while a machine is suspended.
	if passed := max(now.Sub(f.renewed), now.Round(0).Sub(f.renewed.Round(0))); passed < f.lease.Renew {
		return true, false
	}
	f.closed = true
	close(f.lapsed)
	return false, true
}

// transport sees renewals of the lease, and refuses other writes without one.
type transport struct {
	fence *Fence
	next  http.RoundTripper
}

// leases is in the path of requests for Leases, behind whatever the API server's own URL
// ends in, and of no others: a name or a namespace has no slashes.
const leases = "/apis/" + coordinationv1.GroupName + "/"

// RoundTrip fails with ErrLapsed for writes without the lease. Once the lease is lost, it refuses
// writes of the lease, too: the elector gives back what it believes to have, and would take
// it from the new leader.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return t.next.RoundTrip(r)
	}
	began := time.Now()
	leads, lost := t.fence.state(began)
	switch elects := strings.Contains(r.URL.Path, leases); {
	case elects && !lost:
		response, err := t.next.RoundTrip(r)
		if err == nil && response.StatusCode < http.StatusMultipleChoices {
			t.fence.renew(began)
		}
		return response, err
	case elects, !leads:
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, ErrLapsed)
	}
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find what can cancel requests.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
