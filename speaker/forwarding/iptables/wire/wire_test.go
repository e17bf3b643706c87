package wire_test

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/testenv/netlab"
	"fairlead.dev/fairlead/speaker/forwarding/iptables/wire"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

const (
	table  = "nat"
	filter = "filter"
	theirs = "OUR-THEIRS" // chains that iptables fills
	here   = "OUR-HERE"   // and that are filled here
	other  = "OUR-OTHER"
)

// known are rules of all kinds that are written, with ADDRESS for one of the family.
var known = []string{
	"-g " + other,
	"-j " + other,
	"-j ACCEPT",
	"-j DROP",
	"-j MARK --set-xmark 0x4000/0x4000",
	"-j MARK --set-xmark 0x0/0x4000",
	"-d ADDRESS -p tcp -m tcp --dport 80 -g " + other,
	"-d ADDRESS -p udp -m udp --dport 53 -g " + other,
	"-d ADDRESS -p sctp -g " + other,
	"-j REJECT --reject-with REASON",
	"-p tcp -g " + other,
	"-p tcp -m tcp --dport 0 -g " + other,
	"-p tcp -m tcp --dport 65535 -g " + other,
	"-p tcp -m tcp --dport 0:7 -g " + other,
	"-p udp -m udp --dport 30000:32767 -g " + other,
	`-d ADDRESS -p tcp -m tcp --dport 80 -m comment --comment "shop/front:http" -g ` + other,
	`-m comment --comment "` + strings.Repeat("x", 255) + `" -j ACCEPT`,
	"-p tcp -j DNAT --to-destination TO",
	"-p udp -j DNAT --to-destination TO",
	"-p sctp -j DNAT --to-destination TO",
	`-m comment --comment "shop/front" -m statistic --mode random --probability 0.3333333333 -p tcp -j DNAT --to-destination TO`,
	"-m statistic --mode random --probability 0.5000000000 -p tcp -j DNAT --to-destination TO",
	"-m statistic --mode random --probability 0.0009765625 -p tcp -j DNAT --to-destination TO",
	"-m statistic --mode random --probability 0.0001234568 -p tcp -j DNAT --to-destination TO",
	"-m set --match-set OUR-CLIENTS src -g " + other,
	"-m set ! --match-set OUR-CLIENTS src -m addrtype --src-type LOCAL -g " + other,
	"-m set --match-set OUR-PLACES dst,dst -m set ! --match-set OUR-CLIENTS src -g " + other,
	"-m set --match-set OUR-PLACES src,dst -g " + other,
	"-j SET --add-set OUR-CLIENTS src --exist --timeout 10800",
	"-i cali+ -j RETURN",
	"! -i lo -j DROP",
	"-d ADDRESS -o lo -m addrtype --dst-type LOCAL -j " + other,
	"! -s NETWORK -m set --match-set OUR-CLIENTS src -j RETURN",
	"-m addrtype ! --dst-type LOCAL -g " + other,
	"-m conntrack --ctstate NEW -j " + other,
	"-m conntrack --ctstate INVALID -j " + other,
	"-m conntrack --ctstate INVALID,UNTRACKED -j " + other,
	"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	"-m conntrack --ctstate DNAT --ctstatus CONFIRMED -j ACCEPT",
	"! -i lo -m conntrack ! --ctstate SNAT,DNAT -j DROP",
	"-m mark --mark 0x4000/0x4000 -j ACCEPT",
	"-m mark ! --mark 0x4000/0x4000 -j RETURN",
	"-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK -j RETURN",
	"-p tcp -m tcp --tcp-flags RST RST -j RETURN",
	"-p tcp -j REJECT --reject-with tcp-reset",
	"-p ICMP -m set --match-set OUR-CLIENTS dst -j DNAT --to-destination HOST",
	"-p ICMP -m REDIRECT -j DROP",
	"-p sctp -m sctp --dport 80 -g " + other,
	"-p sctp -m sctp --dport 80:87 -g " + other,
	"-j MASQUERADE --random-fully",
	"-j SNAT --to-source HOST --random-fully",
	"-d ADDRESS -j SNAT --to-source HOST --random-fully",
}

