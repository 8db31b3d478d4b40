package proxy

import (
	"encoding/binary"
	"sync"
)

// mysql is the protocol of MySQL and MariaDB, without encryption and compression. A packet
// has three bytes of length and one that counts; a command is a packet that counts from
// zero, which nothing of the login does.
type mysql struct {
	mu sync.Mutex
	// preparing is the text whose answer will tell its number.
	preparing string
	prepared  map[uint32]string
	heard     []byte // of the answer that tells it

	tail []byte
}

func newMySQL() protocol { return &mysql{prepared: map[uint32]string{}} }

// The commands that run statements.
const (
	comQuery   = 0x03
	comPrepare = 0x16
	comExecute = 0x17
)

const packetHead = 4

// packet is the length of the packet that bytes begin with, head and all; false where it
// is not whole.
func packet(b []byte) (size int, whole bool) {
	if len(b) < packetHead {
		return 0, false
	}
	size = packetHead + int(b[0]) + int(b[1])<<8 + int(b[2])<<16
	return size, len(b) >= size
}

func (m *mysql) next(pending []byte) (sql string, rest []byte, ok bool) {
	size, whole := packet(pending)
	if !whole {
		return "", pending, false
	}
	count, body := pending[3], pending[packetHead:size]
	if count == 0 && len(body) > 0 {
		sql = m.command(body[0], body[1:])
	}
	return sql, pending[size:], true
}

func (m *mysql) command(kind byte, body []byte) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.preparing, m.heard = "", nil
	switch kind {
	case comQuery:
		return string(body)
	case comPrepare:
		m.preparing = string(body)
	case comExecute:
		if len(body) >= 4 {
			return m.prepared[binary.LittleEndian.Uint32(body)]
		}
	}
	return ""
}

// hear reads the number of a statement that was prepared: it follows the zero of the answer.
func (m *mysql) hear(answer []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.preparing == "" {
		return
	}
	m.heard = append(m.heard, answer...)
	if len(m.heard) < packetHead+5 {
		return
	}
	if m.heard[packetHead] == 0 {
		m.prepared[binary.LittleEndian.Uint32(m.heard[packetHead+1:])] = m.preparing
	}
	m.preparing, m.heard = "", nil
}

// ended: the answer of a statement that commits is one packet, since nothing that writes
// returns rows.
func (m *mysql) ended(answer []byte) bool {
	m.tail = append(m.tail, answer...)
	_, whole := packet(m.tail)
	return whole
}
