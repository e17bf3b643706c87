package hello

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRecordsFit: however much a node has to say, its record fits into the gossip of any other.
func TestRecordsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(1, maxName).Draw(t, "length of names")
		node := strings.Repeat("n", length)
		h := drawHello(t)
		h.node = node
		h.said = saying(node, Wanted{Unable: append(slices.Clone(h.unable), drawMany(t, "further")...), Claimed: drawMany(t, "claimed"), Stations: h.stations}, recordReserve(length, maxLinks))
		h.requested = 0 // which records do not tell
		for range maxLinks {
			h.links = append(h.links, link{to: longIDOf(node), state: linkSilent, incarnation: 1, seq: 2})
		}
		h.room = maxDatagram - maxGossipOverhead - length - macSize
		pack := gossipOut{room: maxDatagram - gossipHead - length - macSize}
		pack.add(itemRecord, h.encode())
		if n := gossipHead + length + len(pack.packs[0]) + macSize; n > maxDatagram {
			t.Fatalf("a datagram of %d bytes", n)
		}
		h.links, h.requested, h.room = nil, time.Second, 0
		h.summary, h.reverse = summary{told: true, buckets: &[buckets]uint32{}}, make([]nodeID, maxReverse)
		if n := len(seal(h.encode(), testKey)); n > maxDatagram {
			t.Fatalf("a hello of %d bytes", n)
		}
	})
}

// drawTopology adds to a hello, or to a record, what nodes say of each other.
func drawTopology(t *rapid.T, h hello) hello {
	if rapid.Bool().Draw(t, "record") {
		h.links = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) link {
			l := link{to: longID(rapid.SliceOfN(rapid.Byte(), longSize, longSize).Draw(t, "to")), state: linkState(rapid.IntRange(0, int(linkRefuted)).Draw(t, "state"))}
			if l.hasEvidence() {
				l.incarnation, l.seq = rapid.Uint32().Draw(t, "boot"), rapid.Uint32().Draw(t, "seq")
			}
			return l
		}), 0, maxLinks).Draw(t, "links")
		return h
	}
	h.summary = summary{told: true, watches: rapid.Bool().Draw(t, "watches"), version: rapid.Uint64().Draw(t, "version"), digest: rapid.Uint64().Draw(t, "digest")}
	if rapid.Bool().Draw(t, "differs") {
		h.summary.buckets = &[buckets]uint32{}
		for i := range h.summary.buckets {
			h.summary.buckets[i] = rapid.Uint32().Draw(t, "bucket")
		}
	}
	for range rapid.IntRange(0, maxReverse).Draw(t, "courtesy") {
		h.reverse = append(h.reverse, nodeID(rapid.SliceOfN(rapid.Byte(), idSize, idSize).Draw(t, "to")))
	}
	return h
}

// TestWireCarriesTheTopology: what is said of records and links comes whole, however much else a node says.
func TestWireCarriesTheTopology(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHello(t)
		less := recordReserve(len(h.node), maxLinks)
		h.said = saying(h.node, Wanted{Serving: h.serving, Unable: drawMany(t, "unable"), Stations: h.stations}, less)
		want := drawTopology(t, h)
		datagram := seal(want.encode(), testKey)
		if len(datagram) > maxDatagram {
			t.Fatalf("datagram of %d bytes, at most %d allowed", len(datagram), maxDatagram)
		}
		got, reason := open(datagram, ringOfKeys(testKey))
		if reason != "" {
			t.Fatalf("rejected: %s", reason)
		}
		if diff := diffHello(want, got); diff != "" {
			t.Fatalf("sent and received differ:\n%s", diff)
		}
	})
}

func FuzzOpenGossip(f *testing.F) {
	record := hello{node: "node-b", incarnation: 3, seq: 4, links: []link{
		{to: longIDOf("a"), state: linkHeard}, {to: longIDOf("c"), state: linkSilent, incarnation: 1, seq: 2},
	}}
	f.Add(gossipTo("node-a", 1, 2))
	body := appendItem(gossipTo("node-a", 1, 2), itemRecord, record.encode())
	f.Add(appendItem(body, itemIndex, index{bucket: 3, has: map[longID]recordVersion{longIDOf("a"): {1, 2}}}.encode()))
	f.Fuzz(func(t *testing.T, body []byte) {
		if g, reason := openGossip(body, ringOfKeys(testKey)); reason == "" {
			t.Fatalf("believed %+v, which nobody sealed", g)
		}
		g, ok := decodeGossip(body)
		if !ok {
			return
		}
		again := gossipTo(g.node, g.incarnation, g.seq)
		for _, r := range g.records {
			h, ok := decode(r.body)
			if !ok {
				return
			}
			if h.node != string(r.node) || versionOf(h) != r.recordVersion || h.incarnation != r.incarnation {
				t.Fatalf("%+v was read in short as %+v", h, r)
			}
			again = appendItem(again, itemRecord, h.encode())
		}
		for _, x := range g.indexes {
			again = appendItem(again, itemIndex, x.encode())
		}
		read, ok := decodeGossip(again)
		if !ok || len(read.records) != len(g.records) || len(read.indexes) != len(g.indexes) {
			t.Fatalf("%+v was read, and cannot be read again", g)
		}
		for i := range g.records {
			was, _ := decode(g.records[i].body)
			is, _ := decode(read.records[i].body)
			if diff := diffHello(was, is); diff != "" {
				t.Fatalf("reading, writing and reading again differ:\n%s", diff)
			}
		}
	})
}
