package mssql_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/sqlc-dev/teesql/parser"
	"github.com/stretchr/testify/require"
)

// tree is a batch of T-SQL as the parser understands it.
type tree struct {
	text       string
	statements []ast.Statement
}

// parseBatch parses a text that must be exactly one batch.
func parseBatch(t *testing.T, text string) tree {
	t.Helper()
	// The parser counts in UTF-16, Go in bytes: the same where all is ASCII.
	for i := range len(text) {
		require.Less(t, text[i], byte(0x80), "not ASCII at %d", i)
	}
	script, err := parser.Parse(t.Context(), strings.NewReader(text))
	require.NoError(t, err)
	require.Len(t, script.Batches, 1, "batches")
	return tree{text: text, statements: script.Batches[0].Statements}
}

// spanned is every node that knows where it stands.
type spanned interface{ Frag() *ast.Fragment }

// source is the text of a node, with single blanks.
func (tr tree) source(node any) string {
	s, ok := node.(spanned)
	if !ok || !s.Frag().HasSpan() {
		return ""
	}
	f := s.Frag()
	return strings.Join(strings.Fields(tr.text[f.StartOffset:f.EndOffset()]), " ")
}

// walk visits every node below and including v, from the outside in and in the order of the
// fields; visit tells whether to go on below the node. Reflection sees all types of nodes,
// also those that no statement has today.
func walk(v any, visit func(node any) bool) {
	walkValue(reflect.ValueOf(v), visit)
}

func walkValue(v reflect.Value, visit func(node any) bool) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			walkValue(v.Elem(), visit)
		}
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if v.Elem().Kind() == reflect.Struct && v.Type().Elem() != reflect.TypeFor[ast.Fragment]() && !visit(v.Interface()) {
			return
		}
		walkValue(v.Elem(), visit)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[ast.Fragment]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				walkValue(v.Field(i), visit)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			walkValue(v.Index(i), visit)
		}
	default:
	}
}

// all gives the nodes of one type below v.
func all[T any](v any) []T {
	var found []T
	walk(v, func(node any) bool {
		if n, ok := node.(T); ok {
			found = append(found, n)
		}
		return true
	})
	return found
}

// kind is the type of a statement in one word: SELECT, INSERT, UPDATE, DELETE, IF, …
func kind(s ast.Statement) string {
	name := strings.TrimSuffix(reflect.TypeOf(s).Elem().Name(), "Statement")
	return strings.ToUpper(name)
}

// kinds are those of all statements, also those within IF and BEGIN … END.
func (tr tree) kinds() []string {
	var kinds []string
	for _, s := range all[ast.Statement](tr.statements) {
		if kind(s) != "BEGINENDBLOCK" {
			kinds = append(kinds, kind(s))
		}
	}
	return kinds
}

// last identifier of a name that may have several.
func last(m *ast.MultiPartIdentifier) string {
	if m == nil || len(m.Identifiers) == 0 {
		return ""
	}
	return m.Identifiers[len(m.Identifiers)-1].Value
}

// hintWord is a hint as the text has it, in upper case and without blanks.
func hintWord(h ast.TableHintType) string {
	values := func(list []*ast.IdentifierOrValueExpression) string {
		var names []string
		for _, v := range list {
			names = append(names, strings.ToUpper(v.Value))
		}
		return strings.Join(names, ",")
	}
	switch h := h.(type) {
	case *ast.TableHint:
		return strings.ToUpper(h.HintKind)
	case *ast.IndexTableHint:
		return "INDEX(" + values(h.IndexValues) + ")"
	case *ast.ForceSeekTableHint:
		if h.IndexValue == nil {
			return "FORCESEEK"
		}
		word := "FORCESEEK(" + strings.ToUpper(h.IndexValue.Value)
		if len(h.ColumnValues) > 0 {
			var columns []string
			for _, c := range h.ColumnValues {
				columns = append(columns, strings.ToUpper(last(c.MultiPartIdentifier)))
			}
			word += "(" + strings.Join(columns, ",") + ")"
		}
		return word + ")"
	default:
		return "?"
	}
}

// table is a table where a statement names it.
type table struct {
	schema, name, alias string
	hints               []string // sorted
}

func namedTable(n *ast.NamedTableReference) table {
	tb := table{}
	if o := n.SchemaObject; o != nil {
		if o.SchemaIdentifier != nil {
			tb.schema = o.SchemaIdentifier.Value
		}
		if o.BaseIdentifier != nil {
			tb.name = o.BaseIdentifier.Value
		}
	}
	if n.Alias != nil {
		tb.alias = n.Alias.Value
	}
	for _, h := range n.TableHints {
		tb.hints = append(tb.hints, hintWord(h))
	}
	slices.Sort(tb.hints)
	return tb
}

// aliases are the names that the FROM clauses below v give to what they read.
func aliases(v any) map[string]bool {
	names := map[string]bool{}
	walk(v, func(node any) bool {
		switch n := node.(type) {
		case *ast.NamedTableReference:
			if n.Alias != nil {
				names[n.Alias.Value] = true
			}
		case *ast.QueryDerivedTable:
			if n.Alias != nil {
				names[n.Alias.Value] = true
			}
		}
		return true
	})
	return names
}

