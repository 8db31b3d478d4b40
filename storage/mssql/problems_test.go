package mssql_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

// How Go runs a statement.
const (
	change = "change" // session.change: the count of the rows is the one result
	rows   = "rows"   // session.one or each: rows of columns
)

// want is what a statement should be, written from the contract and not from the file.
type want struct {
	// does are the kinds of the statements in their order.
	does string
	// locks has the hints of each table that is named, in the order of the text:
	// "message UPDLOCK READPAST ROWLOCK, ordering_key". An INSERT into a table has none.
	locks  string
	params string
	gives  string
	// fenced: each write of the live messages matches id, state, token and lease (S1, S2).
	fenced bool
	// because has the reasons why a general rule does not hold here, by the name of the rule.
	because map[string]string
}

// rule is a rule that all statements keep.
type rule struct {
	name  string
	check func(f file, w want, l layout) []string
}

// rules are named, so that an exception has to name the one that it is from.
var rules = []rule{
	{"no surprise", noSurprise},
	{"schema", schemaPrefix},
	{"hints", hints},
	{"columns", columnsExist},
	{"text", noTextCompared},
	{"lists", lists},
	{"where", whereOnWrites},
	{"pinned", pinned},
	{"bounded", boundedWrites},
	{"literals", literalStates},
	{"fence", fences},
	{"order", topHasOrder},
	{"durations", durations},
	{"count", countComesLast},
	{"insert", inserts},
	{"index", namesAnIndex},
}

// problems are all that is wrong with a statement.
func problems(f file, w want, l layout, calls []call) []string {
	var found []string
	wrong := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }

	if got := strings.Join(f.tree.kinds(), " "); got != w.does {
		wrong("it does %s, not %s", got, w.does)
	}
	locks, expected := locksOf(f.tree), sortedHints(w.locks)
	if !slices.Equal(locks, expected) {
		wrong("tables and hints are %q, not %q", locks, expected)
	}
	params := strings.Fields(w.params)
	slices.Sort(params)
	if got := f.tree.parameters(); !slices.Equal(got, params) {
		wrong("parameters are %q, not %q", got, params)
	}
	ofGo := rule{"go", func(f file, w want, _ layout) []string { return calledBy(f, w, calls) }}
	for name := range w.because {
		if name != "alike" && name != "go" && !slices.ContainsFunc(rules, func(r rule) bool { return r.name == name }) {
			wrong("an exception from %q, which is no rule", name)
		}
	}
	for _, r := range append([]rule{ofGo}, rules...) {
		list := r.check(f, w, l)
		if w.because[r.name] != "" {
			if len(list) == 0 {
				wrong("%s: an exception that is not needed", r.name)
			}
			continue
		}
		for _, problem := range list {
			wrong("%s: %s", r.name, problem)
		}
	}
	return found
}

// locksOf are the tables of a text with their hints, in order.
func locksOf(tr tree) []string {
	var locks []string
	for _, tb := range tr.tables() {
		locks = append(locks, strings.Join(append([]string{tb.name}, tb.hints...), " "))
	}
	return locks
}

// sortedHints are the same of an expectation, which names hints in the order that people read.
func sortedHints(text string) []string {
	var locks []string
	for part := range strings.SplitSeq(text, ",") {
		if words := strings.Fields(part); len(words) > 0 {
			slices.Sort(words[1:])
			locks = append(locks, strings.Join(words, " "))
		}
	}
	return locks
}

