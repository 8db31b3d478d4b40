package mssql_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/stretchr/testify/require"
)

// column is a column of the layout.
type column struct {
	name, typ, collation string
	nullable             bool
	// given says that an INSERT must name it: not null, no default, not counted up.
	given bool
}

// layout is what the migrations make.
type layout struct {
	columns map[string][]column   // by table
	indexes map[string]string     // name -> table
	unique  map[string][][]string // the columns of each unique key of a table
	// trees are those of the batches of the migrations; procedures are among them, by name.
	trees      []tree
	procedures map[string]tree
}

func (l layout) column(table, name string) (column, bool) {
	for _, c := range l.columns[table] {
		if c.name == name {
			return c, true
		}
	}
	return column{}, false
}

// up is the part of a migration that goes forward, without its comments.
func up(text string) string { return strings.Join(batches(text), "\n") }

// batches are the texts that a migration sends, one after the other, as goose cuts them: at each
// line that ends with a semicolon, but for what stands between StatementBegin and
// StatementEnd, which is one.
func batches(text string) []string {
	if at := strings.Index(text, "-- +goose Down"); at >= 0 {
		text = text[:at]
	}
	var (
		list  []string
		b     strings.Builder
		whole bool
	)
	cut := func() {
		if strings.TrimSpace(b.String()) != "" {
			list = append(list, b.String())
		}
		b.Reset()
	}
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "-- +goose StatementBegin":
			cut()
			whole = true
		case trimmed == "-- +goose StatementEnd":
			cut()
			whole = false
		case strings.HasPrefix(trimmed, "--"):
		default:
			b.WriteString(line)
			if !whole && strings.HasSuffix(trimmed, ";") {
				cut()
			}
		}
	}
	cut()
	return list
}

func readLayout(t *testing.T) layout {
	t.Helper()
	return layoutOf(t, migrations(t))
}

