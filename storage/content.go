package storage

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// ContentHash covers what a repeat of a message must have the same (E3): everything but the
// times, the queue and the key. Each part is preceded by its length, so that no two contents
// run together to the same bytes. A message that is placed from a transaction of somebody's
// own (E12) has the same hash.
func ContentHash(m *NewMessage) [sha256.Size]byte {
	h := sha256.New()
	var n [8]byte
	number := func(v int64) {
		binary.BigEndian.PutUint64(n[:], uint64(v))
		h.Write(n[:])
	}
	text := func(s string) {
		number(int64(len(s)))
		h.Write([]byte(s))
	}
	number(1) // version of this encoding
	number(int64(len(m.Payload)))
	h.Write(m.Payload)
	text(m.ContentType)
	number(int64(len(m.Attributes)))
	keys := make([]string, 0, len(m.Attributes))
	for k := range m.Attributes {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		text(k)
		text(m.Attributes[k])
	}
	text(m.OrderingKey)
	number(int64(m.Priority))
	number(int64(m.MaxAttempts))
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}
