package adjacency

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/ndp"
	"golang.org/x/net/ipv6"

	"fairlead.dev/fairlead/internal/signal"
)

// room is that for a message, in bytes; a longer one is cut, and not understood then.
const room = 9216

// port is one interface that is listened on.
type port struct {
	name   string
	seat   seat
	log    *slog.Logger
	conn   *ndp.Conn
	notify func()
	wake   chan struct{} // one slot: something is to be sent at once
	ended  chan struct{}
	tasks  sync.WaitGroup

	mu    sync.Mutex
	heard heard
}

// open listens on an interface, and asks for its router.
func open(name string, s seat, log *slog.Logger, notify func()) (*port, error) {
	// The index stands for the name, of which package net remembers the index for a
	// minute: an interface that was made anew would not be found until then.
	over := &net.Interface{Index: s.link, Name: fmt.Sprint(s.link), MTU: room}
	conn, _, err := ndp.Listen(over, ndp.Addr(s.local.String()))
	if err != nil {
		return nil, err
	}
	var filter ipv6.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv6.ICMPTypeRouterAdvertisement)
	filter.Accept(ipv6.ICMPTypeRouterSolicitation)
	err = errors.Join(
		conn.SetICMPFilter(&filter),
		conn.SetControlMessage(ipv6.FlagHopLimit|ipv6.FlagInterface, true),
		conn.JoinGroup(netip.IPv6LinkLocalAllRouters()),
	)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p := &port{name: name, seat: s, log: log, conn: conn, notify: notify, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	p.tasks.Go(p.listen)
	p.tasks.Go(p.speak)
	return p, nil
}

func (p *port) close() {
	close(p.ended)
	_ = p.conn.Close() // which ends listen, whatever it returns
	p.tasks.Wait()
}

// router is the one at the other end, with the interface as zone; invalid: none was heard.
func (p *port) router() netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.heard.router.IsValid() {
		return netip.Addr{}
	}
	return p.heard.router.WithZone(p.name)
}

// listen takes in what comes until the socket is closed.
func (p *port) listen() {
	for {
		message, control, from, err := p.conn.ReadFrom()
		select {
		case <-p.ended:
			return
		default:
		}
		if err != nil {
			// The interface may be down for a moment; when it is gone, so is this port.
			p.log.Debug("cannot hear a router", "interface", p.name, "error", err)
			select {
			case <-p.ended:
				return
			case <-time.After(retryAfter):
			}
			continue
		}
		if control == nil || control.HopLimit != ndp.HopLimit || control.IfIndex != p.seat.link {
			continue // it may come from beyond the cable (RFC 4861, 6.1)
		}
		p.take(message, from.WithZone(""))
	}
}

// take takes in a message that came over the cable.
func (p *port) take(message ndp.Message, from netip.Addr) {
	switch message.(type) {
	case *ndp.RouterSolicitation: // it wants to know of us
	case *ndp.RouterAdvertisement:
		p.mu.Lock()
		before := p.heard.router
		p.heard.take(from, time.Now())
		after := p.heard.router
		p.mu.Unlock()
		if before == after {
			return
		}
		p.log.Info("a router is at the other end of an interface", "interface", p.name, "router", after, "before", before)
		p.notify()
	default:
		return
	}
	signal.Send(p.wake) // one that is new may know as little of us
}

// speak advertises this node, and asks for a router while there is none.
func (p *port) speak() {
	var told string
	for {
		every := advertiseEvery
		err := p.advertise()
		if !p.router().IsValid() {
			every = solicitEvery
			err = errors.Join(err, p.solicit())
		}
		if text := fmt.Sprint(err); err != nil && text != told {
			told = text
			p.log.Warn("this node cannot make itself known to the router at the other end of an interface; it is tried again", "interface", p.name, "error", err)
		} else if err == nil {
			told = ""
		}
		if !p.pause(gap, nil) || !p.pause(every-gap, p.wake) {
			return
		}
	}
}

// pause waits for so long, or until wake receives, and returns whether to go on.
func (p *port) pause(d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.ended:
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

func (p *port) advertise() error {
	return p.conn.WriteTo(&ndp.RouterAdvertisement{Options: p.source()}, nil, netip.IPv6LinkLocalAllNodes())
}

func (p *port) solicit() error {
	return p.conn.WriteTo(&ndp.RouterSolicitation{Options: p.source()}, nil, netip.IPv6LinkLocalAllRouters())
}

// source is the option with the node's link-layer address, if the link has any.
func (p *port) source() []ndp.Option {
	if len(p.seat.mac) != 6 {
		return nil
	}
	return []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: net.HardwareAddr(p.seat.mac)}}
}

// heard is which router has been heard, and when.
type heard struct {
	router netip.Addr // without a zone
	last   time.Time
}

// take takes in an advertisement. Only link-local addresses send any (RFC 4861, 6.1.2).
func (h *heard) take(from netip.Addr, now time.Time) {
	if !from.IsLinkLocalUnicast() {
		return
	}
	if from == h.router || !h.router.IsValid() || now.Sub(h.last) >= silence {
		h.router, h.last = from, now
	}
}
