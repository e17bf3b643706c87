package hello

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"slices"
	"time"
)

const (
	keyGrace = time.Minute // how long a key is still used after it was replaced
	// keyHold is how much longer one is accepted while there are nodes that were not heard with a newer one: a node that
	// was cut off while it was replaced comes back with it, and gets the new one only then.
	keyHold = time.Hour
	maxKeys = 3
)

// keyring has the keys in use, newest first. Hellos are sealed with each of
// them in turn, and those sealed with any of them are believed: thus nodes that
// learn of a new key at different times never stop hearing each other.
type keyring []key

type key struct {
	secret  *secret
	retires time.Time // zero: the current one
}

// set makes secret the current key, and tells whether that changed anything. An empty one
// replaces none: a Secret that has lost its value would silence all nodes at once, while the
// key that they have is as good as before. Where there is none yet there is none.
func (r *keyring) set(now time.Time, secret []byte) bool {
	if len(secret) == 0 || len(*r) > 0 && bytes.Equal((*r)[0].secret.key, secret) {
		return false
	}
	if len(*r) > 0 {
		(*r)[0].retires = now.Add(keyGrace)
	}
	*r = slices.DeleteFunc(*r, func(k key) bool { return bytes.Equal(k.secret.key, secret) })
	*r = slices.Insert(*r, 0, key{secret: newSecret(secret)})
	*r = (*r)[:min(len(*r), maxKeys)]
	return true
}

// expire drops the keys whose grace has ended; later, if a node may have none but such a key.
func (r *keyring) expire(now time.Time, behind bool) {
	*r = slices.DeleteFunc(*r, func(k key) bool {
		return k.isOver(now) && (!behind || !now.Before(k.retires.Add(keyHold)))
	})
}

// isOver tells whether the grace of a key has ended.
func (k key) isOver(now time.Time) bool { return !k.retires.IsZero() && !now.Before(k.retires) }

// secret is a key that is ready to be used, which takes as long as using it. One goroutine
// at a time may do so.
type secret struct {
	key []byte
	mac hash.Hash
	sum [macSize]byte
	hit bool // the datagram that was believed last was sealed with it
}

func newSecret(key []byte) *secret {
	key = bytes.Clone(key)
	return &secret{key: key, mac: hmac.New(sha256.New, key)}
}

func (s *secret) of(body []byte) []byte {
	s.mac.Reset()
	s.mac.Write(body)
	return s.mac.Sum(s.sum[:0])
}

// seal gives the whole datagram: body and its MAC.
func (s *secret) seal(body []byte) []byte { return append(slices.Clip(body), s.of(body)...) }

// authentic gives what was sealed, if it was with one of the keys. The datagram is longer than a MAC.
func (r *keyring) authentic(datagram []byte) (body []byte, reason Reason) {
	if len(*r) == 0 {
		return nil, ReasonNoKey
	}
	body, mac := datagram[:len(datagram)-macSize], datagram[len(datagram)-macSize:]
	hit := slices.IndexFunc(*r, func(k key) bool { return hmac.Equal(k.secret.of(body), mac) })
	if hit < 0 {
		return nil, ReasonMAC
	}
	for i, k := range *r {
		k.secret.hit = i == hit
	}
	return body, ""
}

// isBehind tells whether there may be a node that has none but a key that was replaced: one that was not heard with the
// current one since. Of a living node only those that watch it can tell.
func (m *machine) isBehind() bool {
	if len(m.keys) < 2 {
		return false
	}
	for _, p := range m.peers {
		if !p.keyed && (p.watched || !p.alive || p.record == nil) {
			return true
		}
	}
	return false
}

// meetsBehind tells whether such a node was heard lately, with a key that was replaced.
func (m *machine) meetsBehind(now time.Time) bool {
	for _, p := range m.peers {
		if !p.keyed && now.Before(p.oldKeyAt.Add(keyGrace)) {
			return true
		}
	}
	return false
}

// heardWith notes with which key a node was heard.
func (m *machine) heardWith(now time.Time, p *peer) {
	if m.keys[0].secret.hit {
		p.keyed = true
	} else {
		p.oldKeyAt = now
	}
}
