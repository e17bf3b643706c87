package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/agent"
	"fairlead.dev/fairlead/speaker/desired"
	"fairlead.dev/fairlead/speaker/outcome"
)

// dividing is a kernel that takes two ports of a large Service at a time, and calls after with how often it has.
type dividing struct {
	forwarder
	portions *outcome.Portions
	after    func(passes int)
}

func (d dividing) Apply(ctx context.Context, want desired.Forwarding) (outcome.Missing, error) {
	d.Lock()
	missing, part := outcome.Missing{}, want
	part.Ports = maps.Clone(d.kernel)
	if part.Ports == nil {
		part.Ports = map[desired.PortKey]desired.Port{}
	}
	changes := want.Changes(d.kernel, 0, nil)
	for _, c := range d.portions.Next(changes) {
		if delete(part.Ports, c.Key); c.To != nil {
			part.Ports[c.Key] = *c.To
		}
	}
	d.Unlock()
	if _, err := d.forwarder.Apply(ctx, part); err != nil {
		return nil, err
	}
	missing.Add(outcome.Attempt{Want: want, Changes: changes, Held: part.Ports, Known: true, Sound: true})
	d.Lock()
	passes := d.applied
	d.Unlock()
	d.after(passes)
	return missing, d.portions.Err()
}

// giant makes the first Service one of so many ports.
func giant(c *view.Cluster, ports int) *view.Cluster {
	s, pod := c.Services[ref(1)], c.Endpoints.Of(ref(1))[0]
	s.Ports, pod.Ports = nil, nil
	for i := range ports {
		name := fmt.Sprint(i)
		s.Ports = append(s.Ports, view.ServicePort{Name: name, Protocol: view.TCP, Port: uint16(80 + i)})
		pod.Ports = append(pod.Ports, view.EndpointPort{Name: name, Protocol: view.TCP, Port: 8080})
	}
	c.Endpoints = c.Endpoints.With(map[view.Ref][]view.Endpoint{ref(1): {pod}})
	return c
}

// TestALargeServiceIsProgrammedInPortions has passes follow one another while a Service is put off: its address is announced when all
// of it is in the kernel, stays announced while it gets more ports, and goes before they do. What changes meanwhile is
// in the kernel after the next pass.
func TestALargeServiceIsProgrammedInPortions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := &world{}, &source{changed: make(chan struct{}, 1)}
		var claimed []bool // the giant's address, after each pass before
		var meanwhile *view.Cluster
		waited := 0 // passes until the kernel had the change
		d := dividing{forwarder{w}, &outcome.Portions{Most: 12}, func(int) {
			w.Lock()
			_, is := w.answers.Claims[vip(1)]
			claimed = append(claimed, is)
			_, come := w.kernel[desired.PortKey{Service: ref(9), Protocol: view.TCP, Family: 4}]
			if meanwhile != nil && !come {
				waited++
			}
			w.Unlock()
			if meanwhile != nil && len(claimed) == 2 {
				s.set(meanwhile)
			}
		}}
		a := agent.New(agent.Config{
			Options: desired.Options{Node: "a"}, Source: s, Forwarding: d, Health: health{w}, Layer2: layer2{w}, BGP: bgp{w},
			Reporter: w, Log: slog.New(slog.DiscardHandler), Resync: time.Hour,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		set := func(c *view.Cluster) []bool {
			claimed = nil
			s.set(c)
			synctest.Wait()
			return claimed
		}
		ports := func() int {
			return len(slices.DeleteFunc(slices.Collect(maps.Keys(w.kernel)), func(k desired.PortKey) bool { return k.Service != ref(1) }))
		}
		set(cluster(vip(2)))
		meanwhile = giant(cluster(vip(1), vip(2), vip(9)), 10)
		if got := set(giant(cluster(vip(1), vip(2)), 10)); len(got) < 5 || slices.Contains(got[:5], true) {
			t.Errorf("announced %v while it is programmed", got)
		}
		if waited > 2 {
			t.Errorf("another Service waits for %d passes", waited)
		}
		meanwhile = nil
		if _, is := w.answers.Claims[vip(1)]; !is || ports() != 10 || len(w.answers.Unable) > 0 {
			t.Errorf("announced %t with %d ports, unable %v", is, ports(), w.answers.Unable)
		}
		if got := set(giant(cluster(vip(1), vip(2)), 20)); len(got) < 5 || slices.Contains(got, false) {
			t.Errorf("announced %v while it gets more ports", got)
		}
		if got := set(cluster(vip(2))); len(got) < 5 || slices.Contains(got, true) || ports() != 0 {
			t.Errorf("announced %v while it goes; %d ports stay", got, ports())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, wrong := range w.wrong {
			t.Error(wrong)
		}
	})
}
