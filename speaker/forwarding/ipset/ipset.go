// Package ipset makes, fills and reads the kernel's ipsets over netlink, many
// elements at a time. It keeps nothing between calls.
package ipset

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/fairlead/internal/addr"
	"fairlead.dev/fairlead/speaker/netfilter/nfnetlink"
)

// Type is a kind of set.
type Type string

// The types that this package can write and read.
const (
	HashNet      Type = "hash:net"        // prefixes of at least one bit
	HashIP       Type = "hash:ip"         // addresses
	HashIPPort   Type = "hash:ip,port"    // addresses with protocol and port
	HashIPPortIP Type = "hash:ip,port,ip" // and another address
	BitmapPort   Type = "bitmap:port"     // ports of any protocol
)

// revision is that of the kernel's module that knows what is asked of the type:
// every kernel since Linux 3.14 has them.
func (t Type) revision() uint8 {
	switch t {
	case HashIP:
		return 3 // forceadd
	case HashIPPort, HashIPPortIP:
		return 1
	default:
		return 0
	}
}

// Spec is what a set is made with.
type Spec struct {
	Name   string
	Type   Type
	Family addr.Family // 0 for bitmaps
	// MaxElements bounds a hash, which grows as it fills.
	MaxElements uint32
	// Timeout in seconds after which elements vanish, unless they say otherwise; 0: never.
	Timeout uint32
	// ForceAdd has a full hash forget a random element rather than refuse a new one.
	ForceAdd bool
}

// Header is what a set is and how many elements it has.
type Header struct {
	Spec
	Elements int
}

// Element is one entry of a set. Which fields count depends on the type.
type Element struct {
	Prefix   netip.Prefix // of a single address but in hash:net
	Second   netip.Addr
	Protocol uint8
	Port     uint16
}

// String is the element as the program ipset shows it.
func (e Element) String() string {
	switch {
	case !e.Prefix.IsValid():
		return fmt.Sprint(e.Port)
	case e.Port == 0 && e.Prefix.IsSingleIP():
		return e.Prefix.Addr().String()
	case e.Port == 0:
		return e.Prefix.String()
	case !e.Second.IsValid():
		return fmt.Sprintf("%s,%d:%d", e.Prefix.Addr(), e.Protocol, e.Port)
	default:
		return fmt.Sprintf("%s,%d:%d,%s", e.Prefix.Addr(), e.Protocol, e.Port, e.Second)
	}
}

// What the kernel may answer. Errors wrap these, or a unix.Errno.
var (
	ErrMissing = errors.New("there is no such set")
	ErrExists  = errors.New("there is a set of that name already")
	ErrBusy    = errors.New("the set is in use by rules")
	ErrFull    = errors.New("the set is full")
	ErrTooMany = errors.New("the kernel holds as many sets as it can")
	ErrType    = errors.New("the kernel does not have this type of set (module ip_set_hash_… or ip_set_bitmap_…)")
)

// kernelErrors are those of the kernel's enum ipset_errno that are told apart.
var kernelErrors = map[unix.Errno]error{
	unix.ENOENT:                ErrMissing,
	unix.EEXIST:                ErrExists,
	nl.IPSET_ERR_FIND_TYPE:     ErrType,
	nl.IPSET_ERR_MAX_SETS:      ErrTooMany,
	nl.IPSET_ERR_BUSY:          ErrBusy,
	nl.IPSET_ERR_REFERENCED:    ErrBusy,
	nl.IPSET_ERR_TYPE_SPECIFIC: ErrFull, // IPSET_ERR_HASH_FULL
}