// unknown are rules of which something is not known, or amiss.
var unknown = []string{
	"-p tcp",
	"-j REJECT",
	"-j REJECT --reject-with icmp-host-unreachable",
	"-j MASQUERADE",
	"-j SNAT --to-source HOST",
	"-j SNAT --to-source TO --random-fully",
	"-j ACCEPT -p tcp",
	"-j MARK --set-xmark 0x1/0x1 --more",
	"-p igmp -j ACCEPT",
	"-p udp -j REJECT --reject-with tcp-reset",
	"-m icmp --icmp-type 5 -j ACCEPT",
	"-p icmp -m icmp --icmp-type 256 -j ACCEPT",
	"-p icmp -m icmp6 --icmpv6-type 137 -j ACCEPT",
	"-p icmp -j DNAT --to-destination TO",
	"-p tcp -m udp --dport 53 -j ACCEPT",
	"-m tcp --dport 53 -j ACCEPT",
	"-p tcp -m tcp --sport 53 -j ACCEPT",
	"-p tcp -m tcp --dport 53:52 -j ACCEPT",
	"-p tcp -m tcp --dport 65536 -j ACCEPT",
	"-p tcp -p udp -j ACCEPT",
	"-m statistic --mode nth --every 2 -j ACCEPT",
	"-m statistic --mode random --probability 1.5 -j ACCEPT",
	"-m statistic --mode random --probability NaN -j ACCEPT",
	`-m comment --comment "a \" b" -j ACCEPT`,
	`-m comment --comment "a" and more -j ACCEPT`,
	`-m comment --comment "` + strings.Repeat("x", 256) + `" -j ACCEPT`,
	"-d 10.0.0.1/24 -j ACCEPT",
	"-d 10.0.0.1 -j ACCEPT",
	"-j DNAT --to-destination TO",
	"-p tcp -j DNAT --to-destination TO --random",
	"-p tcp -j DNAT --to-destination 10.0.0.1",
	"-m set --match-set OUR-ABSENT src -j ACCEPT",
	"-m set --match-set OUR-CLIENTS src,up -j ACCEPT",
	"-m set --match-set OUR-CLIENTS src,src,src,src,src,src,src,src -j ACCEPT",
	"-j SET --add-set OUR-CLIENTS src",
	"-j SET --del-set OUR-CLIENTS src",
}

// in are rules for a family, once for each of some prefixes if they have one.
func in(family addr.Family, rules []string) []string {
	prefixes, to, reason := []string{"10.96.0.0/12", "10.0.0.0/8", "10.96.1.0/24", "10.96.1.128/25", "10.96.1.7/32"}, "10.244.1.2:8080", "icmp-port-unreachable"
	if family == addr.IPv6 {
		prefixes, to, reason = []string{"fd00:96::/65", "fd00:96::/64", "fd00:96::8/125", "fd00:96::7/128"}, "[fd00:244::2]:8080", "icmp6-port-unreachable"
	}
	host, icmp, redirect := "10.244.1.2", "icmp", "icmp --icmp-type 5"
	if family == addr.IPv6 {
		host, icmp, redirect = "fd00:244::2", "ipv6-icmp", "icmp6 --icmpv6-type 137"
	}
	var all []string
	for _, rule := range rules {
		rule = strings.NewReplacer("HOST", host, "ICMP", icmp, "REDIRECT", redirect, "TO", to, "REASON", reason, "NETWORK", prefixes[1]).Replace(rule)
		if !strings.Contains(rule, "ADDRESS") {
			all = append(all, rule)
			continue
		}
		for _, prefix := range prefixes {
			all = append(all, strings.ReplaceAll(rule, "ADDRESS", prefix),
				strings.ReplaceAll(rule, "-d ADDRESS", "-s "+prefix), strings.ReplaceAll(rule, "-d ADDRESS", "-s "+prefix+" -d "+prefix))
		}
	}
	return all
}

// host has the table and the sets that the rules name.
func host(t *testing.T, family addr.Family) *netlab.Host {
	h := netlab.NewHost(t, "node")
	run(t, h, "", "ipset", "create", "OUR-CLIENTS", "hash:ip", "family", kind(family), "timeout", "10")
	run(t, h, "", "ipset", "create", "OUR-PLACES", "hash:ip,port", "family", kind(family))
	chains := "\n:" + theirs + " - [0:0]\n:" + other + " - [0:0]\nCOMMIT\n"
	run(t, h, "*nat"+chains+"*filter"+chains, program(family, "restore"), "--noflush")
	return h
}

