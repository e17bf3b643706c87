package apiservers

import (
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.dev/fairlead/internal/testenv/apiserver"
)

// member is one of the API servers of a cluster.
type member interface {
	kill()
	again() // after kill
	stop()
	goOn() // after stop
}

// process is an API server.
type process struct {
	t *testing.T
	*apiserver.Server
}

func (p process) kill() {
	p.Signal(p.t, syscall.SIGKILL)
	within(p.t, time.Minute, "the end of an API server", func() bool {
		c, err := new(net.Dialer).DialContext(context.Background(), "tcp", strings.Trim(strings.TrimPrefix(p.Config.Host, "https:"), "/"))
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
}
func (p process) stop()  { p.Signal(p.t, syscall.SIGSTOP) }
func (p process) goOn()  { p.Signal(p.t, syscall.SIGCONT) }
func (p process) again() { p.Again(p.t) }

// door is a TCP proxy before an API server, as Talos, k3s and RKE2 have one on each node. It stands for one of several servers.
type door struct {
	t      *testing.T
	at, to string

	mu      sync.Mutex
	here    net.Listener
	stopped chan struct{} // closed while it works
	open    []net.Conn
}

func newDoor(t *testing.T, at, to string) *door {
	d := &door{t: t, at: at, to: to, stopped: make(chan struct{})}
	close(d.stopped)
	d.again()
	t.Cleanup(d.kill)
	return d
}

func (d *door) again() {
	l, err := new(net.ListenConfig).Listen(d.t.Context(), "tcp", d.at)
	if err != nil {
		d.t.Fatal(err)
	}
	d.here = l
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.open = append(d.open, in)
			d.mu.Unlock()
			go func() {
				d.works() // until then the connection is only accepted, as the kernel does for a process that stands
				out, err := new(net.Dialer).DialContext(context.Background(), "tcp", d.to)
				if err != nil {
					_ = in.Close()
					return
				}
				go d.pass(in, out)
				d.pass(out, in)
			}()
		}
	}()
}

// pass copies what one side says, unless the door is stopped.
func (d *door) pass(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		d.works()
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// works waits until the door is not stopped.
func (d *door) works() {
	d.mu.Lock()
	stopped := d.stopped
	d.mu.Unlock()
	<-stopped
}

func (d *door) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = make(chan struct{})
}

func (d *door) goOn() { close(d.stopped) }

// kill ends all connections, and refuses new ones.
func (d *door) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.here.Close()
	for _, c := range d.open {
		_ = c.Close()
	}
}

// stranger answers at an address with the certificate of another cluster.
func stranger(t *testing.T, at string) (end func()) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(nil)
	_ = s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Close
}

// blackHole drops all packets of an address, silently.
func blackHole(t *testing.T, address string) (end func()) {
	t.Helper()
	nft := func(rules string) {
		t.Helper()
		command := exec.Command("nft", "-f", "-")
		command.Stdin = strings.NewReader(rules)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
	}
	nft("add table ip hole; add chain ip hole in { type filter hook input priority 0; }; add rule ip hole in ip daddr " + address +
		" drop; add rule ip hole in ip saddr " + address + " drop")
	return func() { nft("delete table ip hole") }
}

// addresses gives this namespace addresses on its loopback.
func addresses(t *testing.T, all ...string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range all {
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(32, 32)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// within waits until something is so.
func within(t *testing.T, limit time.Duration, what string, is func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began).Round(time.Millisecond)
}