// Create makes an empty set with room for so many elements before it has to grow.
// It fails with ErrExists if there is one of that name.
func Create(s Spec, room int) error {
	var data nfnetlink.Attributes
	if s.Type == BitmapPort {
		data = data.Uint16(nl.IPSET_ATTR_PORT_FROM|nl.NLA_F_NET_BYTEORDER, 0)
		data = data.Uint16(nl.IPSET_ATTR_PORT_TO|nl.NLA_F_NET_BYTEORDER, 65535)
	} else {
		data = data.Uint32(nl.IPSET_ATTR_HASHSIZE|nl.NLA_F_NET_BYTEORDER, hashSize(room))
		data = data.Uint32(nl.IPSET_ATTR_MAXELEM|nl.NLA_F_NET_BYTEORDER, s.MaxElements)
	}
	if s.Timeout > 0 {
		data = data.Uint32(nl.IPSET_ATTR_TIMEOUT|nl.NLA_F_NET_BYTEORDER, s.Timeout)
	}
	if s.ForceAdd {
		data = data.Uint32(nl.IPSET_ATTR_CADT_FLAGS|nl.NLA_F_NET_BYTEORDER, nl.IPSET_FLAG_WITH_FORCEADD)
	}
	body := named(s.Name).Text(nl.IPSET_ATTR_TYPENAME, string(s.Type)).
		Add(nl.IPSET_ATTR_REVISION, s.Type.revision()).Add(nl.IPSET_ATTR_FAMILY, nfnetlink.Protocol(s.Family)).
		Nested(nl.IPSET_ATTR_DATA, data)
	return about("create", s.Name, call(nl.IPSET_CMD_CREATE, unix.NLM_F_EXCL, body, ignore))
}

// hashSize is the number of buckets to begin with, between the kernel's least and
// what is enough for any node. To grow, the kernel copies the whole set.
func hashSize(room int) uint32 {
	const least, most = 64, 1 << 16
	return uint32(min(max(1<<bits.Len(uint(room)), least), most))
}

// Destroy removes a set that no rule uses. It returns ErrMissing for none, or the error of the kernel.
func Destroy(name string) error {
	return about("destroy", name, call(nl.IPSET_CMD_DESTROY, 0, named(name), ignore))
}

// Flush empties a set. It returns ErrMissing for none, or the error of the kernel.
func Flush(name string) error {
	return about("empty", name, call(nl.IPSET_CMD_FLUSH, 0, named(name), ignore))
}

// Swap exchanges the names of two sets of one type and family at once, so that
// the rules which use one of them use the other. It returns ErrMissing if there is not one of them.
func Swap(a, b string) error {
	return about("swap", a+" and "+b, call(nl.IPSET_CMD_SWAP, 0, named(a).Text(nl.IPSET_ATTR_SETNAME2, b), ignore))
}

// batch is how many elements go into one message, whose attributes hold 64 KiB.
const batch = 500

// Add puts elements into a set; those that are there already stay. What the set
// does not take does not keep the others out, but a full set takes nothing more. The
// errors, ErrFull among them, name the elements.
func Add(name string, elements []Element) error {
	return about("add to", name, change(nl.IPSET_CMD_ADD, name, elements))
}

// Delete takes elements out of a set; those that are not there are no error.
func Delete(name string, elements []Element) error {
	return about("delete from", name, change(nl.IPSET_CMD_DEL, name, elements))
}

func change(command int, name string, elements []Element) error {
	var errs []error
	for part := range slices.Chunk(elements, batch) {
		err := send(command, name, part)
		if err == nil || len(part) == 1 || errors.Is(err, ErrMissing) {
			errs = append(errs, err)
			continue
		}
		// The kernel took those before the one that it did not: find them all.
		for i, e := range part {
			if err := send(command, name, part[i:i+1]); err != nil {
				errs = append(errs, fmt.Errorf("element %s: %w", e, err))
				if errors.Is(err, ErrFull) {
					return errors.Join(errs...)
				}
			}
		}
	}
	return errors.Join(errs...)
}

