package faketds

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Answer is what the server does.
type Answer struct {
	// Sets are the results, in their order.
	Sets []Set
	// Error, where its number is set, stands after the rows of Sets and before More.
	Error Error
	// More are the results that follow the error, as they do without XACT_ABORT.
	More []Set
	// Return is the return code of a procedure.
	Return int32
	// RolledBack: the server ends the transaction, as XACT_ABORT does.
	RolledBack bool
	// Hold keeps the answer back until it is closed or the request is cancelled.
	Hold <-chan struct{}
	// Deaf: a cancel is not confirmed.
	Deaf bool
	// Drop cuts the connection off instead of answering, after what was asked is done or not.
	Drop bool
}

// Set is a result: columns and rows. Values are int64, int32, bool, string, []byte, GUID,
// time.Time, float64 or nil; the first row that has none tells the type of a column.
type Set struct {
	Columns []string
	Rows    [][]any
	// Kinds has a value for each column whose rows are all nil, or where there are none.
	Kinds []any
}

// Rows makes a result of a row.
func Rows(columns []string, rows ...[]any) Set { return Set{Columns: columns, Rows: rows} }

// GUID is a uniqueidentifier as it stands on the wire.
type GUID [16]byte

// Error is an error of the database.
type Error struct {
	Number  int32
	State   byte
	Class   byte // 16 where it is not set
	Message string
	// Fatal ends the session.
	Fatal bool
}

// The tokens, and what stands in DONE.
const (
	tokenReturnStatus = 0x79
	tokenColumns      = 0x81
	tokenError        = 0xaa
	tokenLoginAck     = 0xad
	tokenRow          = 0xd1
	tokenEnvChange    = 0xe3
	tokenDone         = 0xfd
	tokenDoneProc     = 0xfe
	tokenDoneInProc   = 0xff

	doneMore      = 1
	doneError     = 2
	doneCount     = 0x10
	doneAttention = 0x20
	doneFatal     = 0x100

	changeBegin    = 8
	changeCommit   = 9
	changeRollback = 10
)

func done(token byte, status uint16, count int) []byte {
	out := binary.LittleEndian.AppendUint16([]byte{token}, status)
	out = binary.LittleEndian.AppendUint16(out, 0xc1)
	return binary.LittleEndian.AppendUint64(out, uint64(count))
}

// transaction tells that one has begun or ended.
func transaction(kind byte, id uint64) []byte {
	var old, now []byte
	raw := binary.LittleEndian.AppendUint64([]byte{8}, id)
	if kind == changeBegin {
		now, old = raw, []byte{0}
	} else {
		now, old = []byte{0}, raw
	}
	body := append(append([]byte{kind}, now...), old...)
	return append(binary.LittleEndian.AppendUint16([]byte{tokenEnvChange}, uint16(len(body))), body...)
}

func (c *connection) confirm() error {
	c.mu.Lock()
	c.attentions++
	c.mu.Unlock()
	return c.write(done(tokenDone, doneAttention, 0))
}

// reply sends an answer, or what follows from a cancel.
func (c *connection) reply(r Request, a Answer) error {
	if a.Hold != nil {
		select {
		case <-a.Hold:
		case m, ok := <-c.incoming:
			if !ok {
				return c.failed
			}
			if m.kind != packetAttention {
				return fmt.Errorf("a message of type %d while a request runs", m.kind)
			}
			if a.Deaf {
				c.mu.Lock()
				c.attentions++
				c.mu.Unlock()
				return nil
			}
			var out []byte
			if a.RolledBack && c.tran != 0 {
				out = transaction(changeRollback, c.tran)
				c.tran = 0
			}
			c.mu.Lock()
			c.attentions++
			c.mu.Unlock()
			return c.write(append(out, done(tokenDone, doneAttention, 0)...))
		}
	}
	if a.Drop {
		return errDropped
	}
	if r.Kind == Login {
		return c.write(login(a))
	}
	return c.write(c.tokens(r, a))
}

func login(a Answer) []byte {
	if a.Error.Number != 0 {
		return append(a.Error.token(), done(tokenDone, doneError, 0)...)
	}
	name := ucs2("Microsoft SQL Server")
	body := append([]byte{1, 0x74, 0, 0, 4, byte(len(name) / 2)}, name...)
	body = append(body, 15, 0, 16, 94)
	out := append(binary.LittleEndian.AppendUint16([]byte{tokenLoginAck}, uint16(len(body))), body...)
	return append(out, done(tokenDone, 0, 0)...)
}