func kind(family addr.Family) string {
	if family == addr.IPv6 {
		return "inet6"
	}
	return "inet"
}

func program(family addr.Family, action string) string {
	if family == addr.IPv6 {
		return "ip6tables-nft-" + action
	}
	return "iptables-nft-" + action
}

func run(t *testing.T, h *netlab.Host, input, name string, args ...string) string {
	t.Helper()
	var out []byte
	h.Do(func() {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(input)
		var err error
		if out, err = cmd.CombinedOutput(); err != nil {
			t.Errorf("%s %v: %v: %s", name, args, err, out)
		}
	})
	return string(out)
}

// inKernel are the expressions of the rules of a chain.
func inKernel(t *testing.T, family addr.Family, table, chain string) (rules []string) {
	t.Helper()
	query := nfnetlink.Attributes(nil).Text(unix.NFTA_RULE_TABLE, table).Text(unix.NFTA_RULE_CHAIN, chain)
	err := nfnetlink.Request(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, family, query, func(answer []byte) {
		rules = append(rules, fmt.Sprintf("%x %x", nfnetlink.Find(answer, unix.NFTA_RULE_EXPRESSIONS), nfnetlink.Find(answer, unix.NFTA_RULE_USERDATA)))
	})
	if err != nil {
		t.Errorf("read %s: %v", chain, err)
	}
	return rules
}

func eachFamily(t *testing.T, test func(t *testing.T, family addr.Family, h *netlab.Host)) {
	for _, family := range addr.Families() {
		t.Run(family.String(), func(t *testing.T) {
			t.Parallel()
			test(t, family, host(t, family))
		})
	}
}

// TestSameAsIPTables holds that the kernel gets the same of a rule as by iptables-nft-restore,
// byte by byte, and that iptables-nft-save shows it as what it is.
func TestSameAsIPTables(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, family addr.Family, h *netlab.Host) {
		but := func(target ...string) []string {
			return slices.DeleteFunc(in(family, known), func(rule string) bool {
				return slices.ContainsFunc(target, func(name string) bool { return strings.Contains(rule, "-j "+name) })
			})
		}
		sameAsIPTables(t, family, h, table, but("DROP", "REJECT"))
		sameAsIPTables(t, family, h, filter, but("DNAT", "MASQUERADE", "SNAT"))
	})
}

func sameAsIPTables(t *testing.T, family addr.Family, h *netlab.Host, table string, rules []string) {
	appended := "-A " + theirs + " "
	script := "*" + table + "\n" + appended + strings.Join(rules, "\n"+appended) + "\nCOMMIT\n"
	run(t, h, script, program(family, "restore"), "--noflush")
	h.Do(func() {
		tr := wire.New(family, 0, &nfnetlink.Conn{})
		tr.Make(table, here)
		if err := errors.Join(tr.Append(table, here, strings.Join(rules, "\n"), 0), tr.Send()); err != nil {
			t.Error(err)
		}
		want, got := inKernel(t, family, table, theirs), inKernel(t, family, table, here)
		if len(want) != len(rules) || len(got) != len(rules) {
			t.Fatalf("%d rules by iptables, %d here, want %d", len(want), len(got), len(rules))
		}
		for i, rule := range rules {
			if got[i] != want[i] {
				t.Errorf("%s:\n%s\nby iptables:\n%s", rule, got[i], want[i])
			}
		}
	})
	of := func(chain string) (shown []string) {
		for line := range strings.Lines(run(t, h, "", program(family, "save"), "-t", table)) {
			if rule, ok := strings.CutPrefix(line, "-A "+chain+" "); ok {
				shown = append(shown, rule)
			}
		}
		return shown
	}
	if got, want := of(here), of(theirs); !slices.Equal(got, want) || len(got) != len(rules) {
		t.Errorf("iptables shows\n%s\nwant\n%s", got, want)
	}
}

// TestUnknownRules holds that a rule which is not known in all its parts is told.
func TestUnknownRules(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, family addr.Family, h *netlab.Host) {
		h.Do(func() {
			for _, rule := range in(family, unknown) {
				tr := wire.New(family, 0, &nfnetlink.Conn{})
				if err := tr.Append(table, here, "-j ACCEPT\n"+rule+"\n-j DROP", 0); err == nil || !strings.Contains(err.Error(), rule) {
					t.Errorf("%s: error %v", rule, err)
				}
			}
		})
	})
}

