package wire

import (
	"errors"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
)

// rule is one of iptables, as far as this package knows what there is in rules.
type rule struct {
	text                string // that is still to be read
	invalid             bool   // what was read is not known, or not valid
	native              bool   // NAT as nf_tables does it, which iptables does in its own table alone
	family              addr.Family
	index               func(set string) (uint16, error)
	in, out             link
	protocol            byte // 0 for any
	source, destination netip.Prefix
	elsewhere           bool            // the source is not that
	matches             []func(l *list) // in their order
	verdict             func(l *list)
}

// link is a network interface that packets come by or leave by.
type link struct {
	name string // if it ends with +, the beginning of names
	not  bool   // any other one
}

// ErrRule says that a rule cannot be written.
var ErrRule = errors.New("it is not valid in this family, or it names a set that is missing")

// read reads a rule, written as for iptables-restore but without its chain. It returns an error if
// anything in it is not known or not valid.
func (t *Transaction) read(text string, native bool) (rule, error) {
	r := rule{text: text, native: native, family: t.family, index: t.index}
	for r.text != "" && r.verdict == nil && !r.invalid {
		r.readOption()
	}
	if r.invalid || r.verdict == nil || r.text != "" {
		return rule{}, ErrRule
	}
	return r, nil
}

// write appends the rule's expressions, in the order in which iptables has them.
func (r *rule) write(l *list) {
	l.link(unix.NFT_META_IIFNAME, r.in)
	l.link(unix.NFT_META_OIFNAME, r.out)
	if r.protocol != 0 {
		l.protocol(r.protocol)
	}
	l.address(r.source, sourceAt[r.family], r.elsewhere)
	l.address(r.destination, destinationAt[r.family], false)
	for _, match := range r.matches {
		match(l)
	}
	l.counter()
	r.verdict(l)
}

// next reads a word.
func (r *rule) next() string {
	word, rest, _ := strings.Cut(r.text, " ")
	r.text = rest
	return word
}

// takes reads this word if it is the next one, and reports whether it is.
func (r *rule) takes(word string) bool {
	next, rest, _ := strings.Cut(r.text, " ")
	if next == word {
		r.text = rest
	}
	return next == word
}

func (r *rule) must(be bool) { r.invalid = r.invalid || !be }

func (r *rule) number(text string, base, bits int) uint64 {
	n, err := strconv.ParseUint(text, base, bits)
	r.must(err == nil)
	return n
}

func (r *rule) match(with func(l *list)) { r.matches = append(r.matches, with) }

func (r *rule) readOption() {
	not := r.takes("!")
	switch option := r.next(); option {
	case "-s":
		r.elsewhere = not
		r.readPrefix(&r.source)
		return
	case "-i", "-o":
		of := &r.in
		if option == "-o" {
			of = &r.out
		}
		*of = link{r.next(), not}
		r.must(of.name != "")
		return
	case "-d":
		r.readPrefix(&r.destination)
	case "-p":
		r.must(r.protocol == 0)
		r.protocol = protocolNumber(r.next())
		r.must(r.protocol != 0)
	case "-m":
		r.readMatch()
	case "-g":
		chain := r.next()
		r.must(chain != "")
		r.decide(unix.NFT_GOTO, chain)
	case "-j":
		r.readTarget()
	default:
		r.invalid = true
	}
	r.must(!not)
}

func (r *rule) readPrefix(into *netip.Prefix) {
	p, err := netip.ParsePrefix(r.next())
	r.must(err == nil && addr.FamilyOf(p.Addr()) == r.family && p == p.Masked() && !into.IsValid())
	*into = p
}

func protocolNumber(name string) byte {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP
	case "udp":
		return unix.IPPROTO_UDP
	case "sctp":
		return unix.IPPROTO_SCTP
	case "icmp":
		return unix.IPPROTO_ICMP
	case "ipv6-icmp":
		return unix.IPPROTO_ICMPV6
	default:
		return 0
	}
}

