// Package reusedports finds clients that begin a connection from a port from which the node still knows another one:
// a SYN, or an INIT of SCTP, that belongs to a flow. The kernel sends it where the flow goes, for a day if that was
// established, however long the endpoint there has been gone.
package reusedports

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	nft "github.com/google/nftables"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/internal/view"
	"fairlead.dev/fairlead/speaker/forwarding/conntrack"
	"fairlead.dev/fairlead/speaker/netfilter/kernelwatch"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
	"fairlead.dev/fairlead/speaker/netfilter/nftable"
)

// Table is the name of the table of each family with the rules.
const Table = "fairlead-reused-ports"

const (
	begun = "begun" // the set of tuples that began anew
	// remembered is how long one stays there that is not answered: longer than from any SYN or INIT to the next one, so that only the
	// first is dropped.
	remembered = 70 * time.Second
	most       = 4096
	// atOnce bounds what one call of Find returns.
	atOnce = 256
)

// Finder has the kernel note such packets.
type Finder struct {
	keeper *nftable.Keeper
	conn   nfnetlink.Conn
	tables []nftable.Table
	seen   map[conntrack.Tuple]bool // in the last looks, until all were
}

// New returns a finder that writes nothing before Find. The generation is that of nftable.NewSocket.
func New(g *kernelwatch.Generation, log *slog.Logger) *Finder {
	f := &Finder{keeper: nftable.NewKeeper(g, Table, layout)}
	f.keeper.Refused = func(family string, err error) {
		log.Error("a connection from the port of another one, which led to an endpoint that is gone, will hang; it is tried again", "family", family, "error", err)
	}
	f.keeper.Taken = func(family string) { log.Info("connections from reused ports do not hang any more", "family", family) }
	for _, family := range addr.Families() {
		f.tables = append(f.tables, nftable.New(family, Table))
	}
	return f
}

// Find returns the tuples of which a connection was begun anew that nothing has answered yet, by family: new ones, or if there
// are none, those that earlier calls returned, whose endpoint may serve no more by now. If they are many, it is some of
// them, and others the next time. It keeps the rules in place. The errors are the kernel's, and one where there is no more room for others.
func (f *Finder) Find() (map[addr.Family][]conntrack.Tuple, error) {
	f.keeper.Apply()
	found, seen := map[addr.Family][]conntrack.Tuple{}, map[conntrack.Tuple]bool{}
	var errs []error
	for _, t := range f.tables {
		noted := 0
		about := t.Attributes().Text(unix.NFTA_SET_ELEM_LIST_SET, begun)
		err := f.conn.Request(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, t.Family, about, func(list []byte) {
			nfnetlink.Each(nfnetlink.Find(list, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, element []byte) {
				tuple, ok := parse(t.Family, nfnetlink.Find(element, unix.NFTA_SET_ELEM_KEY, unix.NFTA_DATA_VALUE))
				noted++
				switch {
				case !ok:
				case f.seen[tuple]:
					seen[tuple] = true
				case len(found[t.Family]) < atOnce:
					seen[tuple] = true
					found[t.Family] = append(found[t.Family], tuple)
				}
			})
		})
		switch {
		case err != nil && !errors.Is(err, unix.ENOENT): // which the keeper tells of
			errs = append(errs, fmt.Errorf("read set %s of table %s of %s: %w", begun, Table, t.Family, err))
		case noted > most*9/10: // those that are about to go take room, too
			errs = append(errs, fmt.Errorf("set %s of table %s of %s has little room left of %d: clients that reuse a port may be sent to "+
				"endpoints that are gone; it shows which others began anew and were not answered", begun, Table, t.Family, most))
		}
	}
	if f.seen = seen; len(found) == 0 {
		f.seen = nil
	}
	return found, errors.Join(errs...)
}

// parse reads the key of an element: each part takes whole registers.
func parse(family addr.Family, key []byte) (t conntrack.Tuple, ok bool) {
	size := 4 * int(words(family))
	if len(key) != 2*size+12 {
		return t, false
	}
	at := func(b []byte) netip.AddrPort {
		a, _ := netip.AddrFromSlice(b[:size])
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[size:]))
	}
	t.From, t.To, t.Protocol = at(key), at(key[size+4:]), view.TCP
	if key[2*size+8] == unix.IPPROTO_SCTP {
		t.Protocol = view.SCTP
	}
	return t, true
}

// layout is the table of one family.
func layout(t *nftable.Table) nftable.Layout {
	ip := nft.TypeIPAddr
	if t.Family == addr.IPv6 {
		ip = nft.TypeIP6Addr
	}
	key := nft.MustConcatSetType(ip, nft.TypeInetService, ip, nft.TypeInetService, nft.TypeInetProto)
	set := &nft.Set{
		Table: t.NFT, ID: 1, Name: begun, KeyType: key, Concatenation: strings.Contains(key.Name, " . "),
		Dynamic: true, HasTimeout: true, Timeout: remembered, Size: most,
	}
	t.Salt = fmt.Append(nil, key.Name, remembered, forgotten, most)
	at := func(hook *nft.ChainHook) nftable.Hook {
		return nftable.Hook{Kind: nft.ChainTypeFilter, Number: *hook, Priority: beforeTranslation}
	}
	return nftable.Layout{Sets: []*nft.Set{set}, Chains: []nftable.Chain{
		{Name: ofTCP, Rules: known(t.Family, unix.IPPROTO_TCP)},
		{Name: ofSCTP, Rules: known(t.Family, unix.IPPROTO_SCTP)},
		{Name: "arriving", At: at(nft.ChainHookPrerouting), Rules: begins()},
		{Name: "leaving", At: at(nft.ChainHookOutput), Rules: begins()},
	}}
}
