package wireid

import (
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

func TestMessageRoundTrip(t *testing.T) {
	for _, ref := range []storage.Ref{
		{},
		{QueueID: 1, Position: 1},
		{QueueID: 7, Position: 1 << 40},
		{QueueID: math.MaxInt32, Position: math.MaxInt64},
	} {
		id := Message(ref)
		require.True(t, strings.HasPrefix(id, "m"))
		got, err := ParseMessage(id)
		require.NoError(t, err)
		require.Equal(t, ref, got)
	}
}

func TestTokenRoundTrip(t *testing.T) {
	token := storage.Token{0: 1, 7: 0xff, 15: 9}
	s := Token(token)
	require.Len(t, s, 33)
	got, err := ParseToken(s)
	require.NoError(t, err)
	require.Equal(t, token, got)
}

func TestR3EmptyTokenIsTheZeroToken(t *testing.T) {
	got, err := ParseToken("")
	require.NoError(t, err)
	require.Equal(t, storage.Token{}, got)
}

func TestForeignStringsAreMalformed(t *testing.T) {
	id := Message(storage.Ref{QueueID: 3, Position: 99})
	token := Token(storage.Token{1, 2, 3})
	for name, s := range map[string]string{
		"empty":             "",
		"a token":           token,
		"upper case":        strings.ToUpper(id),
		"one letter less":   id[:len(id)-1],
		"one letter more":   id + "0",
		"line break inside": id[:5] + "\n" + id[6:],
		"line break added":  id + "\n",
		"a letter changed":  flip(id, 9),
		"a spare bit set":   id[:len(id)-1] + string(alphabet[strings.IndexByte(alphabet, id[len(id)-1])|1]),
		"no alphabet":       "m" + strings.Repeat("u", len(id)-1),
		"a uuid":            "6f1c3c7a-25c6-4a53-9a94-4a54be1c5ab9",
	} {
		t.Run(name, func(t *testing.T) {
			if s == id {
				t.Fatal("the case does not differ from the good id")
			}
			_, err := ParseMessage(s)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
	_, err := ParseToken(id)
	require.ErrorIs(t, err, ErrMalformed)
	_, err = ParseToken(flip(token, 20))
	require.ErrorIs(t, err, ErrMalformed)
}

func TestNegativeNumbersAreMalformed(t *testing.T) {
	for _, ref := range []storage.Ref{{QueueID: -1}, {Position: -1}} {
		_, err := ParseMessage(Message(ref))
		require.ErrorIs(t, err, ErrMalformed)
	}
}

// FuzzParse checks that what decodes encodes to the same string: one value, one
// string.
func FuzzParse(f *testing.F) {
	f.Add(Message(storage.Ref{QueueID: 1, Position: 2}))
	f.Add(Token(storage.Token{9}))
	f.Add("")
	f.Add("m00000000000000000000000000")
	f.Fuzz(func(t *testing.T, s string) {
		if ref, err := ParseMessage(s); err == nil {
			require.Equal(t, s, Message(ref))
		}
		if token, err := ParseToken(s); err == nil && s != "" {
			require.Equal(t, s, Token(token))
		}
	})
}

func flip(s string, i int) string {
	c := byte('0')
	if s[i] == '0' {
		c = '1'
	}
	return s[:i] + string(c) + s[i+1:]
}

// TestTheStringsAreBase32 makes them in the plain way too: strings that were given out stay
// valid for ever.
func TestTheStringsAreBase32(t *testing.T) {
	plain := func(kind byte, raw []byte) string {
		sum := crc32.Checksum(append([]byte{kind}, raw...), crc32.MakeTable(crc32.Castagnoli))
		data := binary.BigEndian.AppendUint32(append([]byte(nil), raw...), sum)
		return string(kind) + base32.NewEncoding(alphabet).WithPadding(base32.NoPadding).EncodeToString(data)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		ref := storage.Ref{QueueID: random.Int32(), Position: random.Int64()}
		raw := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(ref.QueueID)), uint64(ref.Position))
		require.Equal(t, plain('m', raw), Message(ref))
		var token storage.Token
		for i := range token {
			token[i] = byte(random.Uint32())
		}
		require.Equal(t, plain('t', token[:]), Token(token))
		got, err := ParseToken(Token(token))
		require.NoError(t, err)
		require.Equal(t, token, got)
	}
}

// TestParsingAllocatesNothing: it is done for every message of every call.
func TestParsingAllocatesNothing(t *testing.T) {
	id, token := Message(storage.Ref{QueueID: 1, Position: 2}), Token(storage.Token{3})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, err := ParseMessage(id)
		_, err2 := ParseToken(token)
		if err != nil || err2 != nil {
			t.Error(err, err2)
		}
	}))
}