// TestAllOrNothing holds that a transaction of which the kernel minds a part changes nothing, and that the
// error tells which chain it is about.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, family addr.Family, h *netlab.Host) {
		h.Do(func() {
			commit := func(write func(tr *wire.Transaction)) error {
				tr := wire.New(family, 0, &nfnetlink.Conn{})
				tr.Make(table, here)
				tr.Clear(table, here)
				write(tr)
				return tr.Send()
			}
			add := func(tr *wire.Transaction, chain, rules string) {
				if err := tr.Append(table, chain, rules, 7); err != nil {
					t.Error(err)
				}
			}
			if err := commit(func(tr *wire.Transaction) { add(tr, here, "-j ACCEPT\n-g OUR-OTHER") }); err != nil {
				t.Fatal(err)
			}
			before := inKernel(t, family, table, here)
			err := commit(func(tr *wire.Transaction) {
				add(tr, here, "-g OUR-OTHER")
				add(tr, theirs, "-g OUR-ABSENT")
			})
			if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), theirs) {
				t.Errorf("a rule to a chain that is not there: %v, want %v about %s", err, unix.ENOENT, theirs)
			}
			if got := inKernel(t, family, table, here); !slices.Equal(got, before) || len(got) != 2 {
				t.Errorf("the rules are now %v, were %v", got, before)
			}
			if err := commit(func(tr *wire.Transaction) { add(tr, here, "-j ACCEPT") }); err != nil {
				t.Fatal(err)
			}
			if got := inKernel(t, family, table, here); !slices.Equal(got, before[:1]) {
				t.Errorf("replaced, the rules are %v, want %v", got, before[:1])
			}
		})
	})
}

// TestTag holds that a rule is read as it was written, and that iptables and nft do not mind its tag.
func TestTag(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, family addr.Family, h *netlab.Host) {
		var rules []wire.Rule
		h.Do(func() {
			tr := wire.New(family, 0, &nfnetlink.Conn{})
			tr.Make(table, here)
			if err := errors.Join(tr.Append(table, here, "-j ACCEPT\n-j OUR-OTHER", 1<<63), tr.Insert(table, theirs, "-j OUR-OTHER", 0), tr.Send()); err != nil {
				t.Fatal(err)
			}
			query := nfnetlink.Attributes(nil).Text(unix.NFTA_RULE_TABLE, table)
			err := nfnetlink.Request(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, family, query, func(answer []byte) {
				rules = append(rules, wire.ParseRule(answer))
			})
			if err != nil {
				t.Error(err)
			}
		})
		if len(rules) != 3 || rules[0].Text() != "-j OUR-OTHER" || rules[0].Chain != theirs || rules[1].Tag != 1<<63 || rules[2].Tag != 1<<63+1 {
			t.Fatalf("the rules are read as %+v", rules)
		}
		run(t, h, "", program(family, "save"), "-t", table)
		run(t, h, "", "nft", "list", "ruleset")
		h.Do(func() {
			tr := wire.New(family, 0, &nfnetlink.Conn{})
			tr.Delete(table, theirs, rules[0].Handle)
			if err := tr.Send(); err != nil {
				t.Error(err)
			}
			if left := inKernel(t, family, table, theirs); len(left) != 0 {
				t.Errorf("a rule that was deleted is left: %v", left)
			}
		})
	})
}

// FuzzAppend holds that no text makes a transaction that is not whole.
func FuzzAppend(f *testing.F) {
	for _, family := range addr.Families() {
		for _, rule := range in(family, slices.Concat(known, unknown)) {
			f.Add(rule, family == addr.IPv6)
		}
	}
	f.Fuzz(func(t *testing.T, rule string, six bool) {
		family := addr.IPv4
		if six {
			family = addr.IPv6
		}
		tr := wire.New(family, 0, &nfnetlink.Conn{})
		before := tr.Size()
		if err := tr.Append(table, here, rule, 1); err == nil && rule != "" && tr.Size() == before || tr.Size()%4 != 0 {
			t.Errorf("error %v, and %d bytes are %d", err, before, tr.Size())
		}
	})
}