func (c *connection) tokens(r Request, a Answer) []byte {
	var out []byte
	failed := a.Error.Number != 0
	status := uint16(0)
	if failed {
		status = doneError
	}
	if a.Error.Fatal {
		status |= doneFatal
	}
	between, last := byte(tokenDone), byte(tokenDone)
	if r.Kind == RPC {
		between, last = tokenDoneInProc, tokenDoneProc
	}
	for _, set := range a.Sets {
		out = append(out, set.tokens()...)
		out = append(out, done(between, doneMore|doneCount, len(set.Rows))...)
	}
	if failed {
		out = append(out, a.Error.token()...)
	}
	if a.RolledBack && c.tran != 0 {
		out = append(out, transaction(changeRollback, c.tran)...)
		c.tran = 0
	}
	for i, set := range a.More {
		if i == 0 {
			out = append(out, done(between, doneMore|doneError, 0)...)
		}
		out = append(out, set.tokens()...)
		out = append(out, done(between, doneMore|doneCount, len(set.Rows))...)
	}
	if !failed {
		switch r.Kind {
		case Login, Batch, RPC:
		case Begin:
			c.mu.Lock()
			c.next++
			c.tran = c.next
			c.mu.Unlock()
			out = append(out, transaction(changeBegin, c.tran)...)
		case Commit:
			out = append(out, transaction(changeCommit, c.tran)...)
			c.tran = 0
		case Rollback:
			out = append(out, transaction(changeRollback, c.tran)...)
			c.tran = 0
		}
	}
	if r.Kind == RPC {
		out = binary.LittleEndian.AppendUint32(append(out, tokenReturnStatus), uint32(a.Return))
	}
	return append(out, done(last, status, 0)...)
}

func (e Error) token() []byte {
	if e.Class == 0 {
		e.Class = 16
	}
	message := ucs2(e.Message)
	body := binary.LittleEndian.AppendUint32(nil, uint32(e.Number))
	body = append(body, e.State, e.Class)
	body = append(binary.LittleEndian.AppendUint16(body, uint16(len(message)/2)), message...)
	body = append(body, 0, 0)                        // server and procedure
	body = binary.LittleEndian.AppendUint32(body, 1) // line
	return append(binary.LittleEndian.AppendUint16([]byte{tokenError}, uint16(len(body))), body...)
}

func (s Set) tokens() []byte {
	out := binary.LittleEndian.AppendUint16([]byte{tokenColumns}, uint16(len(s.Columns)))
	kinds := make([]any, len(s.Columns))
	for i, name := range s.Columns {
		if i < len(s.Kinds) {
			kinds[i] = s.Kinds[i]
		}
		for _, row := range s.Rows {
			if kinds[i] == nil {
				kinds[i] = row[i]
			}
		}
		out = append(out, 0, 0, 0, 0, 1, 0) // user type, nullable
		out = append(out, typeOf(kinds[i])...)
		out = append(append(out, byte(len(name))), ucs2(name)...)
	}
	for _, row := range s.Rows {
		out = append(out, tokenRow)
		for i, v := range row {
			out = append(out, encode(kinds[i], v)...)
		}
	}
	return out
}

func typeOf(kind any) []byte {
	switch kind.(type) {
	case int64, int:
		return []byte{typeIntN, 8}
	case int32:
		return []byte{typeIntN, 4}
	case bool:
		return []byte{typeBitN, 1}
	case float64:
		return []byte{typeFloatN, 8}
	case GUID:
		return []byte{typeGUID, 16}
	case time.Time:
		return []byte{typeDateTime2, 6}
	case []byte:
		return []byte{typeVarBinary, 0xff, 0xff}
	default:
		return []byte{typeNVarChar, 0xff, 0xff, 0, 0, 0, 0, 0}
	}
}

func encode(kind, v any) []byte {
	switch kind.(type) {
	case int64, int, int32, bool, float64, GUID, time.Time:
		if v == nil {
			return []byte{0}
		}
	default:
		if v == nil {
			return []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		}
	}
	switch v := v.(type) {
	case int64:
		return binary.LittleEndian.AppendUint64([]byte{8}, uint64(v))
	case int:
		return binary.LittleEndian.AppendUint64([]byte{8}, uint64(v))
	case int32:
		return binary.LittleEndian.AppendUint32([]byte{4}, uint32(v))
	case bool:
		if v {
			return []byte{1, 1}
		}
		return []byte{1, 0}
	case float64:
		return binary.LittleEndian.AppendUint64([]byte{8}, math.Float64bits(v))
	case GUID:
		return append([]byte{16}, v[:]...)
	case time.Time:
		return append([]byte{8}, dateTime2(v)...)
	case []byte:
		return partly(v)
	case string:
		return partly(ucs2(v))
	}
	panic(fmt.Sprintf("a value of type %T", v))
}

// partly is how values of (max) types are written.
func partly(raw []byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(raw)))
	if len(raw) > 0 {
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(raw))), raw...)
	}
	return binary.LittleEndian.AppendUint32(out, 0)
}

// dateTime2 writes a datetime2(6): microseconds of the day in 5 bytes, days since year 1 in 3.
func dateTime2(t time.Time) []byte {
	t = t.UTC()
	midnight := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	days := int(midnight.Sub(time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)).Hours()/24) + 719162
	us := uint64(t.Sub(midnight).Microseconds())
	return []byte{
		byte(us), byte(us >> 8), byte(us >> 16), byte(us >> 24), byte(us >> 32),
		byte(days), byte(days >> 8), byte(days >> 16),
	}
}