// calledBy compares a statement with the Go code that runs it.
func calledBy(f file, w want, calls []call) []string {
	var found []string
	if len(calls) == 0 {
		return []string{"no Go code runs it"}
	}
	params := f.tree.parameters()
	results := f.tree.results()
	for _, c := range calls {
		if (c.method == "change") != (w.gives == change) {
			found = append(found, fmt.Sprintf("%s: it is run by %s, and gives %s", c.at, c.method, w.gives))
		}
		if c.opaque != "" {
			found = append(found, fmt.Sprintf("%s: the arguments cannot be told: %s", c.at, c.opaque))
		} else if missing := slices.ContainsFunc(params, func(p string) bool { return !slices.Contains(c.names, p) }); missing || !c.shared && len(c.names) != len(params) {
			found = append(found, fmt.Sprintf("%s: Go gives %q, the text takes %q", c.at, c.names, params))
		}
		if c.dest >= 0 && len(results) == 1 && len(results[0]) != c.dest {
			found = append(found, fmt.Sprintf("%s: Go scans %d columns, the text gives %q", c.at, c.dest, results[0]))
		}
	}
	if w.gives == rows && len(results) != 1 {
		found = append(found, fmt.Sprintf("it gives %d result sets", len(results)))
	}
	return found
}

// noSurprise: nothing that an engine which only speaks T-SQL might not have, that locks in
// ways which are hard to foresee, or that reads what is not committed.
func noSurprise(f file, _ want, _ layout) []string {
	var found []string
	for _, s := range all[ast.Statement](f.tree.statements) {
		switch s.(type) {
		case *ast.ExecuteStatement:
			if !regexp.MustCompile(`(?i)\bEXEC(UTE)?\b`).MatchString(f.text) {
				found = append(found, "a word was taken for the name of a procedure")
			}
		case *ast.SelectStatement, *ast.InsertStatement, *ast.UpdateStatement, *ast.DeleteStatement,
			*ast.DeclareVariableStatement, *ast.SetVariableStatement, *ast.IfStatement, *ast.BeginEndBlockStatement:
		case *ast.SetTransactionIsolationLevelStatement:
			// A batch that changes the level does so outside of a transaction, which would fail,
			// and takes it back, whatever the pool does with the session.
			if !strings.Contains(f.text, "IF @@TRANCOUNT = 0 AND ") {
				found = append(found, "a level that is changed in a transaction")
			}
			if level := f.tree.statements[len(f.tree.statements)-1]; f.tree.source(level) != "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;" {
				found = append(found, "a level that is not taken back")
			}
		default:
			found = append(found, kind(s))
		}
	}
	if len(all[*ast.WithCtesAndXmlNamespaces](f.tree.statements)) > 0 {
		found = append(found, "a common table expression")
	}
	for _, s := range all[*ast.SelectStatement](f.tree.statements) {
		if s.Into != nil {
			found = append(found, "SELECT INTO")
		}
	}
	for _, s := range all[*ast.SelectStarExpression](f.tree.statements) {
		found = append(found, "SELECT "+f.tree.source(s))
	}
	return found
}

func schemaPrefix(f file, _ want, l layout) []string {
	var found []string
	for _, tb := range f.tree.tables() {
		switch {
		case tb.schema == "sys":
		case tb.schema != "queuebox":
			found = append(found, fmt.Sprintf("%q has no schema", tb.name))
		case l.columns[tb.name] == nil:
			found = append(found, fmt.Sprintf("no table %q", tb.name))
		}
	}
	return found
}

// tableHint is WITH (…) behind a table. That of OPENJSON stands behind a parenthesis.
var (
	tableHint = regexp.MustCompile(`(?i)([\w\])])\s+WITH\s*\(`)
	blanks    = regexp.MustCompile(`\s+`)
)