func send(command int, name string, elements []Element) error {
	var all nfnetlink.Attributes
	for i, e := range elements {
		all = all.Nested(nl.IPSET_ATTR_DATA, e.attributes().
			Uint32(nl.IPSET_ATTR_LINENO|nl.NLA_F_NET_BYTEORDER, uint32(i+1)))
	}
	body := named(name).Uint32(nl.IPSET_ATTR_LINENO|nl.NLA_F_NET_BYTEORDER, 0).Nested(nl.IPSET_ATTR_ADT, all)
	return call(command, 0, body, ignore)
}

func ignore([]byte) {}

// Look reads the header of one set, over a socket that is kept since this is asked often.
// It costs the same however many elements there are. It returns ErrMissing for no such set.
func Look(over *nfnetlink.Conn, name string) (Header, error) {
	found, err := headers(over.Request, named(name))
	if err != nil {
		return Header{}, about("look at", name, err)
	}
	if len(found) != 1 {
		return Header{}, about("look at", name, ErrMissing)
	}
	return found[0], nil
}

// Index is the number by which rules know a set of a name, until it is destroyed or swapped. It
// returns ErrMissing for no such set.
func Index(over *nfnetlink.Conn, name string) (uint16, error) {
	// IPSET_CMD_GET_BYNAME, since Linux 4.20, and IPSET_ATTR_INDEX.
	const protocol, byName, attribute = 7, 14, 11
	index, found := uint32(0), false
	err := put(over.Request, byName, 0, nfnetlink.Attributes(nil).Add(nl.IPSET_ATTR_PROTOCOL, protocol).Text(nl.IPSET_ATTR_SETNAME, name),
		func(answer []byte) { index, found = nfnetlink.Number(answer, attribute) })
	if err == nil && !found {
		err = ErrMissing
	}
	return uint16(index), about("look up", name, err)
}

// All reads the headers of all sets of the node, or returns the error of the kernel.
func All() ([]Header, error) {
	found, err := headers(nfnetlink.Request, protocol())
	if err != nil {
		return nil, fmt.Errorf("list the ipsets: %w", err)
	}
	return found, nil
}

// listHeader is IPSET_FLAG_LIST_HEADER of the kernel: no elements.
const listHeader = 1 << 2

func headers(ask request, of nfnetlink.Attributes) ([]Header, error) {
	var found []Header
	body := of.Uint32(nl.IPSET_ATTR_FLAGS|nl.NLA_F_NET_BYTEORDER, listHeader)
	err := put(ask, nl.IPSET_CMD_LIST, 0, body, func(answer []byte) { found = append(found, parseHeader(answer)) })
	return found, err
}

// Elements reads what a set holds. It returns ErrMissing for no such set.
func Elements(name string) (found []Element, err error) {
	err = put(nfnetlink.Request, nl.IPSET_CMD_LIST, 0, named(name), func(answer []byte) { // a large set comes in several
		eachElement(answer, func(e Element) { found = append(found, e) })
	})
	return found, about("list", name, err)
}

// Scan calls f for each element of a set, unless it is nil, over a socket that is kept, and for some of them twice if changes interrupt it.
// It returns a sum of the elements in the order in which the kernel tells them, which stays the same while the set is not changed. The
// errors are those of Elements.
func Scan(over *nfnetlink.Conn, name string, seed maphash.Seed, f func(Element)) (digest uint64, err error) {
	var sum maphash.Hash
	sum.SetSeed(seed)
	stream := func(subsystem, command, flags int, family addr.Family, body nfnetlink.Attributes, read func(answer []byte)) error {
		return over.Stream(subsystem, command, flags, family, body, sum.Reset, read)
	}
	err = put(stream, nl.IPSET_CMD_LIST, 0, named(name), func(answer []byte) {
		_, _ = sum.Write(nfnetlink.Find(answer, nl.IPSET_ATTR_ADT))
		if f != nil {
			eachElement(answer, f)
		}
	})
	return sum.Sum64(), about("list", name, err)
}

// about says what could not be done, nil for no error.
func about(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s ipset %s: %w", what, name, err)
}
