package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// object is a JSON object that keeps the order of its fields, since the payloads of
// GitHub have an order and a reader who knows them expects it.
type object []field

type field struct {
	name  string
	value any
}

// obj builds an object from names and values in turn.
func obj(pairs ...any) object {
	o := make(object, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		o = append(o, field{pairs[i].(string), pairs[i+1]})
	}
	return o
}

// with returns the object with more fields at its end.
func (o object) with(pairs ...any) object {
	return append(append(object{}, o...), obj(pairs...)...)
}

// without returns the object but for the named field.
func (o object) without(name string) object {
	out := object{}
	for _, f := range o {
		if f.name != name {
			out = append(out, f)
		}
	}
	return out
}

// set returns the object with one field changed.
func (o object) set(name string, value any) object {
	out := append(object{}, o...)
	for i := range out {
		if out[i].name == name {
			out[i].value = value
		}
	}
	return out
}

// MarshalJSON writes the fields in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := e.Encode(f.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := e.Encode(f.value); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.name, err)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// list is a JSON array; an empty one is [] and never null.
type list []any

// none is an empty array.
var none = list{}

// sha makes a commit id from a text.
func sha(text string) string {
	h := sha256.Sum256([]byte("commit " + text))
	return hex.EncodeToString(h[:20])
}

// nodeID makes the opaque identifier that stands beside every numeric one.
func nodeID(kind string, id int64) string {
	return kind + "_" + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s:%d", kind, id))
}
