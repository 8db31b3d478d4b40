package proxy

import (
	"bytes"
	"encoding/binary"
)

// postgres is the protocol of PostgreSQL. The text of a prepared statement was sent with
// Parse over the same connection.
type postgres struct {
	started  bool
	prepared map[string]string
	tail     []byte
}

func newPostgres() protocol { return &postgres{prepared: map[string]string{}} }

// Codes that open a connection in place of a protocol version: the packet is
// followed by another start, or by nothing.
const (
	codeCancel = 80877102
	codeSSL    = 80877103
	codeGSS    = 80877104
)

func (p *postgres) next(pending []byte) (sql string, rest []byte, ok bool) {
	if !p.started {
		if len(pending) < 8 {
			return "", pending, false
		}
		size := int(binary.BigEndian.Uint32(pending))
		if size < 8 || len(pending) < size {
			return "", pending, false
		}
		code := binary.BigEndian.Uint32(pending[4:])
		p.started = code != codeSSL && code != codeGSS && code != codeCancel
		return "", pending[size:], true
	}
	if len(pending) < 5 {
		return "", pending, false
	}
	size := 1 + int(binary.BigEndian.Uint32(pending[1:]))
	if size < 5 || len(pending) < size {
		return "", pending, false
	}
	kind, body := pending[0], pending[5:size]
	switch kind {
	case 'Q':
		sql, _ = cString(body)
	case 'P':
		name, rest := cString(body)
		text, _ := cString(rest)
		p.prepared[name] = text
	case 'B':
		_, rest := cString(body)
		name, _ := cString(rest)
		sql = p.prepared[name]
	}
	return sql, pending[size:], true
}

// cString splits a text that ends with a zero byte from what follows.
func cString(b []byte) (text string, rest []byte) {
	head, rest, _ := bytes.Cut(b, []byte{0})
	return string(head), rest
}

func (*postgres) hear([]byte) {}

// endOfAnswer begins the message ReadyForQuery, which ends every answer; one byte with
// the state of the transaction follows.
const endOfAnswer = "Z\x00\x00\x00\x05"

func (p *postgres) ended(answer []byte) bool {
	p.tail = append(p.tail, answer...)
	if keep := len(endOfAnswer) + 1; len(p.tail) > keep {
		p.tail = p.tail[len(p.tail)-keep:]
	}
	return bytes.HasPrefix(p.tail, []byte(endOfAnswer))
}
