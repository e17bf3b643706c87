package health

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/serve"
	"fairlead.dev/fairlead/internal/view"
)

// binding is what a listener is bound to, in the words of package net.
type binding struct{ network, address string }

type listening struct {
	failing atomic.Bool
	stop    func() // and waits until nothing listens
}

func (s *check) failing() bool {
	for _, l := range s.listening {
		if l.failing.Load() {
			return true
		}
	}
	return false
}

func (s *check) bindings(addrs []netip.Addr) map[binding]bool {
	bindings, whole := map[binding]bool{}, 0
	if s.port == 0 {
		return bindings // it goes
	}
	port := strconv.Itoa(int(s.port))
	for _, a := range addrs {
		family := addr.FamilyOf(a)
		if family != s.of.Family && !s.alone {
			continue
		}
		network := "tcp4"
		if family == addr.IPv6 {
			network = "tcp6"
		}
		if a.IsUnspecified() {
			whole++
		}
		bindings[binding{network, net.JoinHostPort(a.String(), port)}] = true
	}
	if whole == len(addr.Families()) { // both, or the one that the kernel has
		return map[binding]bool{{"tcp", net.JoinHostPort("", port)}: true}
	}
	return bindings
}

// listen makes checks listen where they are to, and nowhere else. Listeners that stay are not touched.
// Those that go are gone before those that come are begun, since ports move from Service to Service.
func (c *checks) listen(servers map[view.EndpointsOf]*check) {
	wanted := map[*check]map[binding]bool{}
	for _, server := range servers {
		wanted[server] = server.bindings(c.addrs)
		for at, l := range server.listening {
			if !wanted[server][at] {
				l.stop()
				delete(server.listening, at)
			}
		}
	}
	for server, bindings := range wanted {
		for at := range bindings {
			if server.listening[at] == nil {
				server.listening[at] = c.start(server, at)
			}
		}
	}
}

// start serves a check on a binding. When it returns, the check is served, or the failure is reported.
func (c *checks) start(s *check, at binding) *listening {
	l, port := &listening{}, s.port
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	server := serve.Server{
		Network: at.network, Address: at.address, Log: c.log, Control: ahead,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w, s) }),
		Told: func(err error) {
			c.report(s.of, port, at, l.failing.Swap(err != nil), err)
			begin()
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l.stop = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		server.Run(ctx)
	}()
	<-begun
	return l
}

// ahead lets a socket be bound to an address that the node cannot use yet, as during duplicate address
// detection, or that goes at this very moment.
func ahead(network, _ string, socket syscall.RawConn) error {
	level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
	if network == "tcp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
	}
	var err error
	if refused := socket.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); refused != nil {
		return refused
	}
	return err
}

// report logs whether a port is served on a binding, or why not, and calls Failed.
func (c *checks) report(of view.EndpointsOf, port uint16, at binding, failed bool, err error) {
	log := c.log.With("service", of.Service.String(), "family", of.Family.String(), "port", port, "address", at.address)
	if err == nil {
		if failed {
			log.Info("a healthCheckNodePort is served after all")
		}
		return
	}
	log.Error("a healthCheckNodePort cannot be served; trying again: free the port on this node, or choose another in spec.healthCheckNodePort",
		"error", err)
	c.failed(of.Service, port, err)
}
