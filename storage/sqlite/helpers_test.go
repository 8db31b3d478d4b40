package sqlite

import (
	"database/sql"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// besides are the databases that openDB has opened, by what it was asked for.
var besides sync.Map

type beside struct {
	s        *Store
	readOnly bool
}

// openDB gives the file of a store beside it, through database/sql, with the settings of the
// connection that writes or of those that read.
func openDB(t testing.TB, s *Store, readOnly bool) *sql.DB {
	t.Helper()
	if db, ok := besides.Load(beside{s, readOnly}); ok {
		return db.(*sql.DB)
	}
	connector := s.writeConnector
	if readOnly {
		connector = s.readConnector
	}
	db := sql.OpenDB(connector)
	besides.Store(beside{s, readOnly}, db)
	t.Cleanup(func() {
		besides.Delete(beside{s, readOnly})
		require.NoError(t, db.Close())
	})
	return db
}
