package mssql_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the pages tell to run on SQL Server is T-SQL. A block of it is marked by a comment.
func TestTSQLOfThePagesParses(t *testing.T) {
	block := regexp.MustCompile("(?s)<!-- tsql -->\n```sql\n(.*?)```")
	var kinds []string
	for _, page := range []string{"engines.md", "own-transaction.md", "operations.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		require.NoError(t, err)
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			tr := parseBatch(t, m[1])
			require.Len(t, tr.statements, strings.Count(m[1], ";"), "%s: a statement that is another to the parser:\n%s", page, m[1])
			kinds = append(kinds, tr.kinds()...)
			require.NotContains(t, tr.kinds(), "EXECUTE", page)
		}
	}
	for _, kind := range []string{"CREATELOGIN", "CREATEUSER", "GRANT", "DENY", "ALTERDATABASESET"} {
		require.Contains(t, kinds, kind)
	}
}
