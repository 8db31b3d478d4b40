package mssql_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// named is a column that has a name: no literal and no expression.
var named = regexp.MustCompile(`^[a-z]`)

// clock is what stands for {{now}} here; the tests look for it in the fences.
const clock = "SYSUTCDATETIME()"

// file is a statement of the engine: the text of its file, and that with the parts put in.
type file struct {
	name, raw, text string
	tree            tree
	// clock is what the fence compares the lease with.
	clock string
}

// readFile reads a statement.
func readFile(t *testing.T, name string) file {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("queries", name+".sql"))
	require.NoError(t, err)
	return newFile(t, name, string(raw))
}

// newFile puts the parts in as the store does.
func newFile(t *testing.T, name, raw string) file {
	t.Helper()
	files := fstest.MapFS{"queries/" + name + ".sql": {Data: []byte(raw)}}
	parts, err := filepath.Glob("queries/parts/*.sql")
	require.NoError(t, err)
	for _, part := range parts {
		data, err := os.ReadFile(part)
		require.NoError(t, err)
		files[filepath.ToSlash(part)] = &fstest.MapFile{Data: data}
	}
	text, err := rowlock.Text(&rowlock.Engine{Queries: files, Now: clock}, name)
	require.NoError(t, err)
	return file{name: name, raw: raw, text: text, tree: parseBatch(t, text), clock: clock}
}

// statementNames are the names of the statements of an engine.
func statementNames(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".sql"))
	}
	require.NotEmpty(t, names)
	return names
}

// TestStatementsParse holds every statement against what was written down for it by hand
// and against the rules that all of them keep. No SQL Server is asked: the text is
// parsed, and the tree is looked at. That is what can be known here about T-SQL; locks,
// plans and errors are for the suite on a real server (docs/engines.md).
func TestStatementsParse(t *testing.T) {
	l := readLayout(t)
	source := readRowlock(t)
	names := statementNames(t, "queries")
	for name := range wants {
		if !slices.Contains(names, name) {
			t.Errorf("there is no statement %s", name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			f := readFile(t, name)
			w, ok := wants[name]
			if !ok {
				w = describe(f)
				t.Errorf("nobody has written down what it should be; it is\n\t%q: {does: %q, locks: %q, params: %q, gives: %s},",
					name, w.does, w.locks, w.params, w.gives)
			}
			for _, problem := range problems(f, w, l, source.calls[name]) {
				t.Error(problem)
			}
		})
	}
}

// describe is an expectation that fits a statement as it is: to be judged, not to be copied.
func describe(f file) want {
	w := want{does: strings.Join(f.tree.kinds(), " "), params: strings.Join(f.tree.parameters(), " "), gives: rows}
	if strings.Contains(f.text, "@@ROWCOUNT AS changed") {
		w.gives = change
	}
	w.locks = strings.Join(locksOf(f.tree), ", ")
	return w
}

// TestMigrationsParse: the layout is that of MySQL, table by table and column by column.
func TestMigrationsParse(t *testing.T) {
	l := readLayout(t)
	for _, problem := range layoutProblems(l) {
		t.Error(problem)
	}
	mysql, _ := mysqlLayout(t)
	for table, columns := range mysql {
		var have []string
		for _, c := range l.columns[table] {
			if !slices.Contains(extraColumns[table], c.name) {
				have = append(have, c.name)
			}
		}
		want := slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return slices.Contains(missingColumns[table], c) })
		require.ElementsMatch(t, want, have, "the columns of %s", table)
	}
	for table := range l.columns {
		require.Contains(t, mysql, table, "a table that MySQL does not have")
	}
}

// The same statements, the same parameters and the same columns on both engines: what runs
// on MariaDB in the tests is the Go code that runs on SQL Server.
func TestStatementsOfBothEnginesAreAlike(t *testing.T) {
	assert.Equal(t, statementNames(t, "../mysql/queries"), statementNames(t, "queries"))
	for _, name := range statementNames(t, "queries") {
		t.Run(name, func(t *testing.T) {
			tsql := readFile(t, name)
			other := readMySQL(t, name)
			if wants[name].because["alike"] != "" {
				require.NotEqual(t, other.parameters, tsql.tree.parameters(), "an exception that is not needed")
				return
			}
			require.Equal(t, other.parameters, tsql.tree.parameters(), "parameters")
			results := tsql.tree.results()
			if wants[name].gives == change {
				// On MySQL the driver counts; there is no row.
				require.Empty(t, other.columns)
				require.Equal(t, [][]string{{"changed"}}, results)
				return
			}
			require.Len(t, results, 1, "result sets")
			require.Len(t, results[0], len(other.columns), "columns: %q", other.columns)
			for i, name := range other.columns {
				// What has no name on one engine is told by its place alone.
				if named.MatchString(name) && named.MatchString(results[0][i]) {
					require.Equal(t, name, results[0][i], "column %d", i)
				}
			}
		})
	}
}

// Every statement that the Go code names is there, and every file is run by it.
func TestStatementsAreThoseOfTheGoCode(t *testing.T) {
	source := readRowlock(t)
	require.ElementsMatch(t, slices.Collect(maps.Values(source.constants)), statementNames(t, "queries"))
	for constant, name := range source.constants {
		if wants[name].because["go"] == "" {
			require.NotEmpty(t, source.calls[name], "nothing runs %s", constant)
		}
	}
}
