package iptables

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/forwarding/iptables/wire"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// firstTable has a copy of the chains of our nat table while others translate destinations by nf_tables, such as
// a plugin of host ports: of chains of one priority the kernel asks the one first that was made last, so that
// such a chain may come before those of iptables. The copy comes before both.
const firstTable = "fairlead-nat"

// first is that table of one family.
type first struct {
	*table  // nil: there is none, and none is needed
	epoch   kernelwatch.Epoch
	unknown bool  // there may be no nf_tables
	failure error // of the last look or write
}

// firstJumps are those of the nat table that translate destinations.
func firstJumps() []jump { return natJumps()[:2] }

// disturbed tells whether others wrote to nf_tables since the last look. Without nf_tables the kernel would look for its module each time that it is asked.
func (t *first) disturbed(now func() kernelwatch.Epoch) bool { return !t.unknown && now() != t.epoch }

// comeFirst finds out whether a copy is needed, and reads it or has it removed.
func (f *family) comeFirst() {
	if !f.reading.Allowed() || !f.watch.generation.Changed(f.first.epoch) {
		return
	}
	defer func(began time.Time) { f.reading.Spend(time.Since(began)) }(time.Now())
	var names []string
	var needed bool
	epoch, err := f.watch.generation.Read(func() (err error) {
		names, needed, err = othersTranslate(f.family)
		return err
	})
	f.first.epoch, f.first.unknown, f.first.failure = epoch, err != nil, nil
	switch {
	case err != nil:
		if f.commands.variant == NFT || f.first.table != nil { // else the kernel may well have no nf_tables
			f.first.failure = err
		}
	case needed:
		if f.first.table == nil {
			f.log.Info("Another program translates destinations by nf_tables: our rules are put before its chains, too", "table", firstTable)
			f.first.table = newTable(firstTable, firstJumps())
			f.first.want = f.nat.table.want
			f.first.forget()
			f.nat.table.mirror = f.first.table
		}
		var s saved
		if s, f.first.failure = f.first.quickCheck(&f.socket, f.family); f.first.failure == nil {
			f.repairs += len(f.first.compare(s, false))
		}
	case slices.Contains(names, firstTable):
		f.nat.table.mirror, f.first.table = nil, nil
		f.first.failure = removeFirst(f.family, f.watch.generation)
	default:
		f.nat.table.mirror, f.first.table = nil, nil
	}
	if f.first.failure != nil { // the next Apply looks again, when the error has that called
		f.first.epoch, f.first.unknown = 0, true
	}
}

// writeFirst brings the copy up to date, after the tables themselves and apart from them: if the kernel refuses
// it, no Service goes without its rules.
func (f *family) writeFirst() {
	if f.first.table == nil || f.first.asWanted() {
		return
	}
	tx := wire.New(f.family, f.first.size(), &f.socket)
	err := f.first.encode(tx)
	if err == nil {
		err = f.send(tx)
	}
	if err == nil {
		f.first.written()
	}
	f.first.failure = err
}

// removeFirst removes the copy. It returns the kernel's errors.
func removeFirst(family addr.Family, g *kernelwatch.Generation) error {
	t, s := nftable.New(family, firstTable), nftable.NewSocket(g)
	defer s.Close()
	there, _, err := t.Look()
	if there {
		err = s.Commit(func(b *nftable.Batch) { b.Conn.DelTable(t.NFT) })
	}
	return err
}

// iptablesOwn are the tables that iptables-nft makes.
var iptablesOwn = []string{"filter", "nat", "mangle", "raw", "security"}

// othersTranslate lists the tables of nf_tables of a family, and tells whether one of others, or one of both
// families, has chains that translate destinations as early as iptables does. It returns the kernel's errors.
func othersTranslate(family addr.Family) (tables []string, early bool, err error) {
	for _, of := range []addr.Family{family, nfnetlink.Inet} {
		var others bool
		err := nfnetlink.Request(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, of, nil, func(answer []byte) {
			name := nfnetlink.Text(answer, unix.NFTA_TABLE_NAME)
			tables = append(tables, name)
			others = others || isOthers(of, name)
		})
		if err == nil && others { // to list chains takes long where iptables-nft has thousands
			err = nfnetlink.Request(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, of, nil, func(answer []byte) {
				early = early || isOthers(of, nfnetlink.Text(answer, unix.NFTA_CHAIN_TABLE)) && translatesEarly(answer)
			})
		}
		if err != nil {
			return nil, false, fmt.Errorf("look whether others translate by nf_tables: %w", absent(err))
		}
	}
	return tables, early, nil
}

func isOthers(family addr.Family, table string) bool {
	return !strings.HasPrefix(table, "fairlead") && (family == nfnetlink.Inet || !slices.Contains(iptablesOwn, table))
}

// translatesEarly tells whether a chain is asked where iptables translates destinations, or before.
func translatesEarly(chain []byte) bool {
	hook, hooked := nfnetlink.Number(chain, unix.NFTA_CHAIN_HOOK, unix.NFTA_HOOK_HOOKNUM)
	priority, _ := nfnetlink.Number(chain, unix.NFTA_CHAIN_HOOK, unix.NFTA_HOOK_PRIORITY)
	return hooked && nfnetlink.Text(chain, unix.NFTA_CHAIN_TYPE) == "nat" && int32(priority) <= natPriority &&
		(hook == unix.NF_INET_PRE_ROUTING || hook == unix.NF_INET_LOCAL_OUT)
}
