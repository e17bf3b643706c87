// Package hellotest is a network in memory for meshes that run in a bubble of
// testing/synctest.
package hellotest

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"time"
)

// LAN carries datagrams from port to port, each after the same delay.
type LAN struct {
	delay time.Duration

	mu    sync.Mutex
	ports map[netip.Addr]*Port
	fail  error
	lose  func(from, to netip.Addr) bool
}

// Port is the transport of one host; hello.Transport says what its methods do.
type Port struct {
	lan    *LAN
	addr   netip.Addr
	queue  []packet
	come   *sync.Cond // something is in the queue, or closed
	closed bool
}

type packet struct {
	from     netip.AddrPort
	datagram []byte
}

// NewLAN makes a network that delivers all after a delay.
func NewLAN(delay time.Duration) *LAN {
	return &LAN{delay: delay, ports: map[netip.Addr]*Port{}, lose: func(netip.Addr, netip.Addr) bool { return false }}
}

// Open gives the port of an address, which belongs to the last that opened it.
func (l *LAN) Open(a netip.Addr) *Port {
	p := &Port{lan: l, addr: a, come: sync.NewCond(&l.mu)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports[a] = p
	return p
}

// Remove takes a host off the network: nothing comes from it, and nothing gets there.
func (l *LAN) Remove(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ports, a)
}

// Fail makes every Send fail, until it is called with nil.
func (l *LAN) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// Lose says which datagrams are lost from now on. It is called by one at a time.
func (l *LAN) Lose(lose func(from, to netip.Addr) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = lose
}

// Send is of hello.Transport.
func (p *Port) Send(to netip.AddrPort, datagram []byte) error {
	p.lan.mu.Lock()
	defer p.lan.mu.Unlock()
	if p.lan.fail != nil {
		return p.lan.fail
	}
	sent := packet{netip.AddrPortFrom(p.addr, to.Port()), bytes.Clone(datagram)}
	dest := p.lan.ports[to.Addr()]
	if dest == nil || p.lan.ports[p.addr] != p || p.lan.lose(p.addr, to.Addr()) {
		return nil
	}
	time.AfterFunc(p.lan.delay, func() {
		p.lan.mu.Lock()
		defer p.lan.mu.Unlock()
		dest.queue = append(dest.queue, sent)
		dest.come.Broadcast()
	})
	return nil
}

// Wait is of hello.Transport.
func (p *Port) Wait() error {
	p.lan.mu.Lock()
	defer p.lan.mu.Unlock()
	for len(p.queue) == 0 && !p.closed {
		p.come.Wait()
	}
	if p.closed {
		return net.ErrClosed
	}
	return nil
}

// Take is of hello.Transport.
func (p *Port) Take(buf []byte) (n int, from netip.AddrPort, come bool, err error) {
	p.lan.mu.Lock()
	defer p.lan.mu.Unlock()
	if len(p.queue) == 0 {
		return 0, from, false, nil
	}
	got := p.queue[0]
	p.queue = p.queue[1:]
	return copy(buf, got.datagram), got.from, true, nil
}

// Close is of hello.Transport.
func (p *Port) Close() error {
	p.lan.mu.Lock()
	defer p.lan.mu.Unlock()
	p.closed = true
	p.come.Broadcast()
	return nil
}
