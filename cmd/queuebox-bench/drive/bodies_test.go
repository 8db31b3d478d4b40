package drive

import (
	"bytes"
	"compress/flate"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBodiesCannotBeCompressed: a database that makes its rows smaller saves nothing. 64 letters
// are six bits in eight for a code of letters, and PostgreSQL looks for repetitions alone.
func TestBodiesCannotBeCompressed(t *testing.T) {
	b := newBodies(4096, nil)
	first, second := b.bytes(), b.bytes()
	require.Len(t, first, 4096)
	require.NotEqual(t, first, second, "messages differ")
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	require.NoError(t, err)
	_, err = w.Write(first)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Greater(t, packed.Len(), 4096*7/10)
	require.Contains(t, newBodies(8, func(s string) string { return "<" + s + ">" }).text(), "<")
}

// TestWindowOfABurnDownEndsWithTheLast: what comes after it, to end the client, is not in it.
func TestWindowOfABurnDownEndsWithTheLast(t *testing.T) {
	m, ended := &Meter{}, 0
	m.Open()
	done := countdown(3, m, func() { ended++ })
	done(1)
	require.Zero(t, ended)
	done(2)
	require.Equal(t, 1, ended)
	seconds := m.seconds
	m.Close()
	require.InDelta(t, seconds, m.seconds, 0)
	require.EqualValues(t, 3, m.Result().Messages)
}
