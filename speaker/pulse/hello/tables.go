package hello

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Nodes compare their tables by digests of buckets of addresses. Each says a digest of all in its hellos, and those
// of the buckets while a node that it hears has another one. In which buckets it differs from one of the nodes that
// it hears, it says in its record: since the graph of these is connected, all tables are equal in a bucket
// in which no node differs.

// TableBuckets is the number of buckets of addresses by which tables are compared.
const TableBuckets = 32

// differAfter is for how long tables must differ for it to count: they come to nodes at different moments.
const differAfter = 200 * time.Millisecond

// table is the digest of a table in each bucket.
type table [TableBuckets]uint32

// digest returns that of all buckets, which is never 0.
func (t *table) digest() uint64 {
	h := fnv.New64a()
	for _, d := range t {
		h.Write(binary.BigEndian.AppendUint32(nil, d))
	}
	return max(h.Sum64(), 1)
}

// difference says since when the table of a node differs from ours in each bucket; zero: it does not.
type difference [TableBuckets]time.Time

// compareTable takes in what a node says of its table.
func (m *machine) compareTable(now time.Time, p *peer, h hello) {
	switch {
	case h.TableDigest == 0:
		return // an answer to a nonce, or a claim
	case h.TableDigest == m.tableDigest:
		p.difference = nil
		return
	case p.difference == nil:
		p.difference = &difference{}
	}
	if h.Table == nil {
		return
	}
	for b, digest := range h.Table {
		switch since := &p.difference[b]; {
		case digest == m.table[b]:
			*since = time.Time{}
		case since.IsZero():
			*since = now
		}
	}
}

// findDifferences looks in which buckets tables differ for long enough.
func (m *machine) findDifferences(now time.Time) {
	var differs uint32
	for _, p := range m.active {
		if p.difference == nil || !p.proven {
			continue
		}
		for b, since := range p.difference {
			if !since.IsZero() && !now.Before(since.Add(differAfter)) {
				differs |= 1 << b
			}
		}
	}
	if differs != m.differs {
		m.differs = differs
		m.touch()
	}
}

// nextDifference is when a difference begins to count.
func (p *peer) nextDifference(now time.Time, sooner func(time.Time)) {
	if p.difference == nil {
		return
	}
	for _, since := range p.difference {
		if at := since.Add(differAfter); !since.IsZero() && at.After(now) {
			sooner(at)
		}
	}
}

// Differ tells whether tables of nodes that are alive differ in a bucket.
func (v View) Differ(bucket int) bool { return v.Differs&(1<<bucket) != 0 }
