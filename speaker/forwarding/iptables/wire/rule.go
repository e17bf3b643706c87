package wire

import (
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
	index               func(set string) (uint16, bool)
	protocol            byte // 0 for any
	source, destination netip.Prefix
	matches             []func(l *list) // in their order
	verdict             func(l *list)
}

// read reads a rule, written as for iptables-restore but without its chain. It is not ok if
// there is anything in it that is not known here, or is amiss: that iptables may judge.
func read(family addr.Family, index func(set string) (uint16, bool), text string) (r rule, ok bool) {
	r = rule{family: family, index: index}
	for text != "" {
		if r.verdict != nil {
			return rule{}, false
		}
		var option string
		option, text, _ = strings.Cut(text, " ")
		switch option {
		case "-s":
			text, ok = r.readPrefix(&r.source, text)
		case "-d":
			text, ok = r.readPrefix(&r.destination, text)
		case "-p":
			text, ok = r.readProtocol(text)
		case "-m":
			text, ok = r.readMatch(text)
		case "-g":
			ok = r.decide(unix.NFT_GOTO, text)
			text = ""
		case "-j":
			text, ok = r.readTarget(text)
		default:
			ok = false
		}
		if !ok {
			return rule{}, false
		}
	}
	return r, r.verdict != nil
}

// write appends the rule's expressions, in the order in which iptables has them.
func (r *rule) write(l *list) {
	if r.protocol != 0 {
		l.protocol(r.protocol)
	}
	l.address(r.source, sourceAt[r.family])
	l.address(r.destination, destinationAt[r.family])
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
	case "tcp", "udp": // those of others are not the kernel's own, but iptables'
		return r.readPorts(protocolNumber(name), rest)
	case "statistic":
		return r.readChance(rest)
	case "comment":
		return r.readComment(rest)
	case "set":
		return r.readMembership(rest)
	case "addrtype":
		rest, ok = strings.CutPrefix(rest, "--src-type LOCAL ")
		r.matches = append(r.matches, (*list).fromHere)
		return rest, ok
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
	r.matches = append(r.matches, func(l *list) { l.ports(uint16(first), uint16(last)) })
	return rest, true
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
	s.index, ok = r.index(name)
	return s, rest, ok && s.dimensions <= 6 // IPSET_DIM_MAX
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
	bits, mask, both := strings.Cut(value, "/")
	b, err := strconv.ParseUint(bits, 0, 32)
	m, failed := strconv.ParseUint(mask, 0, 32)
	r.verdict = func(l *list) { l.mark(uint32(b), uint32(m)) }
	return ok && both && err == nil && failed == nil
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