// tables are the tables that the text names, in its order. The target of UPDATE m … FROM
// queuebox.message AS m is left out: it stands there once more with its schema.
func (tr tree) tables() []table {
	var found []table
	for _, s := range tr.statements {
		known := aliases(s)
		for _, n := range all[*ast.NamedTableReference](s) {
			tb := namedTable(n)
			if tb.schema == "" && known[tb.name] {
				continue
			}
			found = append(found, tb)
		}
	}
	return found
}

// parameters are the names of all variables that no DECLARE of the batch makes.
func (tr tree) parameters() []string {
	declared := map[string]bool{}
	for _, d := range all[*ast.DeclareVariableElement](tr.statements) {
		declared[strings.TrimPrefix(d.VariableName.Value, "@")] = true
	}
	for _, d := range all[*ast.DeclareTableVariableBody](tr.statements) {
		declared[strings.TrimPrefix(d.VariableName.Value, "@")] = true
	}
	var names []string
	for _, v := range all[*ast.VariableReference](tr.statements) {
		name := strings.TrimPrefix(v.Name, "@")
		if !declared[name] && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// conjuncts are the conditions of a WHERE or ON clause that all must hold.
func conjuncts(e ast.BooleanExpression) []ast.BooleanExpression {
	switch e := e.(type) {
	case nil:
		return nil
	case *ast.BooleanParenthesisExpression:
		return conjuncts(e.Expression)
	case *ast.BooleanBinaryExpression:
		if strings.EqualFold(e.BinaryExpressionType, "and") {
			return append(conjuncts(e.FirstExpression), conjuncts(e.SecondExpression)...)
		}
	}
	return []ast.BooleanExpression{e}
}

// write is an INSERT, UPDATE or DELETE.
type write struct {
	statement ast.Statement
	kind      string
	target    ast.TableReference
	top       *ast.TopRowFilter
	from      *ast.FromClause
	where     *ast.WhereClause
	output    *ast.OutputClause
}

// writes are the statements that change rows of tables of the schema.
func (tr tree) writes() []write {
	var found []write
	for _, s := range all[ast.Statement](tr.statements) {
		switch s := s.(type) {
		case *ast.InsertStatement:
			i := s.InsertSpecification
			found = append(found, write{statement: s, kind: "INSERT", target: i.Target, top: i.TopRowFilter, output: i.OutputClause})
		case *ast.UpdateStatement:
			u := s.UpdateSpecification
			found = append(found, write{s, "UPDATE", u.Target, u.TopRowFilter, u.FromClause, u.WhereClause, u.OutputClause})
		case *ast.DeleteStatement:
			d := s.DeleteSpecification
			found = append(found, write{s, "DELETE", d.Target, d.TopRowFilter, d.FromClause, d.WhereClause, d.OutputClause})
		}
	}
	return found
}

// on is the name of the table that is written, without its schema.
func (w write) on() string {
	n, ok := w.target.(*ast.NamedTableReference)
	if !ok {
		return ""
	}
	tb := namedTable(n)
	if tb.schema == "" {
		for _, other := range all[*ast.NamedTableReference](w.from) {
			if o := namedTable(other); o.alias == tb.name {
				return o.name
			}
		}
	}
	return tb.name
}

// where and the ON clauses of the joins of a statement, as single conditions.
func (w write) conditions() []ast.BooleanExpression {
	var list []ast.BooleanExpression
	if w.where != nil {
		list = conjuncts(w.where.SearchCondition)
	}
	for _, j := range all[*ast.QualifiedJoin](w.from) {
		if strings.EqualFold(j.QualifiedJoinType, "inner") {
			list = append(list, conjuncts(j.SearchCondition)...)
		}
	}
	return list
}

// columnsOf names the columns of a select list or of OUTPUT; "?" where one has no name.
func columnsOf(elements []ast.SelectElement) []string {
	var names []string
	for _, e := range elements {
		switch e := e.(type) {
		case *ast.SelectSetVariable: // SELECT @x = … gives no row
		case *ast.SelectScalarExpression:
			name := "?"
			if c, ok := e.Expression.(*ast.ColumnReferenceExpression); ok {
				name = last(c.MultiPartIdentifier)
			}
			if e.ColumnName != nil {
				name = e.ColumnName.Value
			}
			names = append(names, name)
		default:
			names = append(names, "?")
		}
	}
	return names
}

// query is the part of a query expression that names its columns: of a UNION the first.
func query(e ast.QueryExpression) *ast.QuerySpecification {
	switch e := e.(type) {
	case *ast.QuerySpecification:
		return e
	case *ast.BinaryQueryExpression:
		return query(e.FirstQueryExpression)
	case *ast.QueryParenthesisExpression:
		return query(e.QueryExpression)
	default:
		return nil
	}
}

// results are the columns of each result set of the batch.
func (tr tree) results() [][]string {
	var sets [][]string
	add := func(elements []ast.SelectElement) {
		if names := columnsOf(elements); len(names) > 0 {
			sets = append(sets, names)
		}
	}
	for _, s := range all[ast.Statement](tr.statements) {
		if s, ok := s.(*ast.SelectStatement); ok {
			if q := query(s.QueryExpression); q != nil {
				add(q.SelectElements)
			}
		}
	}
	for _, w := range tr.writes() {
		if w.output != nil {
			add(w.output.SelectColumns)
		}
	}
	return sets
}
