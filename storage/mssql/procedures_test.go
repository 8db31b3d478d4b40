package mssql_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/stretchr/testify/require"
)

// procedures says what the procedures of the layout have to be, which transactions of others
// run (E12): their parameters in order, and the tables and hints as wants has them. Each hint
// makes a read lock, or not lock, as READ COMMITTED does, at whatever level the caller is.
var procedures = map[string]struct{ parameters, locks string }{
	"own_named": {parameters: "message_id claim_token queue_id position token"},
	"own_mark": {
		parameters: "queue_id action max_result message_id claim_token delay_ms reason_code error result",
		locks:      "message UPDLOCK ROWLOCK READCOMMITTEDLOCK, queue READCOMMITTEDLOCK, marked, message ROWLOCK",
	},
	"own_outcome": {
		parameters: "queue_id message_id claim_token",
		locks:      "message READCOMMITTEDLOCK, settlement READCOMMITTEDLOCK, completed READCOMMITTEDLOCK, dead READCOMMITTEDLOCK",
	},
	"own_enqueue": {
		parameters: "queue_id overhead max_payload payload content_type attributes idempotency_key ordering_key priority delay_ms available_time max_attempts expire_time",
		locks:      "queue READCOMMITTEDLOCK, incoming",
	},
}

func procedureNames(l layout) []string { return slices.Sorted(maps.Keys(l.procedures)) }

// E12, S13: the procedures keep the rules of the statements, as far as they are of the same kind.
func TestE12ProceduresParse(t *testing.T) {
	l := readLayout(t)
	require.Equal(t, slices.Sorted(maps.Keys(procedures)), procedureNames(l))
	for name, want := range procedures {
		t.Run(name, func(t *testing.T) {
			tr := l.procedures[name]
			p := tr.statements[0].(*ast.CreateProcedureStatement) //nolint:forcetypeassert // It is among them as such.
			require.Equal(t, "queuebox", p.ProcedureReference.Name.SchemaIdentifier.Value)
			var parameters []string
			for _, x := range p.Parameters {
				parameters = append(parameters, strings.TrimPrefix(x.VariableName.Value, "@"))
			}
			require.Equal(t, want.parameters, strings.Join(parameters, " "))
			f := file{name: name, text: tr.text, tree: tr, clock: "@now"}
			require.Equal(t, sortedHints(want.locks), locksOf(tr))
			for _, r := range rules {
				if r.name == "order" && name == "own_outcome" {
					continue // TOP (1) of what all of them say alike
				}
				if slices.Contains([]string{"schema", "hints", "columns", "text", "where", "pinned", "bounded", "literals", "order", "insert"}, r.name) {
					require.Empty(t, r.check(f, wants[name], l), r.name)
				}
			}
			require.Empty(t, all[*ast.WithCtesAndXmlNamespaces](tr.statements))
			for _, s := range all[ast.Statement](tr.statements) {
				switch s := s.(type) {
				case *ast.ExecuteStatement:
					require.Regexp(t, `^EXEC queuebox\.own_named `, tr.source(s), "another procedure, or a word that was taken for one")
				case *ast.MergeStatement, *ast.TruncateTableStatement, *ast.BeginTransactionStatement, *ast.CommitTransactionStatement,
					*ast.RollbackTransactionStatement:
					t.Errorf("%s in a transaction of somebody else", kind(s))
				}
			}
		})
	}
}

// E12, S13: own_mark locks the row, reads the clock then, and judges the whole fence by it; the
// mark is there before the settlement, since a settlement without a mark is never finished.
func TestE12S13TheMarkIsInOrder(t *testing.T) {
	for _, problem := range markProblems(readLayout(t)) {
		t.Error(problem)
	}
}

func markProblems(l layout) []string {
	tr := l.procedures["own_mark"]
	found := fences(file{name: "own_mark", text: tr.text, tree: tr, clock: "@now"}, want{fenced: true}, l)
	var order []string
	for _, s := range all[ast.Statement](tr.statements) {
		switch s := s.(type) {
		case *ast.SelectStatement:
			if strings.Contains(tr.source(s), "UPDLOCK") {
				order = append(order, "lock")
			}
		case *ast.SetVariableStatement:
			if tr.source(s) == "SET @now = SYSUTCDATETIME();" {
				order = append(order, "clock")
			}
		case *ast.InsertStatement:
			order = append(order, "mark")
		case *ast.UpdateStatement:
			order = append(order, "settle")
		}
	}
	if got := strings.Join(order, ", "); got != "lock, clock, mark, settle" {
		found = append(found, "the order is "+got)
	}
	if n := strings.Count(tr.text, "SYSUTCDATETIME"); n != 1 {
		found = append(found, fmt.Sprintf("the clock is read %d times", n))
	}
	return found
}

// The texts that are handed out call these procedures, with a value for each parameter, in
// the order in which the answer of GetTransactionSql names them.
func TestE12TextsCallTheProcedures(t *testing.T) {
	l := readLayout(t)
	for name, want := range map[string]struct {
		procedure string
		given     int // by the caller
	}{
		"complete": {"own_mark", 3}, "retry": {"own_mark", 4}, "dead_letter": {"own_mark", 4}, "outcome": {"own_outcome", 2}, "enqueue": {"own_enqueue", 10},
	} {
		raw, err := os.ReadFile("queries/own/" + name + ".sql")
		require.NoError(t, err)
		tr := parseBatch(t, string(raw))
		kinds := tr.kinds()
		if name == "enqueue" || name == "complete" {
			// Bytes are converted before, since an argument of EXEC is no expression.
			require.Equal(t, "DECLAREVARIABLE", kinds[0], name)
			kinds = kinds[1:]
		}
		require.Equal(t, []string{"EXECUTE"}, kinds, name)
		call := all[*ast.ExecutableProcedureReference](tr.statements)
		require.Len(t, call, 1, name)
		require.Contains(t, tr.text, "EXEC queuebox."+want.procedure+" ", name)
		p := l.procedures[want.procedure].statements[0].(*ast.CreateProcedureStatement) //nolint:forcetypeassert // It is among them as such.
		require.Len(t, call[0].Parameters, len(p.Parameters), name)
		var given []string
		for _, v := range all[*ast.VariableReference](tr.statements) {
			if slices.Contains(tr.parameters(), strings.TrimPrefix(v.Name, "@")) {
				given = append(given, v.Name)
			}
		}
		require.Len(t, given, want.given, name)
		for i, v := range given {
			require.Equal(t, "@p"+string(rune('1'+i)), strings.Replace(v, "@p10", "@p:", 1), "%s: each once and in order", name)
		}
	}
}