// migrations are the texts of all of them, one behind the other.
func migrations(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("migrations/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var b strings.Builder
	for _, name := range files {
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		b.Write(raw)
	}
	return b.String()
}

// layoutOf is what the text of migrations makes.
func layoutOf(t *testing.T, text string) layout {
	t.Helper()
	l := layout{columns: map[string][]column{}, indexes: map[string]string{}, unique: map[string][][]string{}, procedures: map[string]tree{}}
	require.NotContains(t, text, "+goose NO TRANSACTION", "a migration that broke off leaves nothing")
	for _, batch := range batches(text) {
		tr := parseBatch(t, batch)
		require.Len(t, tr.statements, 1, "one statement a batch: %s", batch)
		l.trees = append(l.trees, tr)
		switch s := tr.statements[0].(type) {
		case *ast.CreateTableStatement:
			l.addTable(tr, s)
		case *ast.CreateIndexStatement:
			name := s.OnName.BaseIdentifier.Value
			l.indexes[s.Name.Value] = name
			if s.Unique {
				l.unique[name] = append(l.unique[name], keyColumns(s.Columns))
			}
		case *ast.CreateProcedureStatement:
			l.procedures[s.ProcedureReference.Name.BaseIdentifier.Value] = tr
		case *ast.AlterTableSetStatement, *ast.InsertStatement:
		default:
			t.Errorf("a migration does %s", kind(s))
		}
	}
	return l
}

func (l layout) addTable(tr tree, s *ast.CreateTableStatement) {
	name := s.SchemaObjectName.BaseIdentifier.Value
	for _, d := range s.Definition.ColumnDefinitions {
		c := column{name: d.ColumnIdentifier.Value, typ: strings.ToLower(tr.source(d.DataType)), nullable: true}
		if d.Collation != nil {
			c.collation = d.Collation.Value
		}
		key := false
		for _, constraint := range d.Constraints {
			switch constraint := constraint.(type) {
			case *ast.NullableConstraintDefinition:
				c.nullable = constraint.Nullable
			case *ast.UniqueConstraintDefinition:
				key = key || constraint.IsPrimaryKey
				l.addUnique(name, constraint, c.name)
			}
		}
		if d.Nullable != nil {
			c.nullable = d.Nullable.Nullable
		}
		c.nullable = c.nullable && !key
		c.given = !c.nullable && d.DefaultConstraint == nil && d.IdentityOptions == nil && d.ComputedColumnExpression == nil
		l.columns[name] = append(l.columns[name], c)
	}
	for _, constraint := range s.Definition.TableConstraints {
		if u, ok := constraint.(*ast.UniqueConstraintDefinition); ok {
			l.addUnique(name, u, "")
		}
	}
}

// addUnique notes a PRIMARY KEY or UNIQUE constraint; that of a column names no columns.
func (l layout) addUnique(table string, u *ast.UniqueConstraintDefinition, column string) {
	columns := keyColumns(u.Columns)
	if len(columns) == 0 {
		columns = []string{column}
	}
	l.unique[table] = append(l.unique[table], columns)
	if u.ConstraintIdentifier != nil {
		l.indexes[u.ConstraintIdentifier.Value] = table
	}
}

func keyColumns(list []*ast.ColumnWithSortOrder) []string {
	var names []string
	for _, c := range list {
		names = append(names, last(c.Column.MultiPartIdentifier))
	}
	return names
}

// extraColumns and missingColumns are what the two layouts do not share, by table.
var (
	extraColumns   = map[string][]string{}
	missingColumns = map[string][]string{
		"message": {"head_of"}, // MySQL has no filtered index, so it says with a column what the index message_head says
	}
)

// layoutProblems are what every table and index of the layout keeps.
func layoutProblems(l layout) []string {
	var found []string
	wrong := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	text := ""
	for _, tr := range l.trees {
		text += strings.Join(strings.Fields(tr.text), " ") + "\n"
		for _, n := range all[*ast.SchemaObjectName](tr.statements) {
			if n.BaseIdentifier != nil && l.columns[n.BaseIdentifier.Value] != nil && (n.SchemaIdentifier == nil || n.SchemaIdentifier.Value != "queuebox") {
				wrong("%s has no schema", n.BaseIdentifier.Value)
			}
		}
	}
	for table, columns := range l.columns {
		if !strings.Contains(text, "ALTER TABLE queuebox."+table+" SET (LOCK_ESCALATION = DISABLE)") {
			wrong("%s: many row locks may become one of the table", table)
		}
		if len(l.unique[table]) == 0 {
			wrong("%s has no key", table)
		}
		for _, c := range columns {
			switch {
			case strings.HasPrefix(c.typ, "datetime2") && c.typ != "datetime2(6)", c.typ == "datetime", strings.HasPrefix(c.typ, "datetimeoffset"):
				wrong("%s.%s is %s", table, c.name, c.typ)
			case strings.HasPrefix(c.typ, "varchar"), strings.HasPrefix(c.typ, "char"), strings.HasPrefix(c.typ, "text"), strings.HasPrefix(c.typ, "ntext"):
				wrong("%s.%s is %s, and parameters are nvarchar", table, c.name, c.typ)
			case strings.HasPrefix(c.typ, "nvarchar") && c.collation != "Latin1_General_100_BIN2":
				wrong("%s.%s has the collation of the database", table, c.name)
			}
		}
	}
	key := func(where, table string, columns []string) {
		for _, name := range columns {
			if c, ok := l.column(table, name); ok && strings.Contains(c.typ, "char") {
				wrong("%s: %s is text, and trailing blanks do not count in a key", where, name)
			}
		}
	}
	for table, keys := range l.unique {
		for _, columns := range keys {
			key(table, table, columns)
		}
	}
	for _, tr := range l.trees {
		for _, i := range all[*ast.CreateIndexStatement](tr.statements) {
			key(i.Name.Value, i.OnName.BaseIdentifier.Value, keyColumns(i.Columns))
			if !strings.Contains(strings.ToUpper(tr.source(i)), "ALLOW_PAGE_LOCKS = OFF") {
				wrong("%s may lock pages, which READPAST does not skip", i.Name.Value)
			}
		}
		for _, i := range all[*ast.UniqueConstraintDefinition](tr.statements) {
			if i.ConstraintIdentifier == nil {
				wrong("a key without a name: %s", tr.source(i))
			} else if !strings.Contains(strings.ToUpper(tr.source(i)), "ALLOW_PAGE_LOCKS = OFF") {
				wrong("%s may lock pages, which READPAST does not skip", i.ConstraintIdentifier.Value)
			}
		}
		if len(all[*ast.ForeignKeyConstraintDefinition](tr.statements)) > 0 {
			wrong("a foreign key, which reads another table under every write")
		}
	}
	return found
}

var (
	mysqlTable  = regexp.MustCompile(`(?ms)^CREATE TABLE (?:IF NOT EXISTS )?(\w+) \((.*?)^\)`)
	mysqlColumn = regexp.MustCompile(`^\s+(\w+)\s+([A-Z]+)`)
	mysqlIndex  = regexp.MustCompile(`^\s+(?:UNIQUE )?KEY (\w+)`)
)

// mysqlLayout is the layout of MySQL: its columns and indexes by table.
func mysqlLayout(t *testing.T) (columns map[string][]string, indexes map[string]string) {
	t.Helper()
	columns, indexes = map[string][]string{}, map[string]string{}
	files, err := filepath.Glob("../mysql/migrations/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range mysqlTable.FindAllStringSubmatch(up(string(raw)), -1) {
			for line := range strings.Lines(m[2]) {
				if i := mysqlIndex.FindStringSubmatch(line); i != nil {
					indexes[i[1]] = m[1]
				} else if c := mysqlColumn.FindStringSubmatch(line); c != nil && !slices.Contains([]string{"PRIMARY", "UNIQUE", "KEY", "CONSTRAINT", "CHECK"}, c[1]) {
					columns[m[1]] = append(columns[m[1]], c[1])
				}
			}
		}
	}
	return columns, indexes
}
