package drive

import (
	"crypto/rand"
	"encoding/base64"
	"sync/atomic"
)

// Bodies says what a payload consists of.
const Bodies = "random text"

// bodies are the payloads of all contenders: random texts, which neither a database nor a server
// can make smaller. They are texts and not bytes, since some queues take JSON alone. There is a
// store of them, drawn before the window, so that drawing costs nobody anything while it runs.
type bodies struct {
	texts  []string
	raw    [][]byte // the same
	number atomic.Int64
}

// bodyStore is how many differ; compression looks at one row at a time, never at this many.
const bodyStore = 256

// newBodies draws texts of size bytes; wrap, where it is not nil, makes the payload of a text.
func newBodies(size int, wrap func(string) string) *bodies {
	b := &bodies{texts: make([]string, bodyStore), raw: make([][]byte, bodyStore)}
	for i := range b.texts {
		b.texts[i] = randomText(size)
		if wrap != nil {
			b.texts[i] = wrap(b.texts[i])
		}
		b.raw[i] = []byte(b.texts[i])
	}
	return b
}

// text and bytes are the body of one more message; nobody writes to it.
func (b *bodies) text() string  { return b.texts[b.number.Add(1)%bodyStore] }
func (b *bodies) bytes() []byte { return b.raw[b.number.Add(1)%bodyStore] }

// randomText draws a text of size letters out of 64, all alike.
func randomText(size int) string {
	raw := make([]byte, size)
	_, _ = rand.Read(raw) // it never fails
	return base64.RawURLEncoding.EncodeToString(raw)[:size]
}
