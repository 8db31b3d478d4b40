package mssql_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

// source is what a name in a FROM clause stands for: a table of the layout, or columns.
type source struct {
	table   string
	columns []string
}

// scope knows every name of one statement, subqueries included. A name that stands for two
// things stands for both: the test is not to know T-SQL better than SQL Server does, it is to
// find what was misspelt.
type scope struct {
	byName map[string][]source
	// free are names that stand by themselves: columns of a select list.
	free map[string]bool
}

func (tr tree) scope(s ast.Statement) scope {
	sc := scope{byName: map[string][]source{}, free: map[string]bool{}}
	add := func(name string, src source) { sc.byName[name] = append(sc.byName[name], src) }
	known := aliases(s)
	walk(s, func(node any) bool {
		switch n := node.(type) {
		case *ast.NamedTableReference:
			tb := namedTable(n)
			if tb.schema == "" && known[tb.name] {
				return true
			}
			add(tb.name, source{table: tb.name})
			if tb.alias != "" {
				add(tb.alias, source{table: tb.name})
			}
		case *ast.OpenJsonTableReference:
			src := source{}
			for _, item := range n.SchemaDeclarationItems {
				src.columns = append(src.columns, item.ColumnDefinition.ColumnIdentifier.Value)
			}
			if n.SchemaDeclarationItems == nil {
				src.columns = []string{"key", "value", "type"}
			}
			if n.Alias != nil {
				add(n.Alias.Value, src)
			}
		case *ast.QueryDerivedTable:
			src := source{}
			for _, c := range n.Columns {
				src.columns = append(src.columns, c.Value)
			}
			if q := query(n.QueryExpression); q != nil && len(src.columns) == 0 {
				src.columns = columnsOf(q.SelectElements)
			}
			if n.Alias != nil {
				add(n.Alias.Value, src)
			}
		case *ast.InlineDerivedTable:
			src := source{}
			for _, c := range n.Columns {
				src.columns = append(src.columns, c.Value)
			}
			if n.Alias != nil {
				add(n.Alias.Value, src)
			}
		case *ast.SelectScalarExpression:
			if n.ColumnName != nil {
				sc.free[n.ColumnName.Value] = true
			}
		}
		return true
	})
	for _, w := range tr.writes() {
		if w.statement == s {
			add("inserted", source{table: w.on()})
			add("deleted", source{table: w.on()})
		}
	}
	return sc
}

// find gives the columns of the layout that a reference may be, and whether it is anything
// at all.
func (sc scope) find(l layout, m *ast.MultiPartIdentifier) (found []column, known bool) {
	name := last(m)
	look := func(list []source) {
		for _, src := range list {
			if c, ok := l.column(src.table, name); ok {
				found = append(found, c)
				known = true
			}
			known = known || slices.Contains(src.columns, name) || src.table != "" && l.columns[src.table] == nil
		}
	}
	if len(m.Identifiers) > 1 {
		look(sc.byName[m.Identifiers[len(m.Identifiers)-2].Value])
		return found, known
	}
	for _, list := range sc.byName {
		look(list)
	}
	return found, known || sc.free[name]
}

// units are the first arguments of DATEADD and DATEDIFF, which look like columns.
func units(s ast.Statement) map[any]bool {
	list := map[any]bool{}
	for _, c := range all[*ast.FunctionCall](s) {
		if c.FunctionName != nil && strings.HasPrefix(strings.ToUpper(c.FunctionName.Value), "DATE") && len(c.Parameters) > 1 {
			list[any(c.Parameters[0])] = true
		}
	}
	return list
}

// columnsExist: every column that is named is one of the layout, or of the list, or made by the
// statement itself.
func columnsExist(f file, _ want, l layout) []string {
	var found []string
	for _, s := range f.tree.statements {
		sc, skip := f.tree.scope(s), units(s)
		for _, c := range all[*ast.ColumnReferenceExpression](s) {
			if c.MultiPartIdentifier == nil || len(c.MultiPartIdentifier.Identifiers) == 0 || skip[any(c)] {
				continue
			}
			if _, ok := sc.find(l, c.MultiPartIdentifier); !ok {
				found = append(found, "no column "+f.tree.source(c))
			}
		}
	}
	return found
}

// noTextCompared: SQL Server pads texts with blanks before it compares them, so N'a' = N'a '
// (E11). What is compared, ordered or grouped are bytes.
func noTextCompared(f file, _ want, l layout) []string {
	var found []string
	for _, s := range f.tree.statements {
		sc := f.tree.scope(s)
		check := func(where any, e ast.ScalarExpression) {
			c, ok := e.(*ast.ColumnReferenceExpression)
			if !ok || c.MultiPartIdentifier == nil {
				return
			}
			columns, _ := sc.find(l, c.MultiPartIdentifier)
			for _, col := range columns {
				if strings.Contains(col.typ, "char") {
					found = append(found, fmt.Sprintf("%s is text in %s", col.name, f.tree.source(where)))
					return
				}
			}
		}
		walk(s, func(node any) bool {
			switch n := node.(type) {
			case *ast.BooleanComparisonExpression:
				check(n, n.FirstExpression)
				check(n, n.SecondExpression)
			case *ast.BooleanInExpression:
				check(n, n.Expression)
			case *ast.ExpressionWithSortOrder:
				check(n, n.Expression)
			case *ast.ExpressionGroupingSpecification:
				check(n, n.Expression)
			}
			return true
		})
	}
	return found
}

// lists: OPENJSON decodes base64 into varbinary(max) and is not known to do so for a length; an
// index is not sought by a (max), so what is compared with a column is cast to its size.
func lists(f file, _ want, _ layout) []string {
	var found []string
	long := map[string]bool{} // columns of type (max)
	for _, j := range all[*ast.OpenJsonTableReference](f.tree.statements) {
		for _, item := range j.SchemaDeclarationItems {
			name, typ := item.ColumnDefinition.ColumnIdentifier.Value, strings.ToLower(f.tree.source(item.ColumnDefinition.DataType))
			switch {
			case strings.HasPrefix(typ, "varbinary") && typ != "varbinary(max)", strings.HasPrefix(typ, "binary"):
				found = append(found, name+" is base64 and "+typ)
			case strings.HasPrefix(typ, "varchar"), strings.HasPrefix(typ, "char"):
				found = append(found, name+" is "+typ+", which loses what is not in its code page")
			}
			if item.Mapping == nil {
				found = append(found, name+" has no path")
			}
			if strings.HasSuffix(typ, "(max)") && j.Alias != nil {
				long[j.Alias.Value+"."+name] = true
			}
		}
	}
	for _, b := range all[*ast.BooleanComparisonExpression](f.tree.statements) {
		for _, e := range []ast.ScalarExpression{b.FirstExpression, b.SecondExpression} {
			if long[f.tree.source(e)] {
				found = append(found, "no index serves "+f.tree.source(b))
			}
		}
	}
	return found
}
