package show

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/lab"
	"fairlead.dev/fairlead/e2e/product"
)

// exposed is a Service of the demo and the address that it got.
type exposed struct {
	*corev1.Service
	pool    string
	address netip.Addr
}

// namespace is where the demo's web server runs.
const namespace = "demo"

// requests is how many the client sends to each address.
const requests = 12

// expose deploys the web server and asks for an address of each pool under each
// policy.
func (s *show) expose(ctx context.Context) error {
	s.chapter("A web server on three nodes, and four Services of type LoadBalancer")
	if err := s.step("web server ready on every node", func() error { return s.DeployWeb(ctx, namespace) }); err != nil {
		return err
	}
	for _, pool := range []string{"layer2", "bgp"} {
		for _, policy := range []corev1.ServiceExternalTrafficPolicy{"Local", "Cluster"} {
			service := product.WebService(namespace, pool+"-"+strings.ToLower(string(policy)), pool, policy)
			if err := s.exposeOne(ctx, pool, service); err != nil {
				return err
			}
		}
	}
	return s.kubectl(ctx, "-n", namespace, "get", "services")
}

// exposeOne creates a Service and waits for the first reply that its client gets.
func (s *show) exposeOne(ctx context.Context, pool string, service *corev1.Service) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("not within 30 s"))
	defer cancel()
	began := time.Now()
	if err := s.API.Create(ctx, service); err != nil {
		return err
	}
	e := exposed{Service: service, pool: pool}
	err := lab.Until(ctx, func() error {
		addresses, err := s.Addresses(ctx, client.ObjectKeyFromObject(service), 1)
		if err == nil {
			e.address = addresses[0]
		}
		return err
	})
	if err != nil {
		return err
	}
	given := time.Since(began)
	if _, err := product.FirstReply(ctx, s.Client, e.address, 80); err != nil {
		return err
	}
	s.say("%-14s got %-15s after %3d ms, first reply to the client after %3d ms",
		service.Name, e.address, given.Milliseconds(), time.Since(began).Milliseconds())
	s.services = append(s.services, e)
	return nil
}

// serve shows which nodes announce each address and what the pods see of the client.
func (s *show) serve(ctx context.Context) error {
	s.chapter(fmt.Sprintf("Who announces, and the client (%s) sends %d requests to each", s.Client.IPv4, requests))
	for _, e := range s.services {
		s.say("%s, %s, externalTrafficPolicy %s", e.address, e.pool, e.Spec.ExternalTrafficPolicy)
		if err := s.announcers(ctx, e); err != nil {
			return err
		}
		if err := s.replies(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// announcers shows the node that answers ARP, or the router's next hops.
func (s *show) announcers(ctx context.Context, e exposed) error {
	if e.pool == "layer2" {
		ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("no node for 10 s"))
		defer cancel()
		owner, err := s.Answerer(ctx, e.address)
		if err != nil {
			return err
		}
		s.say("    %s answers ARP for it", owner.Name)
		return nil
	}
	hops, err := s.Router.Routes(netip.PrefixFrom(e.address, e.address.BitLen()))
	if err != nil {
		return err
	}
	var names []string
	for _, hop := range hops {
		names = append(names, s.nameOf(hop))
	}
	s.say("    the router has a route to it over %s", strings.Join(names, ", "))
	return nil
}

// replies shows what the pods saw of the client's requests.
func (s *show) replies(ctx context.Context, e exposed) error {
	sources, pods := map[netip.Addr]int{}, map[string]int{}
	for range requests {
		one, cancel := context.WithTimeout(ctx, 3*time.Second)
		reply, err := product.Ask(one, s.Client, e.address, 80)
		cancel()
		if err != nil {
			return err
		}
		sources[reply.Source]++
		pods[reply.Pod]++
	}
	var seen []string
	for source, n := range sources {
		seen = append(seen, fmt.Sprintf("%s ×%d", s.nameOf(source), n))
	}
	s.say("    %d replies from %d pods, which saw: %s", requests, len(pods), strings.Join(seen, ", "))
	return nil
}

// nameOf adds to an address of the lab the name of its machine.
func (s *show) nameOf(a netip.Addr) string {
	for _, m := range s.Machines() {
		if a == m.IPv4 || a == m.IPv6 {
			return fmt.Sprintf("%s (%s)", m.Name, a)
		}
	}
	return a.String()
}

func (s *show) kubectl(ctx context.Context, args ...string) error {
	out, err := s.Kubectl(ctx, args...)
	if err != nil {
		return err
	}
	s.say("$ kubectl %s", strings.Join(args, " "))
	for line := range strings.Lines(out) {
		s.plain("    %s", line)
	}
	return nil
}
