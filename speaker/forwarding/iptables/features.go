package iptables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead.dev/fairlead/speaker/forwarding/iptables/wire"
	"fairlead.dev/fairlead/speaker/outcome"
)

// feature is something that our rules need of the kernel, a rule that uses it, and
// the module that has it.
type feature struct{ table, rule, name, module string }

func (s style) features() []feature {
	reject := "icmp-port-unreachable"
	if s.family == 6 {
		reject = "icmp6-port-unreachable"
	}
	to := "10.0.0.1:80"
	if s.family == 6 {
		to = "[fd00::1]:80"
	}
	return []feature{
		{"nat", "-m comment --comment \"x\" -j RETURN", "the match comment", "xt_comment"},
		{"nat", s.in(ofPods, "src") + " -j RETURN", "the match set", "xt_set"},
		{"nat", "-m statistic --mode random --probability 0.5 -j RETURN", "the match statistic", "xt_statistic"},
		{"nat", fromNode + " -j RETURN", "the match addrtype", "xt_addrtype"},
		{"nat", "-m mark --mark 0x1/0x1 -j RETURN", "the match mark", "xt_mark"},
		{"nat", "-j MARK --set-xmark 0x1/0x1", "the target MARK", "xt_mark"},
		{"nat", "-p tcp -m tcp --dport 80 -j RETURN", "the match tcp", "xt_tcpudp"},
		{"nat", "-j MASQUERADE --random-fully", "the target MASQUERADE with --random-fully", "xt_MASQUERADE"},
		{"nat", "-p tcp -j DNAT --to-destination " + to, "the target DNAT", "xt_nat"},
		{"filter", "-m conntrack --ctstate NEW -j RETURN", "the match conntrack", "xt_conntrack"},
		{"filter", "-j REJECT --reject-with " + reject, "the target REJECT", "ipt_REJECT or ip6t_REJECT"},
		{"filter", s.redirect() + " -j DROP", "the match icmp or icmp6", "ip_tables or ip6_tables, later xt_tcpudp"},
	}
}

// askAgain is how often the kernel is asked for what it lacks.
const askAgain = time.Minute

// explain finds out which of the things that the rules need the kernel does not have,
// when it has refused what no Service is to blame for.
func (f *family) explain(ctx context.Context) error {
	if time.Since(f.asked) < askAgain {
		return f.lacks
	}
	f.asked, f.lacks = time.Now(), nil
	var lacks []error
	for _, has := range f.features() {
		i := 0
		if has.table == f.filter.table.name {
			i = 1
		}
		err := f.try(ctx, i, has.rule)
		if refused(err) {
			lacks = append(lacks, fmt.Errorf("the kernel does not have %s (module %s), or this iptables does not know it", has.name, has.module))
			continue
		}
		if err != nil {
			return nil // what keeps the program from running is told already
		}
	}
	if len(lacks) < len(f.features()) { // else the program does not work at all
		f.lacks = outcome.Caused(outcome.ReasonFeatureMissing, errors.Join(lacks...))
	}
	return f.lacks
}

// try writes a rule into a chain of its own, and removes it. It returns what a program or the kernel says
// of it.
func (f *family) try(ctx context.Context, i int, rule string) error {
	const chain = ours + "PROBE"
	t := f.tables()[i]
	if f.commands.variant == NFT {
		tx := wire.New(f.family, 4096, &f.socket)
		tx.Make(t.name, chain)
		err := tx.Append(t.name, chain, rule, 0)
		tx.Clear(t.name, chain)
		tx.Remove(t.name, chain)
		if err != nil {
			return err
		}
		return f.send(tx)
	}
	put, remove := newScript(t.name), newScript(t.name)
	put.chains([]string{chain})
	put.rules(chain, rule+"\n")
	remove.chains([]string{chain})
	remove.drop([]string{chain})
	return f.commands.restore(ctx, &f.runners[i], put.commit()+remove.commit())
}
