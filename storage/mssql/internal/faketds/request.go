package faketds

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Param is a parameter of an RPC.
type Param struct {
	Name string
	// Type is that on the wire, such as bigint, nvarchar(4), varbinary(max).
	Type string
	// Value is int64, float64, bool, string or []byte as it stood on the wire, nil for NULL.
	Value any
}

// ExecuteSQL is sp_executesql, as the driver calls it by itself.
const ExecuteSQL = "procedure 10"

// The types that the driver sends.
const (
	typeNull      = 0x1f
	typeGUID      = 0x24
	typeIntN      = 0x26
	typeBitN      = 0x68
	typeFloatN    = 0x6d
	typeDateTime2 = 0x2a
	typeVarBinary = 0xa5
	typeVarChar   = 0xa7
	typeNVarChar  = 0xe7
)

// scanner reads what the driver sent. After the first mistake it reads zeros.
type scanner struct {
	data []byte
	err  error
}

func (s *scanner) take(n int) []byte {
	if s.err != nil || n < 0 || n > len(s.data) {
		if s.err == nil {
			s.err = fmt.Errorf("%d bytes wanted, %d left", n, len(s.data))
		}
		return make([]byte, max(n, 0)&0xffff)
	}
	out := s.data[:n]
	s.data = s.data[n:]
	return out
}

func (s *scanner) byte() byte     { return s.take(1)[0] }
func (s *scanner) short() uint16  { return binary.LittleEndian.Uint16(s.take(2)) }
func (s *scanner) long() uint32   { return binary.LittleEndian.Uint32(s.take(4)) }
func (s *scanner) double() uint64 { return binary.LittleEndian.Uint64(s.take(8)) }

func parse(m message) (Request, error) {
	r := Request{Reset: m.reset}
	s := &scanner{data: m.data}
	switch m.kind {
	case packetLogin:
		r.Kind = Login
		// The database stands in the ninth pair of offset and length, which begin at 36.
		at := s.data[36+8*4:]
		offset, length := int(binary.LittleEndian.Uint16(at)), int(binary.LittleEndian.Uint16(at[2:]))
		r.Text = fromUCS2(s.data[offset : offset+2*length])
		return r, nil
	case packetBatch:
		r.Kind = Batch
		r.Transaction = headers(s)
		r.Text = fromUCS2(s.data)
		return r, s.err
	case packetTransaction:
		r.Transaction = headers(s)
		switch kind := s.short(); kind {
		case 5:
			r.Kind, r.Isolation = Begin, s.byte()
		case 7:
			r.Kind = Commit
		case 8:
			r.Kind = Rollback
		default:
			return r, fmt.Errorf("transaction request %d", kind)
		}
		return r, s.err
	case packetRPC:
		return parseRPC(s, r)
	}
	return r, fmt.Errorf("a message of type %d", m.kind)
}

// headers reads ALL_HEADERS: the one that is always there tells the transaction.
func headers(s *scanner) uint64 {
	all := &scanner{data: s.take(int(s.long()) - 4)}
	all.take(4 + 2)
	transaction := all.double()
	if s.err == nil {
		s.err = all.err
	}
	return transaction
}

func parseRPC(s *scanner, r Request) (Request, error) {
	r.Kind = RPC
	r.Transaction = headers(s)
	if n := s.short(); n == 0xffff {
		r.Procedure = fmt.Sprintf("procedure %d", s.short())
	} else {
		r.Procedure = fromUCS2(s.take(2 * int(n)))
	}
	s.short() // options
	for s.err == nil && len(s.data) > 0 {
		p := Param{Name: fromUCS2(s.take(2 * int(s.byte())))}
		if p.Name != "" {
			p.Name = p.Name[1:]
		}
		s.byte() // status
		p.Type, p.Value = value(s)
		r.Params = append(r.Params, p)
	}
	if s.err != nil {
		return r, s.err
	}
	if r.Procedure != "sp_executesql" && r.Procedure != ExecuteSQL {
		return r, nil
	}
	// The first two have no names: the text and the declarations.
	for i, into := range []*string{&r.Text, &r.Declared} {
		if len(r.Params) == 0 || r.Params[0].Name != "" {
			break
		}
		text, ok := r.Params[0].Value.(string)
		if !ok {
			return r, fmt.Errorf("parameter %d of sp_executesql is a %s", i+1, r.Params[0].Type)
		}
		*into, r.Params = text, r.Params[1:]
	}
	return r, nil
}

// value reads a parameter with its type.
func value(s *scanner) (string, any) {
	switch kind := s.byte(); kind {
	case typeNull:
		return "null", nil
	case typeGUID:
		s.byte()
		return "uniqueidentifier", short(s)
	case typeIntN:
		size := s.byte()
		name := map[byte]string{1: "tinyint", 2: "smallint", 4: "int", 8: "bigint"}[size]
		raw := s.take(int(s.byte()))
		switch len(raw) {
		case 0:
			return name, nil
		case 1:
			return name, int64(raw[0])
		case 2:
			return name, int64(int16(binary.LittleEndian.Uint16(raw)))
		case 4:
			return name, int64(int32(binary.LittleEndian.Uint32(raw)))
		}
		return name, int64(binary.LittleEndian.Uint64(raw))
	case typeBitN:
		s.byte()
		if raw := s.take(int(s.byte())); len(raw) > 0 {
			return "bit", raw[0] != 0
		}
		return "bit", nil
	case typeFloatN:
		s.byte()
		return "float", short(s)
	case typeDateTime2:
		scale := s.byte()
		return fmt.Sprintf("datetime2(%d)", scale), short(s)
	case typeVarBinary:
		size := s.short()
		raw := long(s, size)
		return sized("varbinary", int(size), 1), orNil(raw)
	case typeVarChar:
		size := s.short()
		s.take(5) // collation
		if raw := long(s, size); raw != nil {
			return sized("varchar", int(size), 1), string(raw)
		}
		return sized("varchar", int(size), 1), nil
	case typeNVarChar:
		size := s.short()
		s.take(5)
		if raw := long(s, size); raw != nil {
			return sized("nvarchar", int(size), 2), fromUCS2(raw)
		}
		return sized("nvarchar", int(size), 2), nil
	default:
		if s.err == nil {
			s.err = fmt.Errorf("a parameter of type %#x", kind)
		}
		return "", nil
	}
}

// short reads a value of a type of a fixed length, where none at all is NULL.
func short(s *scanner) any {
	if raw := s.take(int(s.byte())); len(raw) > 0 {
		return raw
	}
	return nil
}

// long reads a value of a type that may be (max), nil for NULL.
func long(s *scanner, size uint16) []byte {
	if size != 0xffff {
		if n := s.short(); n != 0xffff {
			return s.take(int(n))
		}
		return nil
	}
	if s.double() == 0xffffffffffffffff {
		return nil
	}
	out := []byte{}
	for s.err == nil {
		n := s.long()
		if n == 0 {
			return out
		}
		out = append(out, s.take(int(n))...)
	}
	if s.err == nil {
		s.err = errors.New("a value without end")
	}
	return out
}

func sized(name string, size, unit int) string {
	if size == 0xffff {
		return name + "(max)"
	}
	return fmt.Sprintf("%s(%d)", name, size/unit)
}

func orNil(raw []byte) any {
	if raw == nil {
		return nil
	}
	return raw
}
