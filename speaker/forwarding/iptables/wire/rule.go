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
func (t *Transaction) read(text string) (rule, error) {
	r := rule{family: t.family, index: t.index}
	for text != "" {
		var ok bool
		if text, ok = r.readOption(text); !ok || r.verdict != nil && text != "" {
			return rule{}, ErrRule
		}
	}
	if r.verdict == nil {
		return rule{}, ErrRule
	}
	return r, nil
}

func (r *rule) readOption(text string) (rest string, ok bool) {
	text, not := strings.CutPrefix(text, "! ")
	option, text, _ := strings.Cut(text, " ")
	switch option {
	case "-s":
		r.elsewhere = not
		return r.readPrefix(&r.source, text)
	case "-i":
		r.in.name, rest, _ = strings.Cut(text, " ")
		r.in.not = not
		return rest, r.in.name != ""
	case "-o":
		r.out.name, rest, _ = strings.Cut(text, " ")
		r.out.not = not
		return rest, r.out.name != ""
	}
	if not {
		return "", false
	}
	switch option {
	case "-d":
		return r.readPrefix(&r.destination, text)
	case "-p":
		return r.readProtocol(text)
	case "-m":
		return r.readMatch(text)
	case "-g":
		return "", r.decide(unix.NFT_GOTO, text)
	case "-j":
		return r.readTarget(text)
	default:
		return "", false
	}
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

func (r *rule) readPrefix(into *netip.Prefix, text string) (rest string, ok bool) {
	value, rest, _ := strings.Cut(text, " ")
	p, err := netip.ParsePrefix(value)
	if err != nil || addr.FamilyOf(p.Addr()) != r.family || p != p.Masked() || into.IsValid() {
		return "", false
	}
	*into = p
	return rest, true
}

func (r *rule) readProtocol(text string) (rest string, ok bool) {
	name, rest, _ := strings.Cut(text, " ")
	if r.protocol != 0 {
		return "", false
	}
	r.protocol = protocolNumber(name)
	return rest, r.protocol != 0
}

func protocolNumber(name string) byte {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP
	case "udp":
		return unix.IPPROTO_UDP
	case "sctp":
		return unix.IPPROTO_SCTP
	default:
		return 0
	}
}

func (r *rule) readMatch(text string) (rest string, ok bool) {
	name, rest, _ := strings.Cut(text, " ")
	switch name {
	case "tcp":
		if flags, ok := strings.CutPrefix(rest, "--tcp-flags "); ok {
			return r.readFlags(flags)
		}
		return r.readPorts(protocolNumber(name), rest)
	case "udp", "sctp":
		return r.readPorts(protocolNumber(name), rest)
	case "conntrack":
		return r.readConnection(rest)
	case "mark":
		return r.readMarked(rest)
	case "statistic":
		return r.readChance(rest)
	case "comment":
		return r.readComment(rest)
	case "set":
		return r.readMembership(rest)
	case "addrtype":
		return r.readAddressType(rest)
	default:
		return "", false
	}
}

func (r *rule) readPorts(protocol byte, text string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(text, "--dport ")
	if !ok || r.protocol != protocol {
		return "", false
	}
	value, rest, _ := strings.Cut(rest, " ")
	from, to, several := strings.Cut(value, ":")
	first, err := strconv.ParseUint(from, 10, 16)
	last := first
	if err == nil && several {
		last, err = strconv.ParseUint(to, 10, 16)
	}
	if err != nil || first > last || first == 0 && last == math.MaxUint16 {
		return "", false
	}
	r.matches = append(r.matches, func(l *list) {
		if protocol == unix.IPPROTO_SCTP { // its ports are a match of iptables, not of nf_tables
			l.sctpPorts(uint16(first), uint16(last))
		} else {
			l.ports(uint16(first), uint16(last))
		}
	})
	return rest, true
}

// tcpFlags are the bits of the header of TCP that rules ask for.
var tcpFlags = map[string]byte{"SYN": 2, "RST": 4, "SYN,ACK": 0x12}

func (r *rule) readFlags(text string) (rest string, ok bool) {
	mask, text, _ := strings.Cut(text, " ")
	flags, rest, _ := strings.Cut(text, " ")
	m, known := tcpFlags[mask]
	f, also := tcpFlags[flags]
	r.matches = append(r.matches, func(l *list) { l.tcpFlags(m, f) })
	return rest, known && also && r.protocol == unix.IPPROTO_TCP
}

// connectionStates are bits of struct xt_conntrack_mtinfo3.
var connectionStates = map[string]uint16{"INVALID": 1, "ESTABLISHED": 2, "RELATED": 4, "NEW": 8, "SNAT": 64, "DNAT": 128}

func (r *rule) readConnection(text string) (rest string, ok bool) {
	text, not := strings.CutPrefix(text, "! ")
	text, ok = strings.CutPrefix(text, "--ctstate ")
	names, rest, _ := strings.Cut(text, " ")
	var states uint16
	for name := range strings.SplitSeq(names, ",") {
		states |= connectionStates[name]
		ok = ok && connectionStates[name] != 0
	}
	rest, confirmed := strings.CutPrefix(rest, "--ctstatus CONFIRMED ")
	r.matches = append(r.matches, func(l *list) { l.connection(states, not, confirmed) })
	return rest, ok
}

func (r *rule) readMarked(text string) (rest string, ok bool) {
	text, not := strings.CutPrefix(text, "! ")
	text, ok = strings.CutPrefix(text, "--mark ")
	value, rest, _ := strings.Cut(text, " ")
	bits, mask, valid := readBits(value)
	r.matches = append(r.matches, func(l *list) { l.marked(bits, mask, not) })
	return rest, ok && valid
}

