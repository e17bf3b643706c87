package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/fairlead/e2e/product"
)

// pools of the samples, one announced by each protocol.
func pools() []string { return []string{"layer2", "bgp"} }

// local keeps the client's address; it is what the figures are taken with.
const local = corev1.ServiceExternalTrafficPolicyLocal

// firstReplies creates Services one after another and times the first reply to each.
func firstReplies(ctx context.Context, out io.Writer, c *product.Cluster, runs int) error {
	fmt.Fprintf(out, "Service created → first reply at the client, %d runs, ms\n\n", runs)
	fmt.Fprintf(out, "| protocol | min | median | max | address given, median |\n|---|---|---|---|---|\n")
	for _, pool := range pools() {
		var replies, given []time.Duration
		for n := range runs {
			s := product.WebService(namespace, fmt.Sprintf("first-%s-%d", pool, n), pool, local)
			at, reply, err := firstReply(ctx, c, s)
			if err != nil {
				return err
			}
			given, replies = append(given, at), append(replies, reply)
		}
		slices.Sort(replies)
		slices.Sort(given)
		fmt.Fprintf(out, "| %s | %d | %d | %d | %d |\n", pool, replies[0].Milliseconds(), median(replies).Milliseconds(),
			replies[len(replies)-1].Milliseconds(), median(given).Milliseconds())
	}
	return nil
}

// median of sorted durations.
func median(sorted []time.Duration) time.Duration {
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

func firstReply(ctx context.Context, c *product.Cluster, s *corev1.Service) (given, replied time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("not within 30 s"))
	defer cancel()
	began := time.Now()
	if err := c.API.Create(ctx, s); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, c.API.Delete(context.WithoutCancel(ctx), s)) }()
	vip, err := address(ctx, c, s)
	if err != nil {
		return 0, 0, err
	}
	given = time.Since(began)
	_, err = product.FirstReply(ctx, c.Client, vip, 80)
	return given, time.Since(began), err
}

// address waits for the address of a Service.
func address(ctx context.Context, c *product.Cluster, s *corev1.Service) (vip netip.Addr, err error) {
	err = product.Until(ctx, func() error {
		addresses, err := c.Addresses(ctx, client.ObjectKeyFromObject(s), 1)
		if err == nil {
			vip = addresses[0]
		}
		return err
	})
	return vip, err
}

// restarts sends requests while each speaker's pod is replaced in turn.
func restarts(ctx context.Context, out io.Writer, c *product.Cluster, requests int) error {
	fmt.Fprintf(out, "\nat least %d requests, each on a new connection, while every speaker's pod is replaced in turn (kubectl rollout restart)\n\n", requests)
	fmt.Fprintf(out, "| protocol | requests | failed | longest time between two replies, ms |\n|---|---|---|---|\n")
	for _, pool := range pools() {
		s := product.WebService(namespace, "restart-"+pool, pool, local)
		count, err := restart(ctx, c, s, requests)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "| %s | %d | %d | %d |\n", pool, count.OK+count.Failed, count.Failed, count.Longest.Milliseconds())
		for failure, n := range count.Errors {
			fmt.Fprintf(out, "\n%d × %s\n\n", n, failure)
		}
	}
	return nil
}

func restart(ctx context.Context, c *product.Cluster, s *corev1.Service, requests int) (total product.Count, err error) {
	if err := c.API.Create(ctx, s); err != nil {
		return total, err
	}
	defer func() { err = errors.Join(err, c.API.Delete(context.WithoutCancel(ctx), s)) }()
	vip, err := address(ctx, c, s)
	if err != nil {
		return total, err
	}
	if _, err := product.FirstReply(ctx, c.Client, vip, 80); err != nil {
		return total, err
	}
	total.Errors = map[string]int{}
	time.Sleep(3 * time.Second) // every node's route is in the router
	for total.OK+total.Failed < requests {
		loading, stop := context.WithCancel(ctx)
		done := make(chan product.Count)
		go func() { done <- product.Load(loading, c.Client, vip, 80) }()
		_, err := c.Kubectl(ctx, "-n", product.Namespace, "rollout", "restart", "daemonset/fairlead-speaker")
		if err == nil {
			err = c.WaitInstalled(ctx)
		}
		stop()
		count := <-done
		if err != nil {
			return total, err
		}
		total.OK += count.OK
		total.Failed += count.Failed
		total.Longest = max(total.Longest, count.Longest)
		for failure, n := range count.Errors {
			total.Errors[failure] += n
		}
	}
	return total, nil
}

// memory reads the resident set of every process of ours on every node.
func memory(ctx context.Context, out io.Writer, c *product.Cluster) error {
	fmt.Fprintf(out, "\nresident memory, MiB\n\n| node | process | VmRSS |\n|---|---|---|\n")
	for _, n := range c.Nodes() {
		text, err := n.Exec(ctx, "sh", "-c",
			`for p in $(pgrep -f '^/usr/local/bin/(controller|speaker)'); do echo "$(tr '\0' ' ' </proc/$p/cmdline | cut -d' ' -f1,2) $(awk '/^VmRSS/{printf "%.1f", $2/1024}' /proc/$p/status)"; done`)
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			program := strings.TrimPrefix(words[0], "/usr/local/bin/")
			if len(words) > 2 && words[1] == "pulse" {
				program = "pulse"
			}
			fmt.Fprintf(out, "| %s | %s | %s |\n", n.Name, program, words[len(words)-1])
		}
	}
	return nil
}
