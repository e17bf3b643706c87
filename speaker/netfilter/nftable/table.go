package nftable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// Table is the table of one family.
type Table struct {
	Family addr.Family
	NFT    *nft.Table
	Salt   []byte // stands for the sets in the stamps of the rules
}

// New returns the table of a name.
func New(family addr.Family, name string) Table {
	t := Table{Family: family, NFT: &nft.Table{Name: name, Family: nft.TableFamilyIPv4}}
	if family == addr.IPv6 {
		t.NFT.Family = nft.TableFamilyIPv6
	}
	return t
}

// Chain is one chain, and where the kernel enters it by itself, if it does.
type Chain struct {
	Name  string
	At    Hook
	Rules []Rule
}

// Hook is a place in the path of packets; the zero value is none.
type Hook struct {
	Kind     nft.ChainType
	Number   nft.ChainHook
	Priority nft.ChainPriority
}

// Rule is one rule and what it does, in words.
type Rule struct {
	Says  string
	Exprs []expr.Any
}

func (h Hook) String() string {
	if h.Kind == "" {
		return ""
	}
	return describeHook(string(h.Kind), uint32(h.Number), int32(h.Priority), acceptPolicy)
}

// acceptPolicy is NF_ACCEPT.
const acceptPolicy = 1

func describeHook(kind string, number uint32, priority int32, policy uint32) string {
	return fmt.Sprint(kind, " ", number, " ", priority, " ", policy)
}

// HookOf describes the hook of a chain in the kernel as Hook.String does, "" for one without.
func HookOf(chain []byte) string {
	number, hooked := nfnetlink.Number(chain, unix.NFTA_CHAIN_HOOK, unix.NFTA_HOOK_HOOKNUM)
	if !hooked {
		return ""
	}
	priority, _ := nfnetlink.Number(chain, unix.NFTA_CHAIN_HOOK, unix.NFTA_HOOK_PRIORITY)
	policy, _ := nfnetlink.Number(chain, unix.NFTA_CHAIN_POLICY)
	return describeHook(nfnetlink.Text(chain, unix.NFTA_CHAIN_TYPE), number, int32(priority), policy)
}

// Content returns what tells a chain from one with another hook or other rules.
func (t *Table) Content(c Chain) string {
	content := []string{c.At.String()}
	for _, r := range c.Rules {
		content = append(content, t.Stamp(r))
	}
	return strings.Join(content, "\n")
}

// Holds returns whether the kernel has a chain, and all of its rules and no others. It asks for this chain
// alone: others may have thousands. The errors are the kernel's.
func (t *Table) Holds(c Chain) (bool, error) {
	content := ""
	err := t.Ask(unix.NFT_MSG_GETCHAIN, 0, t.Attributes().Text(unix.NFTA_CHAIN_NAME, c.Name), func(found []byte) {
		content = HookOf(found)
	})
	if err == nil {
		err = t.Ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, t.Attributes().Text(unix.NFTA_RULE_CHAIN, c.Name), func(r []byte) {
			// Older kernels know no such question, and tell all.
			if nfnetlink.Text(r, unix.NFTA_RULE_TABLE) == t.NFT.Name && nfnetlink.Text(r, unix.NFTA_RULE_CHAIN) == c.Name {
				content += "\n" + t.StampOf(r)
			}
		})
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read chain %s of table %s of %s: %w", c.Name, t.NFT.Name, t.Family, err)
	}
	return content == t.Content(c), nil
}

// Ask puts a question about nf_tables and hands over the attributes of each answer. The errors are the kernel's.
func (t *Table) Ask(message, flags int, about nfnetlink.Attributes, answer func([]byte)) error {
	return nfnetlink.Request(unix.NFNL_SUBSYS_NFTABLES, message, flags, t.Family, about, answer)
}

// Attributes says which table a question is about: in every message of nf_tables that is the
// first attribute (linux/netfilter/nf_tables.h).
func (t *Table) Attributes() nfnetlink.Attributes {
	return nfnetlink.Attributes{}.Text(unix.NFTA_TABLE_NAME, t.NFT.Name)
}

// Dormant is NFT_TABLE_F_DORMANT: the kernel enters no chain of the table.
const Dormant uint32 = 1

// Look returns whether the table is there, and its flags. The errors are the kernel's.
func (t *Table) Look() (there bool, flags uint32, err error) {
	err = t.Ask(unix.NFT_MSG_GETTABLE, 0, t.Attributes(), func(table []byte) {
		flags, _ = nfnetlink.Number(table, unix.NFTA_TABLE_FLAGS)
	})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT):
		return false, 0, nil // the latter two where the kernel has no nf_tables
	case err != nil:
		return false, 0, fmt.Errorf("look for table %s of %s: %w", t.NFT.Name, t.Family, err)
	}
	return true, flags, nil
}

// Packets returns how many packets all counters of the table have counted since their rules were
// written; 0 without the table. The errors are the kernel's.
func (t *Table) Packets() (packets uint64, err error) {
	err = t.Ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, t.Attributes(), func(rule []byte) {
		if nfnetlink.Text(rule, unix.NFTA_RULE_TABLE) != t.NFT.Name { // the kernel tells all
			return
		}
		nfnetlink.Each(nfnetlink.Find(rule, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, e []byte) {
			if nfnetlink.Text(e, unix.NFTA_EXPR_NAME) == "counter" {
				if n := nfnetlink.Find(e, unix.NFTA_EXPR_DATA, unix.NFTA_COUNTER_PACKETS); len(n) == 8 {
					packets += binary.BigEndian.Uint64(n)
				}
			}
		})
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("read the counters of table %s of %s: %w", t.NFT.Name, t.Family, err)
	}
	return packets, nil
}

// ParseElement reads one element of a set or map. The value is a verdict's chain or the data. end: the element is where an interval ends.
func ParseElement(data []byte) (key, value string, end bool) {
	nfnetlink.Each(data, func(kind uint16, v []byte) {
		switch kind {
		case unix.NFTA_SET_ELEM_KEY:
			key = string(nfnetlink.Find(v, unix.NFTA_DATA_VALUE))
		case unix.NFTA_SET_ELEM_DATA:
			if verdict := nfnetlink.Find(v, unix.NFTA_DATA_VERDICT); verdict != nil {
				value = nfnetlink.Text(verdict, unix.NFTA_VERDICT_CHAIN)
			} else {
				value = string(nfnetlink.Find(v, unix.NFTA_DATA_VALUE))
			}
		case unix.NFTA_SET_ELEM_FLAGS:
			if len(v) == 4 {
				end = v[3]&unix.NFT_SET_ELEM_INTERVAL_END != 0
			}
		}
	})
	return key, value, end
}