func (r *rule) readMatch() {
	switch name := r.next(); name {
	case "tcp", "udp", "sctp":
		r.must(r.protocol == protocolNumber(name))
		if name == "tcp" && r.takes("--tcp-flags") {
			r.readFlags()
		} else {
			r.readPorts()
		}
	case "icmp":
		r.readICMP(name, "icmp", "--icmp-type")
	case "icmp6":
		r.readICMP(name, "ipv6-icmp", "--icmpv6-type")
	case "conntrack":
		r.readConnection()
	case "mark":
		not := r.takes("!")
		r.must(r.takes("--mark"))
		bits, mask := r.readBits()
		r.match(func(l *list) { l.marked(bits, mask, not) })
	case "statistic":
		r.must(r.takes("--mode") && r.takes("random") && r.takes("--probability"))
		probability, err := strconv.ParseFloat(r.next(), 64)
		r.must(err == nil && probability >= 0 && probability <= 1)
		r.match(func(l *list) { l.chance(uint32(math.Round(probability * (1 << 31)))) })
	case "comment":
		r.readComment()
	case "set":
		not := r.takes("!")
		r.must(r.takes("--match-set"))
		s := r.readSet()
		if not {
			s.flags |= 1 // IPSET_INV_MATCH
		}
		r.match(func(l *list) { l.in(s) })
	case "addrtype":
		not, way := r.takes("!"), r.next()
		r.must((way == "--src-type" || way == "--dst-type") && r.takes("LOCAL"))
		r.match(func(l *list) { l.isLocal(way == "--src-type", not) })
	default:
		r.invalid = true
	}
}

func (r *rule) readPorts() {
	r.must(r.takes("--dport"))
	from, to, several := strings.Cut(r.next(), ":")
	first := r.number(from, 10, 16)
	last := first
	if several {
		last = r.number(to, 10, 16)
	}
	r.must(first <= last && (first != 0 || last != math.MaxUint16))
	r.match(func(l *list) {
		if r.protocol == unix.IPPROTO_SCTP { // its ports are a match of iptables, not of nf_tables
			l.sctpPorts(uint16(first), uint16(last))
		} else {
			l.ports(uint16(first), uint16(last))
		}
	})
}

func (r *rule) readICMP(name, protocol, option string) {
	r.must(r.protocol == protocolNumber(protocol) && r.takes(option))
	kind := uint8(r.number(r.next(), 10, 8))
	r.match(func(l *list) { l.icmp(name, kind) })
}

// tcpFlags are the bits of the header of TCP that rules ask for.
var tcpFlags = map[string]byte{"SYN": 2, "RST": 4, "SYN,ACK": 0x12}

func (r *rule) readFlags() {
	mask := tcpFlags[r.next()]
	flags := tcpFlags[r.next()]
	r.must(mask != 0 && flags != 0)
	r.match(func(l *list) { l.tcpFlags(mask, flags) })
}

// connectionStates are bits of struct xt_conntrack_mtinfo3.
var connectionStates = map[string]uint16{"INVALID": 1, "ESTABLISHED": 2, "RELATED": 4, "NEW": 8, "SNAT": 64, "DNAT": 128, "UNTRACKED": 256}

func (r *rule) readConnection() {
	not := r.takes("!")
	r.must(r.takes("--ctstate"))
	var states uint16
	for name := range strings.SplitSeq(r.next(), ",") {
		states |= connectionStates[name]
		r.must(connectionStates[name] != 0)
	}
	confirmed := r.takes("--ctstatus")
	r.must(!confirmed || r.takes("CONFIRMED"))
	r.match(func(l *list) { l.connection(states, not, confirmed) })
}

// readBits reads a value and a mask of a mark.
func (r *rule) readBits() (bits, mask uint32) {
	of, under, _ := strings.Cut(r.next(), "/")
	return uint32(r.number(of, 0, 32)), uint32(r.number(under, 0, 32))
}

