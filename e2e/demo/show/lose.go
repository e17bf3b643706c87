package show

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/probe"
	"fairlead.dev/fairlead/e2e/product"
)

// lose kills the node that answers for the layer 2 address and has routes announced,
// while the client goes on asking for every address.
func (s *show) lose(ctx context.Context) error {
	first := s.services[0]
	owner, err := s.Answerer(ctx, first.address)
	if err != nil {
		return err
	}
	s.chapter(fmt.Sprintf("The power of %s, which answers for %s, is cut", owner.Name, first.address))
	began, dead := time.Now(), make(chan struct{})
	gaps := make([]time.Duration, len(s.services))
	asking, still := errgroup.WithContext(ctx)
	for i, e := range s.services {
		asking.Go(func() (err error) {
			gaps[i], err = s.servedAgain(still, e, began, dead)
			return err
		})
	}
	asking.Go(func() error {
		defer close(dead)
		return owner.Kill(still)
	})
	if err := asking.Wait(); err != nil {
		return err
	}
	s.say("%s is dead", owner.Name)
	for i, e := range s.services {
		what := "went on being served"
		if gaps[i] > 0 {
			what = fmt.Sprintf("served again %5d ms after the power went", gaps[i].Milliseconds())
		}
		s.say("%-15s policy %-7s %s", e.address, e.Spec.ExternalTrafficPolicy, what)
		if e.pool != "layer2" {
			continue
		}
		if err := s.announcers(ctx, e); err != nil {
			return err
		}
	}
	return s.routesWithout(ctx, owner, began)
}

// pace is the time between two questions to one address.
const pace = 5 * time.Millisecond

// lost is how long a reply may take: longer than it does on a busy machine, and shorter than
// it takes the kernel to send a SYN again.
const lost = 500 * time.Millisecond

// inARow is how many replies in a row show that nothing is lost any more.
const inARow = 10

// servedAgain asks until the node is dead and the client is served by the living nodes,
// and gives the time from the power cut to the first of several questions in a row that were
// answered; 0 if none was lost. It does not wait for one before it asks the next. Over BGP one reply
// has to do: until the hold time ends, the router goes on choosing the dead node for some of the connections.
func (s *show) servedAgain(ctx context.Context, e exposed, began time.Time, dead <-chan struct{}) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("no reply for 30 s"))
	defer cancel()
	asking := probe.Start(ctx, pace, lost, func(ctx context.Context) error {
		_, err := product.Ask(ctx, s.Client, e.address, 80)
		return err
	})
	defer asking.End()
	wanted := 1
	if e.pool == "layer2" {
		wanted = inARow
	}
	for {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-dead:
			asking.Mark()
			dead = nil
		case <-time.After(pace):
		}
		if since, interrupted, settled := asking.Unbroken(wanted); settled {
			if !interrupted {
				return 0, nil
			}
			return since.Sub(began), nil
		}
	}
}

// routesWithout waits until the router has no route over the dead node any more.
func (s *show) routesWithout(ctx context.Context, dead *lab.Node, began time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("not for 30 s"))
	defer cancel()
	for _, e := range s.services {
		if e.pool == "layer2" {
			continue
		}
		err := lab.Until(ctx, func() error {
			hops, err := s.Router.Routes(netip.PrefixFrom(e.address, e.address.BitLen()))
			if err == nil && slices.Contains(hops, dead.IPv4) {
				err = fmt.Errorf("the router still has a route to %s over %s", e.address, dead.Name)
			}
			return err
		})
		if err != nil {
			return err
		}
		s.say("%-15s no route over %s any more %d ms after the power went", e.address, dead.Name, time.Since(began).Milliseconds())
		if err := s.announcers(ctx, e); err != nil {
			return err
		}
	}
	return nil
}
