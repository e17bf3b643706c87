package product

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/fairlead/e2e/lab"
)

// State tells what helps to understand a failure: the pods, the client's neighbours, and
// what Fairlead has logged in the time since.
func (c *Cluster) State(since time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var text strings.Builder
	tell := func(out string, err error) {
		text.WriteString(out)
		if err != nil {
			fmt.Fprintln(&text, err)
		}
	}
	tell(c.Kubectl(ctx, "get", "pods", "-A", "-o", "wide"))
	tell(c.Client.Exec(ctx, "ip", "neighbour"))
	for _, component := range []string{"speaker", "controller"} {
		tell(c.Kubectl(ctx, "-n", Namespace, "logs", "-l", "app.kubernetes.io/component="+component, "--all-containers", "--prefix",
			"--max-log-requests=10", "--tail=40", fmt.Sprintf("--since=%ds", int(since.Seconds())+5)))
	}
	return text.String()
}

// Answerer asks on the LAN, from the client, for an address until one node answers for it, and
// returns that node. It is an error if ctx ends before: no node answers, or two do.
func (c *Cluster) Answerer(ctx context.Context, address netip.Addr) (*lab.Node, error) {
	var owner *lab.Node
	err := lab.Until(ctx, func() error {
		out, err := c.ask(ctx, address)
		if err != nil {
			return err
		}
		owner, err = c.nodeIn(out, address)
		return err
	})
	return owner, err
}

// Answerers asks once on the LAN, from the client, and gives all nodes that answer. It is an
// error if none does.
func (c *Cluster) Answerers(ctx context.Context, address netip.Addr) ([]*lab.Node, error) {
	out, err := c.ask(ctx, address)
	return c.nodesIn(out), err
}

func (c *Cluster) ask(ctx context.Context, address netip.Addr) (out string, err error) {
	if address.Is4() {
		out, err = c.askARP(ctx, address)
	} else {
		out, err = c.askNDP(ctx, address)
	}
	if err != nil {
		err = fmt.Errorf("no node answers for %s: %w: %s", address, err, out)
	}
	return out, err
}

func (c *Cluster) askARP(ctx context.Context, address netip.Addr) (string, error) {
	return c.Client.Exec(ctx, "arping", "-I", "eth0", "-c", "2", "-w", "2", address.String())
}

// askNDP makes the client's kernel ask anew, and gives the advertisements of the
// address that come within two seconds.
func (c *Cluster) askNDP(ctx context.Context, address netip.Addr) (string, error) {
	const within = 2 * time.Second
	told, err := c.Client.Capture(ctx, fmt.Sprintf("icmp6 and ip6[40] == 136 and src host %s", address))
	if err != nil {
		return "", err
	}
	defer told.Stop()
	if out, err := c.Client.Exec(ctx, "ip", "-6", "neighbour", "flush", "to", address.String(), "dev", "eth0"); err != nil {
		return out, err
	}
	const discard = "9"
	conn, err := c.Client.Dial(ctx, "udp", net.JoinHostPort(address.String(), discard))
	if err != nil {
		return "", err
	}
	_, err = conn.Write([]byte("who has it?"))
	if err := errors.Join(err, conn.Close()); err != nil {
		return "", err
	}
	select {
	case <-time.After(within):
		return strings.Join(told.Stop(), "\n"), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Neighbor is the node that the client's neighbour table has for an address. It is an error if it
// has none.
func (c *Cluster) Neighbor(ctx context.Context, address netip.Addr) (*lab.Node, error) {
	out, err := c.Client.Exec(ctx, "ip", "neighbour", "show", address.String(), "dev", "eth0")
	if err != nil {
		return nil, err
	}
	return c.nodeIn(out, address)
}

// nodeIn finds the one node with a hardware address in what a program printed.
func (c *Cluster) nodeIn(out string, address netip.Addr) (*lab.Node, error) {
	found := c.nodesIn(out)
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no node answers for %s: %s", address, out)
	case 1:
		return found[0], nil
	default:
		return nil, fmt.Errorf("%s and %s answer for %s: %s", found[0].Name, found[1].Name, address, out)
	}
}

func (c *Cluster) nodesIn(out string) []*lab.Node {
	return slices.DeleteFunc(c.Nodes(), func(n *lab.Node) bool {
		return !strings.Contains(strings.ToLower(out), n.MAC.String())
	})
}

// How long one of several attempts may take. A SYN that is lost while an address is
// not announced yet would be sent again by the kernel only after a second; a test
// that times an announcement must ask anew before. On a machine that is so busy that a reply
// takes longer, the attempts take longer, too.
const (
	firstAttempt   = 100 * time.Millisecond
	longestAttempt = time.Second
)

// FirstReply asks again and again until there is a reply or ctx ends. An error has the reason of
// the last attempt.
func FirstReply(ctx context.Context, from *lab.Machine, address netip.Addr, port uint16) (Reply, error) {
	var reply Reply
	patience := firstAttempt
	err := lab.Until(ctx, func() (err error) {
		one, stop := context.WithTimeout(ctx, patience)
		defer stop()
		reply, err = Ask(one, from, address, port)
		patience = min(patience*5/4, longestAttempt)
		return err
	})
	if err != nil {
		return Reply{}, fmt.Errorf("%s gets no reply from %s: %w", from.Name, address, err)
	}
	return reply, nil
}
