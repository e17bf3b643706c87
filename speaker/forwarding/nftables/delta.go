package nftables

import (
	"maps"
	"slices"

	"fairlead.dev/fairlead/speaker/desired"
)

// delta is what a transaction changes, by item. In a nil one nothing is noted.
type delta map[item]difference

// difference is what the kernel has of an item and what it is to have.
type difference struct {
	had, has bool
	was, is  string
	comment  string
}

func (c difference) none() bool { return c.had == c.has && (!c.has || c.was == c.is) }

func (d delta) found(e element) {
	c := d[e.item]
	c.had, c.was = true, e.value
	d[e.item] = c
}

// remove takes out what the kernel has, unless it is added again.
func (d delta) remove(elements ...element) {
	if d == nil {
		return
	}
	for _, e := range elements {
		c, known := d[e.item]
		if !known {
			c.had, c.was = true, e.value
		}
		c.has = false
		d[e.item] = c
	}
}

func (d delta) add(owner desired.PortKey, elements ...element) {
	if d == nil {
		return
	}
	for _, e := range elements {
		c := d[e.item]
		c.has, c.is = true, e.value
		if e.set == services || e.set == nodeServices {
			c.comment = owner.Label(127) // which is what the nft program shows
		}
		d[e.item] = c
	}
}

func (d delta) exchange(from, to []element) {
	if slices.Equal(from, to) {
		return
	}
	d.remove(from...)
	d.add(desired.PortKey{}, to...)
}

// prune forgets what does not differ and, without removals, what would leave the kernel.
func (d delta) prune(removals bool) {
	maps.DeleteFunc(d, func(_ item, c difference) bool { return c.none() || !removals && !c.has })
}

// growth is by how many elements more the kernel has afterwards.
func (d delta) growth() int {
	n := 0
	for i, c := range d {
		switch {
		case i.set == chains:
		case c.has && !c.had:
			n++
		case c.had && !c.has:
			n--
		}
	}
	return n
}

// places counts the sets, maps and chains that differ.
func (d delta) places() int {
	sets, n := map[setID]bool{}, 0
	for i := range d {
		if i.set == chains {
			n++
		} else {
			sets[i.set] = true
		}
	}
	return n + len(sets)
}
