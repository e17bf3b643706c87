package pulse

import (
	"context"
	"time"
)

func (s *Server) leaving() bool { return s.table != nil && s.table.Leaving }

// goodbye ends the answers and the hellos, in the order that suits.
func (s *Server) goodbye() {
	ctx, cancel := context.WithTimeout(context.Background(), bfdWithin)
	defer cancel()
	if s.leaving() {
		var hold time.Duration
		if s.table.ShutsDown {
			hold = shutdownHold
		}
		s.tellRouters(ctx, 0)
		s.silence()
		s.cfg.Mesh.Goodbye(hold)
		return
	}
	s.cfg.Mesh.Goodbye(restartHold)
	s.tellRouters(ctx, bfdHold)
	s.silence()
}

func (s *Server) silence() {
	s.cfg.ARP.Close()
	s.cfg.NDP.Close()
}

// tellRouters says goodbye to those at the other ends of BFD sessions.
func (s *Server) tellRouters(ctx context.Context, hold time.Duration) {
	if err := s.cfg.BFD.Goodbye(ctx, hold); err != nil {
		s.cfg.Log.Warn("a router may take this restart for the death of the node", "error", err)
	}
}
