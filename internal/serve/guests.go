package serve

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// guests are the connections of a server, as many as there is room for. A new one takes the place of the
// one that has been idle for longest. Were new ones to wait, a few silent clients would keep a load
// balancer from hearing that the node is well.
type guests struct {
	room int

	mu    sync.Mutex // guards what follows
	of    map[net.Conn]*list.Element
	order list.List // of net.Conn, the last active one at the end
}

func newGuests(room int) *guests { return &guests{room: room, of: map[net.Conn]*list.Element{}} }

// changed takes in what a connection does, as http.Server.ConnState tells it.
func (g *guests) changed(c net.Conn, state http.ConnState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, known := g.of[c]
	switch {
	case state == http.StateNew:
		if g.order.Len() >= g.room {
			first := g.order.Front()
			g.leave(first)
			_ = first.Value.(net.Conn).Close() // its server sees that, and says so
		}
		g.of[c] = g.order.PushBack(c)
	case !known: // it had to leave
	case state == http.StateClosed || state == http.StateHijacked:
		g.leave(at)
	default:
		g.order.MoveToBack(at)
	}
}

// leave needs mu.
func (g *guests) leave(at *list.Element) {
	delete(g.of, at.Value.(net.Conn))
	g.order.Remove(at)
}