// readBits reads a value and a mask of a mark.
func readBits(text string) (bits, mask uint32, ok bool) {
	of, under, both := strings.Cut(text, "/")
	b, err := strconv.ParseUint(of, 0, 32)
	m, failed := strconv.ParseUint(under, 0, 32)
	return uint32(b), uint32(m), both && err == nil && failed == nil
}

func (r *rule) readAddressType(text string) (rest string, ok bool) {
	text, not := strings.CutPrefix(text, "! ")
	way, text, _ := strings.Cut(text, " ")
	rest, ok = strings.CutPrefix(text, "LOCAL ")
	r.matches = append(r.matches, func(l *list) { l.isLocal(way == "--src-type", not) })
	return rest, ok && (way == "--src-type" || way == "--dst-type")
}

func (r *rule) readChance(text string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(text, "--mode random --probability ")
	if !ok {
		return "", false
	}
	value, rest, _ := strings.Cut(rest, " ")
	probability, err := strconv.ParseFloat(value, 64)
	if err != nil || !(probability >= 0 && probability <= 1) {
		return "", false
	}
	r.matches = append(r.matches, func(l *list) { l.chance(uint32(math.Round(probability * (1 << 31)))) })
	return rest, true
}

func (r *rule) readMembership(text string) (rest string, ok bool) {
	text, inverted := strings.CutPrefix(text, "! ")
	text, ok = strings.CutPrefix(text, "--match-set ")
	if !ok {
		return "", false
	}
	s, rest, ok := r.readSet(text)
	if inverted {
		s.flags |= 1 // IPSET_INV_MATCH
	}
	r.matches = append(r.matches, func(l *list) { l.in(s) })
	return rest, ok
}

// readSet reads the name of a set, and what of a packet it is asked for.
func (r *rule) readSet(text string) (s set, rest string, ok bool) {
	name, text, _ := strings.Cut(text, " ")
	directions, rest, _ := strings.Cut(text, " ")
	for direction := range strings.SplitSeq(directions, ",") {
		s.dimensions++
		switch direction {
		case "src":
			s.flags |= 1 << s.dimensions
		case "dst":
		default:
			return set{}, "", false
		}
	}
	index, err := r.index(name)
	s.index = index
	return s, rest, err == nil && s.dimensions <= 6 // IPSET_DIM_MAX
}

func (r *rule) readComment(text string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(text, `--comment "`)
	if !ok {
		return "", false
	}
	comment, rest, ok := strings.Cut(rest, `"`)
	if !ok || strings.ContainsAny(comment, "\\\x00") || len(comment) >= commentSize {
		return "", false
	}
	r.matches = append(r.matches, func(l *list) { l.comment(comment) })
	return strings.CutPrefix(rest, " ")
}

// What ends a packet's way, as the kernel has it.
const (
	drop   = 0
	accept = 1
)

func (r *rule) readTarget(text string) (rest string, ok bool) {
	switch name, options, _ := strings.Cut(text, " "); {
	case name == "DNAT":
		ok = r.readTranslation(options)
	case name == "MARK":
		ok = r.readMark(options)
	case name == "SET":
		ok = r.readAddition(options)
	case name == "REJECT":
		ok = r.readRefusal(options)
	case text == "MASQUERADE --random-fully":
		r.verdict, ok = func(l *list) { l.masquerade(r.family) }, true
	case text == "RETURN":
		ok = r.decide(unix.NFT_RETURN, "")
	case text == "ACCEPT":
		ok = r.decide(accept, "")
	case text == "DROP":
		ok = r.decide(drop, "")
	case strings.Contains(text, "-"): // a chain, which has a longer name than targets have
		ok = r.decide(unix.NFT_JUMP, text)
	}
	return "", ok
}

// decide leads to a chain, or is final with none.
func (r *rule) decide(code int32, chain string) bool {
	r.verdict = func(l *list) { l.verdict(code, chain) }
	return !strings.Contains(chain, " ")
}

func (r *rule) readTranslation(options string) bool {
	value, ok := strings.CutPrefix(options, "--to-destination ")
	to, err := netip.ParseAddrPort(value)
	r.verdict = func(l *list) { l.translate(to) }
	return ok && err == nil && addr.FamilyOf(to.Addr()) == r.family && to.Port() != 0 && r.protocol != 0
}

func (r *rule) readMark(options string) bool {
	value, ok := strings.CutPrefix(options, "--set-xmark ")
	bits, mask, valid := readBits(value)
	r.verdict = func(l *list) { l.mark(bits, mask) }
	return ok && valid
}

func (r *rule) readRefusal(options string) bool {
	answer, known := map[string]uint32{
		// IPT_ICMP_PORT_UNREACHABLE and IP6T_ICMP6_PORT_UNREACH
		"--reject-with icmp-port-unreachable": 3, "--reject-with icmp6-port-unreachable": 4,
	}[options]
	r.verdict = func(l *list) { l.refuse(answer) }
	return known && (answer == 3) == (r.family == addr.IPv4)
}

func (r *rule) readAddition(options string) bool {
	options, ok := strings.CutPrefix(options, "--add-set ")
	if !ok {
		return false
	}
	s, rest, ok := r.readSet(options)
	value, exists := strings.CutPrefix(rest, "--exist --timeout ")
	seconds, err := strconv.ParseUint(value, 10, 32)
	r.verdict = func(l *list) { l.addTo(s, uint32(seconds)) }
	return ok && exists && err == nil
}