// readSet reads the name of a set, and what of a packet it is asked for.
func (r *rule) readSet() (s set) {
	index, err := r.index(r.next())
	s.index = index
	for direction := range strings.SplitSeq(r.next(), ",") {
		s.dimensions++
		if direction == "src" {
			s.flags |= 1 << s.dimensions
		}
		r.must(direction == "src" || direction == "dst")
	}
	r.must(err == nil && s.dimensions <= 6) // IPSET_DIM_MAX
	return s
}

func (r *rule) readComment() {
	rest, ok := strings.CutPrefix(r.text, `--comment "`)
	comment, rest, ended := strings.Cut(rest, `"`)
	rest, more := strings.CutPrefix(rest, " ")
	r.must(ok && ended && more && !strings.ContainsAny(comment, "\\\x00") && len(comment) < commentSize)
	r.text = rest
	r.match(func(l *list) { l.comment(comment) })
}

// What ends a packet's way, as the kernel has it.
const (
	drop   = 0
	accept = 1
)

func (r *rule) readTarget() {
	switch name := r.next(); name {
	case "DNAT":
		r.must(r.takes("--to-destination"))
		text := r.next()
		to, err := netip.ParseAddrPort(text)
		if r.protocol == unix.IPPROTO_ICMP || r.protocol == unix.IPPROTO_ICMPV6 { // it has no ports
			var a netip.Addr
			a, err = netip.ParseAddr(text)
			to = netip.AddrPortFrom(a, 0)
		} else {
			r.must(to.Port() != 0)
		}
		r.must(err == nil && addr.FamilyOf(to.Addr()) == r.family && r.protocol != 0)
		r.verdict = r.choose(func(l *list) { l.translate(to) }, func(l *list) { l.translateNatively(r.family, to) })
	case "MARK":
		r.must(r.takes("--set-xmark"))
		bits, mask := r.readBits()
		r.verdict = func(l *list) { l.mark(bits, mask) }
	case "SET":
		r.must(r.takes("--add-set"))
		s := r.readSet()
		r.must(r.takes("--exist") && r.takes("--timeout"))
		seconds := r.number(r.next(), 10, 32)
		r.verdict = func(l *list) { l.addTo(s, uint32(seconds)) }
	case "REJECT":
		kind, answer, reset := "icmp-port-unreachable", uint32(3), uint32(7) // IPT_ICMP_PORT_UNREACHABLE, IPT_TCP_RESET
		if r.family == addr.IPv6 {
			kind, answer, reset = "icmp6-port-unreachable", 4, 6 // IP6T_ICMP6_PORT_UNREACH, IP6T_TCP_RESET
		}
		r.must(r.takes("--reject-with"))
		if r.protocol == unix.IPPROTO_TCP && r.takes("tcp-reset") {
			answer = reset
		} else {
			r.must(r.takes(kind))
		}
		r.verdict = func(l *list) { l.refuse(answer) }
	case "SNAT":
		r.must(r.takes("--to-source"))
		from, err := netip.ParseAddr(r.next())
		r.must(err == nil && addr.FamilyOf(from) == r.family && r.takes("--random-fully"))
		r.verdict = r.choose(func(l *list) { l.masquerade(r.family, from) }, unreached)
	case "MASQUERADE":
		r.must(r.takes("--random-fully"))
		r.verdict = r.choose(func(l *list) { l.masquerade(r.family, netip.Addr{}) }, unreached)
	case "RETURN":
		r.decide(unix.NFT_RETURN, "")
	case "ACCEPT":
		r.verdict = r.choose(func(l *list) { l.verdict(accept, "") }, func(l *list) { l.keep(r.family) })
	case "DROP":
		r.decide(drop, "")
	default: // a chain, which has a longer name than targets have
		r.must(strings.Contains(name, "-"))
		r.decide(unix.NFT_JUMP, name)
	}
}

// decide leads to a chain, or is final with none.
func (r *rule) decide(code int32, chain string) {
	r.verdict = func(l *list) { l.verdict(code, chain) }
}
