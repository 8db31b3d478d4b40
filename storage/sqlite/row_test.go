package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestNameless keeps what stands in quotes and comments, and says which argument is where.
func TestNameless(t *testing.T) {
	for _, c := range []struct {
		text, want string
		order      []int
	}{
		{"SELECT 1", "SELECT 1", nil},
		{"SELECT ?2, ?1, ?2 + ?12", "SELECT ?, ?, ? + ?", []int{1, 0, 1, 11}},
		{"SELECT ?, ?", "SELECT ?, ?", []int{0, 1}},
		{"-- what ?1 is\nSELECT 'a?1''?2', ?1 -- and ?2", "-- what ?1 is\nSELECT 'a?1''?2', ? -- and ?2", []int{0}},
		{"SELECT /* ?1 */ 4 / ?3 - ?1", "SELECT /* ?1 */ 4 / ? - ?", []int{2, 0}},
		{"SELECT 'open ?1", "SELECT 'open ?1", nil},
	} {
		text, order := nameless(c.text)
		require.Equal(t, c.want, text)
		require.Equal(t, c.order, order)
	}
}

// TestNameless_EveryStatement means the same without the numbers: SQLite counts as many
// parameters as we do.
func TestNameless_EveryStatement(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	c, err := s.openWriter(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.close()) }()
	for q := range c.queries {
		st, err := c.prepared(t.Context(), q)
		if err != nil {
			continue // a statement of others, who fill in more than parameters
		}
		values := make([]any, 64)
		bound, err := st.bind(values)
		require.NoError(t, err)
		require.Len(t, bound, len(st.order))
	}
}

// TestFromValue refuses what does not fit instead of cutting it.
func TestFromValue(t *testing.T) {
	r := row{values: []driver.Value{int64(7), "x", []byte("b"), int64(1), int64(2), nil, nil, int64(5), 1.5, int64(3)}}
	var (
		n        int64
		text     string
		bytes    []byte
		yes      bool
		state    storage.State
		absent   sql.NullInt64
		none     sql.NullString
		present  sql.NullInt16
		f, whole float64
	)
	require.NoError(t, r.Scan(&n, &text, &bytes, &yes, &state, &absent, &none, &present, &f, &whole))
	require.EqualValues(t, 7, n)
	require.Equal(t, "x", text)
	require.Equal(t, "b", string(bytes))
	require.True(t, yes)
	require.EqualValues(t, 2, state)
	require.False(t, absent.Valid || none.Valid)
	require.EqualValues(t, 5, present.Int16)
	require.InDelta(t, 1.5, f, 0)
	require.InDelta(t, 3, whole, 0)

	var small int8
	for name, err := range map[string]error{
		"too large":    (&row{values: []driver.Value{int64(300)}}).Scan(&small),
		"null":         (&row{values: []driver.Value{nil}}).Scan(&n),
		"another type": (&row{values: []driver.Value{"7"}}).Scan(&n),
		"no pointer":   (&row{values: []driver.Value{int64(7)}}).Scan(small),
		"one missing":  (&row{values: []driver.Value{int64(7)}}).Scan(&n, &n),
	} {
		require.Error(t, err, name)
	}
	_, err := (&statement{order: []int{1}}).bind([]any{1})
	require.Error(t, err)
}
