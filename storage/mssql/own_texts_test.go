package mssql_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// E12: what others run is one call of a procedure of the layout with as many arguments as it has.
func TestE12TextsForOthersParse(t *testing.T) {
	migration, err := os.ReadFile("migrations/00001_layout.sql")
	require.NoError(t, err)
	names := statementNames(t, "queries/own")
	require.Len(t, names, 5)
	for _, name := range names {
		text, err := rowlock.Text(&rowlock.Engine{Queries: os.DirFS("."), Now: clock}, "own/"+name)
		require.NoError(t, err)
		kinds := strings.Join(parseBatch(t, text).kinds(), " ")
		require.Contains(t, []string{"EXECUTE", "DECLAREVARIABLE EXECUTE"}, kinds, name)
		_, call, ok := strings.Cut(text, "EXEC ")
		require.True(t, ok)
		procedure, arguments, ok := strings.Cut(call, " ")
		require.True(t, ok)
		_, head, ok := strings.Cut(string(migration), "CREATE PROCEDURE "+procedure+"\n")
		require.True(t, ok, "%s calls %s", name, procedure)
		head, _, ok = strings.Cut(head, "\nAS\n")
		require.True(t, ok)
		require.Equal(t, strings.Count(head, "@"), strings.Count(arguments, ",")+1, "%s: arguments of %s", name, procedure)
	}
}
