package hello

import (
	"bytes"
	"slices"
	"time"
)

const (
	keyGrace = time.Minute // how long a key is still used after it was replaced or taken away
	maxKeys  = 3
)

// keyring has the keys in use, newest first. Hellos are sealed with each of
// them in turn, and those sealed with any of them are believed: thus nodes that
// learn of a new key at different times never stop hearing each other.
type keyring []key

type key struct {
	secret  []byte
	retires time.Time // zero: the current one
}

// set makes secret the current key, or none if it is empty, and tells whether
// that changed anything.
func (r *keyring) set(now time.Time, secret []byte) bool {
	if len(*r) > 0 && (*r)[0].retires.IsZero() {
		if bytes.Equal((*r)[0].secret, secret) {
			return false
		}
		(*r)[0].retires = now.Add(keyGrace)
	} else if len(secret) == 0 {
		return false
	}
	if len(secret) > 0 {
		*r = slices.DeleteFunc(*r, func(k key) bool { return bytes.Equal(k.secret, secret) })
		*r = slices.Insert(*r, 0, key{secret: bytes.Clone(secret)})
		*r = (*r)[:min(len(*r), maxKeys)]
	}
	return true
}

// expire drops the keys whose grace has ended.
func (r *keyring) expire(now time.Time) {
	*r = slices.DeleteFunc(*r, func(k key) bool { return !k.retires.IsZero() && !now.Before(k.retires) })
}

func (r *keyring) secrets() [][]byte {
	secrets := make([][]byte, 0, maxKeys)
	for _, k := range *r {
		secrets = append(secrets, k.secret)
	}
	return secrets
}
