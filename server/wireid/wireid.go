// Package wireid turns the names that the storage uses for a message and a claim
// into the opaque strings of the wire, and back.
//
// A message id holds the queue id and the position, so that a call needs no second
// lookup; a claim token holds the 128 random bits of the claim. Both end in a
// checksum: a string that QueueBox did not make is told apart from one that names
// nothing any more. The checksum is no secret and guards nothing; the token is the
// proof of a claim, and a caller's queue is checked by the server.
//
// Decoding is strict: every value has exactly one string, and what decodes encodes
// to the same string again.
package wireid

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/queuebox/queuebox/storage"
)

// ErrMalformed says that no QueueBox made the string. It does not repeat the string,
// which may be a secret.
var ErrMalformed = errors.New("wireid: malformed")

// Kinds are the first letter of the string and part of what the checksum covers, so
// that a token is never read as a message id.
const (
	kindMessage = 'm'
	kindToken   = 't'
)

const (
	messageBytes = 4 + 8
	tokenBytes   = 16
	sumBytes     = 4
)

// MessageLen and TokenLen are the lengths of a message id and of a claim token.
const (
	MessageLen = 1 + ((messageBytes+sumBytes)*8+4)/5
	TokenLen   = 1 + ((tokenBytes+sumBytes)*8+4)/5
)

// alphabet is lower case, in the order of the bytes (so that ids of one queue sort by
// position) and without letters that are easily mistaken for others.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// Message makes the message id of a message.
func Message(ref storage.Ref) string {
	var text [MessageLen]byte
	return string(AppendMessage(text[:0], ref))
}

// AppendMessage appends the message id of a message.
func AppendMessage(dst []byte, ref storage.Ref) []byte {
	var raw [messageBytes + sumBytes]byte
	binary.BigEndian.PutUint32(raw[0:4], uint32(ref.QueueID))
	binary.BigEndian.PutUint64(raw[4:12], uint64(ref.Position))
	return encode(dst, kindMessage, raw[:])
}

// ParseMessage reads a message id.
func ParseMessage(id string) (storage.Ref, error) {
	var raw [messageBytes + sumBytes]byte
	if !decode(kindMessage, id, raw[:]) {
		return storage.Ref{}, ErrMalformed
	}
	ref := storage.Ref{
		QueueID:  int32(binary.BigEndian.Uint32(raw[0:4])),
		Position: int64(binary.BigEndian.Uint64(raw[4:12])),
	}
	if ref.QueueID < 0 || ref.Position < 0 {
		return storage.Ref{}, ErrMalformed
	}
	return ref, nil
}

// Token makes the claim token of a claim.
func Token(token storage.Token) string {
	var text [TokenLen]byte
	return string(AppendToken(text[:0], token))
}

// AppendToken appends the claim token of a claim.
func AppendToken(dst []byte, token storage.Token) []byte {
	var raw [tokenBytes + sumBytes]byte
	copy(raw[:], token[:])
	return encode(dst, kindToken, raw[:])
}

// ParseToken reads a claim token. The empty string is the zero token, which matches
// no claim: a caller without a token is a caller that lost its claim (R3).
func ParseToken(s string) (storage.Token, error) {
	if s == "" {
		return storage.Token{}, nil
	}
	var raw [tokenBytes + sumBytes]byte
	if !decode(kindToken, s, raw[:]) {
		return storage.Token{}, ErrMalformed
	}
	return storage.Token(raw[:tokenBytes]), nil
}

// values are the places of the letters in the alphabet, none where a byte is no letter.
// They are never changed, nor is the table of the checksum: both are asked for every message
// of every call.
var (
	values     = letterValues()
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

const none = 0xff

func letterValues() (v [256]byte) {
	for i := range v {
		v[i] = none
	}
	for i := range len(alphabet) {
		v[alphabet[i]] = byte(i)
	}
	return v
}

// encode appends the letters of raw, of which the last bytes take the checksum. Each letter
// stands for five bits, the first ones first, as in base32; spare bits of the last one are zero.
func encode(dst []byte, kind byte, raw []byte) []byte {
	sum := raw[len(raw)-sumBytes:]
	binary.BigEndian.PutUint32(sum, checksum(kind, raw[:len(raw)-sumBytes]))
	dst = append(dst, kind)
	var bits uint32
	held := 0
	for _, b := range raw {
		bits = bits<<8 | uint32(b)
		for held += 8; held >= 5; {
			held -= 5
			dst = append(dst, alphabet[bits>>held&31])
		}
	}
	if held > 0 {
		dst = append(dst, alphabet[bits<<(5-held)&31])
	}
	return dst
}

// decode reads what encode wrote into raw, the checksum too, and nothing else: whatever else
// would decode to the same bytes was made by nobody.
func decode(kind byte, s string, raw []byte) bool {
	if len(s) != 1+(len(raw)*8+4)/5 || s[0] != kind {
		return false
	}
	var bits uint32
	held, n := 0, 0
	for i := 1; i < len(s); i++ {
		v := values[s[i]]
		if v == none {
			return false
		}
		bits = bits<<5 | uint32(v)
		if held += 5; held >= 8 {
			held -= 8
			raw[n] = byte(bits >> held)
			n++
		}
	}
	if bits&(1<<held-1) != 0 {
		return false
	}
	data := raw[:len(raw)-sumBytes]
	return binary.BigEndian.Uint32(raw[len(data):]) == checksum(kind, data)
}

// checksum is the CRC-32C of the kind and the bytes. The loop over so few bytes is as fast as
// the function of the library, which moves its argument to the heap.
func checksum(kind byte, raw []byte) uint32 {
	sum := castagnoli[byte(0xff)^kind] ^ 0xffffffff>>8
	for _, b := range raw {
		sum = castagnoli[byte(sum)^b] ^ sum>>8
	}
	return ^sum
}