// textHints are the hints that the text has, as hintWord spells them.
func textHints(text string) []string {
	var words []string
	for _, at := range tableHint.FindAllStringSubmatchIndex(text, -1) {
		if text[at[2]:at[3]] == ")" {
			continue
		}
		depth, start := 1, at[1]
		for i := start; i < len(text) && depth > 0; i++ {
			switch text[i] {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth == 1 && text[i] == ',' || depth == 0 {
				words = append(words, strings.ToUpper(blanks.ReplaceAllString(text[start:i], "")))
				start = i + 1
			}
		}
	}
	slices.Sort(words)
	return words
}

// hints: the parser drops what it does not know, so the text is compared with the tree; and
// what a hint needs beside it.
func hints(f file, _ want, l layout) []string {
	var found, onTree []string
	for _, n := range all[*ast.NamedTableReference](f.tree.statements) {
		tb := namedTable(n)
		onTree = append(onTree, tb.hints...)
		has := func(h string) bool { return slices.Contains(tb.hints, h) }
		if has("READUNCOMMITTED") || has("NOLOCK") && !dirtyButOne(f, n, l) {
			found = append(found, tb.name+" is read before it is committed")
		}
		if has("UPDLOCK") && !has("ROWLOCK") {
			found = append(found, tb.name+": UPDLOCK without ROWLOCK may lock a page, which READPAST does not skip")
		}
		if has("READPAST") && !has("UPDLOCK") && !has("READCOMMITTEDLOCK") {
			found = append(found, tb.name+": READPAST without READCOMMITTEDLOCK skips nothing, or fails, where READ_COMMITTED_SNAPSHOT is on")
		}
	}
	slices.Sort(onTree)
	if inText := textHints(f.text); !slices.Equal(inText, onTree) {
		found = append(found, fmt.Sprintf("the text has %q, the parser saw %q", inText, onTree))
	}
	for _, h := range all[ast.OptimizerHintBase](f.tree.statements) {
		if !strings.Contains(strings.ToUpper(f.text), "OPTION") {
			found = append(found, f.tree.source(h))
		}
	}
	if n := strings.Count(strings.ToUpper(f.text), "OPTION ("); n > 0 && len(all[ast.OptimizerHintBase](f.tree.statements)) < n {
		found = append(found, "an OPTION that the parser did not see")
	}
	return found
}

// dirtyButOne: NOLOCK may only fetch one row by its unique key, of columns that never change,
// so that nobody is waited for; a range could miss rows that move, or see them twice.
func dirtyButOne(f file, n *ast.NamedTableReference, l layout) bool {
	tb := namedTable(n)
	columns, ok := steady[tb.name]
	if !ok {
		return false
	}
	for _, c := range all[*ast.ColumnReferenceExpression](f.tree.statements) {
		if name, own := strings.CutPrefix(f.tree.source(c), tb.alias+"."); own && columns != nil && !slices.Contains(columns, name) {
			return false
		}
	}
	var conditions []ast.BooleanExpression
	own := func(e ast.BooleanExpression) {
		for _, c := range conjuncts(e) {
			if b, ok := c.(*ast.BooleanComparisonExpression); ok {
				for _, side := range []ast.ScalarExpression{b.FirstExpression, b.SecondExpression} {
					if strings.HasPrefix(f.tree.source(side), tb.alias+".") {
						conditions = append(conditions, c)
					}
				}
			}
		}
	}
	for _, q := range all[*ast.QuerySpecification](f.tree.statements) {
		if q.FromClause == nil || !slices.Contains(all[*ast.NamedTableReference](q.FromClause), n) {
			continue
		}
		if q.WhereClause != nil {
			own(q.WhereClause.SearchCondition)
		}
		for _, j := range all[*ast.QualifiedJoin](q.FromClause) {
			own(j.SearchCondition)
		}
	}
	return unique(l, tb.name, conditions)
}

// steady are the tables of which rows are read past the locks of others, with the columns that
// never change. Of a queue every column is read so: a setting may change a moment later anyway.
var steady = map[string][]string{
	"queue":        nil,
	"ordering_key": {"key_id", "queue_id", "name"},
	"message":      {"id", "queue_id", "key_id"},
}

// whereOnWrites: a condition on every write, in WHERE or in an inner join.
func whereOnWrites(f file, _ want, _ layout) []string {
	var found []string
	for _, w := range f.tree.writes() {
		if w.kind != "INSERT" && len(w.conditions()) == 0 {
			found = append(found, w.kind+" without a condition")
		}
	}
	return found
}

// limited are the hints that may stand behind the target of a write itself, and not in FROM.
var limited = []string{"HOLDLOCK", "NOWAIT", "READCOMMITTEDLOCK", "READPAST", "ROWLOCK", "UPDLOCK", "XLOCK"}

// pinned: a list is joined to its rows by a loop of seeks. Of 50 rows that SQL Server guesses a
// list to have and a small table it makes a hash join over a scan, and the scan of a write
// waits for every row that somebody else has locked, needed or not.
func pinned(f file, _ want, _ layout) []string {
	var found []string
	for _, w := range f.tree.writes() {
		n, ok := w.target.(*ast.NamedTableReference)
		if !ok {
			continue
		}
		for _, h := range namedTable(n).hints {
			if !slices.Contains(limited, h) {
				found = append(found, h+" is not allowed on the target of a write")
			}
		}
		if w.where != nil {
			for _, in := range all[*ast.BooleanInExpression](w.where) {
				if in.Subquery != nil {
					found = append(found, "the rows of "+w.on()+" may be found by a scan: "+f.tree.source(in))
				}
			}
		}
	}
	for _, j := range all[*ast.QualifiedJoin](f.tree.statements) {
		first := len(all[*ast.OpenJsonTableReference](j.FirstTableReference)) > 0
		second := len(all[*ast.OpenJsonTableReference](j.SecondTableReference)) > 0
		switch n, table := j.SecondTableReference.(*ast.NamedTableReference); {
		case second:
			found = append(found, "the list comes second: "+f.tree.source(j))
		case first && table && !strings.EqualFold(j.JoinHint, "loop") && !slices.Contains(namedTable(n).hints, "FORCESEEK"):
			found = append(found, namedTable(n).name+" may be scanned: "+f.tree.source(j))
		}
	}
	if n := len(regexp.MustCompile(`(?i)\bLOOP\s+JOIN\b`).FindAllString(f.text, -1)); n > 0 {
		for _, j := range all[*ast.QualifiedJoin](f.tree.statements) {
			if strings.EqualFold(j.JoinHint, "loop") {
				n--
			}
		}
		if n != 0 {
			found = append(found, "a LOOP JOIN that the parser did not see")
		}
	}
	return found
}

// boundedWrites: a write stays below the 5,000 locks at which SQL Server takes the table. It
// says TOP, or it is held to a list that Go bounds, or to one row by a unique index.
func boundedWrites(f file, _ want, l layout) []string {
	var found []string
	for _, w := range f.tree.writes() {
		if w.kind == "INSERT" {
			if s, ok := w.statement.(*ast.InsertStatement); ok {
				if _, values := s.InsertSpecification.InsertSource.(*ast.ValuesInsertSource); values {
					continue
				}
				if bounded(s.InsertSpecification.InsertSource) {
					continue
				}
				if q, ok := s.InsertSpecification.InsertSource.(*ast.SelectInsertSource); ok && oneRow(q.Select, l) {
					continue
				}
			}
			found = append(found, "an INSERT of any number of rows")
			continue
		}
		if w.top != nil || bounded(w.from) || bounded(w.where) || unique(l, w.on(), w.conditions()) {
			continue
		}
		found = append(found, w.kind+" of any number of rows of "+w.on())
	}
	return found
}

// bounded: there is a list or TOP below.
func bounded(v any) bool {
	return len(all[*ast.OpenJsonTableReference](v)) > 0 || len(all[*ast.TopRowFilter](v)) > 0
}

// oneRow: a query that reads no table, or one row of one.
func oneRow(e ast.QueryExpression, l layout) bool {
	q := query(e)
	if q == nil {
		return false
	}
	tables := all[*ast.NamedTableReference](q.FromClause)
	if len(tables) == 0 {
		return true
	}
	if q.WhereClause == nil {
		return false
	}
	list := conjuncts(q.WhereClause.SearchCondition)
	return slices.ContainsFunc(tables, func(n *ast.NamedTableReference) bool { return unique(l, namedTable(n).name, list) })
}

// unique: the conditions fix every column of some unique key of the table.
func unique(l layout, table string, conditions []ast.BooleanExpression) bool {
	fixed := map[string]bool{}
	for _, c := range conditions {
		if b, ok := c.(*ast.BooleanComparisonExpression); ok && b.ComparisonType == "Equals" {
			for _, e := range []ast.ScalarExpression{b.FirstExpression, b.SecondExpression} {
				if col, ok := e.(*ast.ColumnReferenceExpression); ok {
					fixed[last(col.MultiPartIdentifier)] = true
				}
			}
		}
	}
	return slices.ContainsFunc(l.unique[table], func(key []string) bool {
		return !slices.ContainsFunc(key, func(c string) bool { return !fixed[c] })
	})
}

// closed are the columns that filtered indexes and readers want compared with literals.
var closed = []string{"state", "place"}

func literalStates(f file, _ want, l layout) []string {
	var found []string
	for _, s := range f.tree.statements {
		sc := f.tree.scope(s)
		for _, b := range all[*ast.BooleanComparisonExpression](s) {
			for _, pair := range [][2]ast.ScalarExpression{{b.FirstExpression, b.SecondExpression}, {b.SecondExpression, b.FirstExpression}} {
				c, ok := pair[0].(*ast.ColumnReferenceExpression)
				if !ok || !slices.Contains(closed, last(c.MultiPartIdentifier)) {
					continue
				}
				_, variable := pair[1].(*ast.VariableReference)
				if columns, _ := sc.find(l, c.MultiPartIdentifier); variable && len(columns) > 0 {
					found = append(found, f.tree.source(b))
				}
			}
		}
	}
	return found
}

// fences: each write of a row that a worker claims matches the whole fence itself; so does the
// copy of such a row to where finished messages are, after which the row is deleted.
func fences(f file, want want, _ layout) []string {
	if !want.fenced {
		return nil
	}
	var found []string
	n := 0
	for _, w := range f.tree.writes() {
		conditions := w.conditions()
		switch s := w.statement.(type) {
		case *ast.InsertStatement:
			source, ok := s.InsertSpecification.InsertSource.(*ast.SelectInsertSource)
			if !ok {
				continue
			}
			q := query(source.Select)
			if q == nil || !slices.ContainsFunc(all[*ast.NamedTableReference](q.FromClause), func(n *ast.NamedTableReference) bool {
				return namedTable(n).name == "message"
			}) {
				continue
			}
			conditions = write{from: q.FromClause, where: q.WhereClause}.conditions()
		default:
			if w.on() != "message" {
				continue
			}
		}
		n++
		has := map[string]bool{}
		for _, c := range conditions {
			b, ok := c.(*ast.BooleanComparisonExpression)
			if !ok {
				continue
			}
			column, ok := b.FirstExpression.(*ast.ColumnReferenceExpression)
			if !ok {
				continue
			}
			name, other := last(column.MultiPartIdentifier), f.tree.source(b.SecondExpression)
			switch {
			case name == "id" && b.ComparisonType == "Equals",
				name == "token" && b.ComparisonType == "Equals",
				name == "state" && b.ComparisonType == "Equals" && other == "1",
				name == "lease_end" && b.ComparisonType == "GreaterThan" && other == f.clock:
				has[name] = true
			}
		}
		for _, name := range []string{"id", "state", "token", "lease_end"} {
			if !has[name] {
				found = append(found, w.kind+" without the condition on "+name)
			}
		}
	}
	if n == 0 {
		found = append(found, "no write of a message")
	}
	return found
}

// topHasOrder: which rows TOP takes is nobody's choice without an order. Where any will do,
// as in a purge, TOP of UPDATE and DELETE says so by itself.
func topHasOrder(f file, _ want, _ layout) []string {
	var found []string
	exists := map[any]bool{}
	for _, e := range all[*ast.ExistsPredicate](f.tree.statements) {
		exists[any(e.Subquery)] = true
	}
	for _, q := range all[*ast.QuerySpecification](f.tree.statements) {
		if q.TopRowFilter != nil && q.OrderByClause == nil && !exists[any(q)] {
			found = append(found, "TOP without ORDER BY: "+f.tree.source(q))
		}
	}
	return found
}

// durations: DATEADD takes an int, so what counts microseconds is split into seconds and the
// rest.
func durations(f file, _ want, _ layout) []string {
	var found []string
	for _, c := range all[*ast.FunctionCall](f.tree.statements) {
		if c.FunctionName == nil || !strings.EqualFold(c.FunctionName.Value, "DATEADD") || len(c.Parameters) != 3 {
			continue
		}
		unit, number := strings.ToLower(f.tree.source(c.Parameters[0])), f.tree.source(c.Parameters[1])
		switch unit {
		case "second", "minute", "hour", "day":
			if strings.Contains(number, "_us") && !strings.Contains(number, "/") {
				found = append(found, "microseconds added as "+unit+"s")
			}
		case "microsecond", "millisecond", "nanosecond":
			if strings.ContainsAny(number, "@_") && !strings.Contains(number, "%") {
				found = append(found, "DATEADD may overflow: "+number)
			}
		default:
			found = append(found, "DATEADD of "+unit)
		}
	}
	for _, name := range []string{"GETDATE", "GETUTCDATE", "SYSDATETIME", "CURRENT_TIMESTAMP", "SYSDATETIMEOFFSET"} {
		if regexp.MustCompile(`(?i)\b` + name + `\b`).MatchString(f.text) {
			found = append(found, name+" is not the clock")
		}
	}
	if strings.Contains(f.raw, "SYSUTCDATETIME") {
		found = append(found, "the clock is spelt out, so tests cannot set it")
	}
	return found
}

// countComesLast: the count of the rows is that of the statement right before it.
func countComesLast(f file, w want, _ layout) []string {
	if w.gives != change {
		return nil
	}
	s := f.tree.statements
	if len(s) < 2 {
		return []string{"no count"}
	}
	if got := strings.TrimSuffix(f.tree.source(s[len(s)-1]), ";"); got != "SELECT @@ROWCOUNT AS changed" {
		return []string{"it ends with " + got}
	}
	switch s[len(s)-2].(type) {
	case *ast.InsertStatement, *ast.UpdateStatement, *ast.DeleteStatement:
		return nil
	default:
		return []string{"what is counted is no write"}
	}
}

// inserts: as many values as columns, and every column that has to be given.
func inserts(f file, _ want, l layout) []string {
	var found []string
	for _, s := range all[*ast.InsertStatement](f.tree.statements) {
		spec := s.InsertSpecification
		n, ok := spec.Target.(*ast.NamedTableReference)
		if !ok {
			continue
		}
		name := namedTable(n).name
		var columns []string
		for _, c := range spec.Columns {
			columns = append(columns, last(c.MultiPartIdentifier))
		}
		for _, c := range l.columns[name] {
			if c.given && !slices.Contains(columns, c.name) {
				found = append(found, fmt.Sprintf("%s.%s is not given", name, c.name))
			}
		}
		for _, c := range columns {
			if _, ok := l.column(name, c); !ok {
				found = append(found, fmt.Sprintf("no column %s.%s", name, c))
			}
		}
		values := -1
		switch src := spec.InsertSource.(type) {
		case *ast.SelectInsertSource:
			if q := query(src.Select); q != nil {
				values = len(q.SelectElements)
			}
		case *ast.ValuesInsertSource:
			for _, r := range src.RowValues {
				values = len(r.ColumnValues)
			}
		}
		if values != len(columns) {
			found = append(found, fmt.Sprintf("%d columns and %d values", len(columns), values))
		}
	}
	return found
}

// namesAnIndex: whoever reads the file finds the index that it leans on above it. What only
// inserts, or reads no table, leans on none.
func namesAnIndex(f file, _ want, l layout) []string {
	targets := 0
	for _, w := range f.tree.writes() {
		if w.kind == "INSERT" {
			targets++
		}
	}
	if len(f.tree.tables()) == targets {
		return nil
	}
	var comment strings.Builder
	for line := range strings.Lines(f.raw) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		comment.WriteString(line)
	}
	if regexp.MustCompile(`\bprimary keys?\b`).MatchString(comment.String()) {
		return nil
	}
	for index := range l.indexes {
		if regexp.MustCompile(`\b` + index + `\b`).MatchString(comment.String()) {
			return nil
		}
	}
	return []string{"the comment above names none"}
}
