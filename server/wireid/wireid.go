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
	"encoding/base32"
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

// alphabet is lower case, in the order of the bytes (so that ids of one queue sort by
// position) and without letters that are easily mistaken for others.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// Message makes the message id of a message.
func Message(ref storage.Ref) string {
	var raw [messageBytes]byte
	binary.BigEndian.PutUint32(raw[0:4], uint32(ref.QueueID))
	binary.BigEndian.PutUint64(raw[4:12], uint64(ref.Position))
	return encode(kindMessage, raw[:])
}

// ParseMessage reads a message id.
func ParseMessage(id string) (storage.Ref, error) {
	var raw [messageBytes]byte
	if err := decode(kindMessage, id, raw[:]); err != nil {
		return storage.Ref{}, err
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
func Token(token storage.Token) string { return encode(kindToken, token[:]) }

// ParseToken reads a claim token. The empty string is the zero token, which matches
// no claim: a caller without a token is a caller that lost its claim (R3).
func ParseToken(s string) (storage.Token, error) {
	var token storage.Token
	if s == "" {
		return token, nil
	}
	if err := decode(kindToken, s, token[:]); err != nil {
		return storage.Token{}, err
	}
	return token, nil
}

// encoding is never changed; it is a variable since building it takes longer than
// using it.
var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

func encode(kind byte, raw []byte) string {
	buf := make([]byte, 0, tokenBytes+sumBytes)
	buf = append(buf, raw...)
	buf = binary.BigEndian.AppendUint32(buf, checksum(kind, raw))
	out := make([]byte, 1, 1+32)
	out[0] = kind
	return string(encoding.AppendEncode(out, buf))
}

func decode(kind byte, s string, raw []byte) error {
	if len(s) != 1+encoding.EncodedLen(len(raw)+sumBytes) || s[0] != kind {
		return ErrMalformed
	}
	buf, err := encoding.AppendDecode(make([]byte, 0, tokenBytes+sumBytes), []byte(s[1:]))
	if err != nil || len(buf) != len(raw)+sumBytes {
		return ErrMalformed
	}
	if binary.BigEndian.Uint32(buf[len(raw):]) != checksum(kind, buf[:len(raw)]) {
		return ErrMalformed
	}
	// The last letter of a message id has bits to spare and the decoder skips line
	// breaks, so more than one string can decode to these bytes. Only one was made.
	if encode(kind, buf[:len(raw)]) != s {
		return ErrMalformed
	}
	copy(raw, buf)
	return nil
}

func checksum(kind byte, raw []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Update(0, table, []byte{kind}), table, raw)
}
