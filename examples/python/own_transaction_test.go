//go:build unix

package python

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/blackbox"
	"github.com/queuebox/queuebox/internal/pythontest"
)

// interpreter finds a Python with a module.
func interpreter(t *testing.T, module, install string) string {
	t.Helper()
	for _, candidate := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), candidate, "-c", "import "+module).Run() == nil {
			return candidate
		}
	}
	pythontest.Missing(t, "no python3 with "+module+" here: apt-get install "+install)
	return ""
}

// The statements of GetTransactionSql run as they are through the drivers that Python programs
// use (E12).
func TestE12OwnTransactionFromPython(t *testing.T) {
	for _, c := range []struct {
		driver, install string
		database        func(testing.TB) *blackbox.Database
	}{
		{"sqlite3", "python3", blackbox.SQLite},
		{"psycopg2", "python3-psycopg2", blackbox.Postgres},
		{"psycopg", "python3-psycopg", blackbox.Postgres},
		{"pymysql", "python3-pymysql", blackbox.MySQL},
	} {
		t.Run(c.driver, func(t *testing.T) {
			python := interpreter(t, c.driver, c.install)
			db := c.database(t)
			client := db.Start(t).Client(t)
			claims := make([]map[string]any, 0, 5)
			for _, a := range []struct {
				settle string
				rest   []any
				fail   bool
			}{
				{"complete", []any{nil}, false},
				{"retry", []any{3_600_000, "later"}, false},
				{"retry", []any{nil, nil}, false},
				{"dead_letter", []any{"no_use", "nobody can use 100% of this"}, false},
				{"complete", []any{nil}, true},
			} {
				_, err := client.Enqueue(t.Context(), &queueboxv1.EnqueueRequest{Queue: "python"})
				require.NoError(t, err)
				got, err := client.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: "python", LeaseMs: 600_000, WaitMs: 20_000})
				require.NoError(t, err)
				require.Len(t, got.GetMessages(), 1)
				m := got.GetMessages()[0]
				claims = append(claims, map[string]any{
					"settle": a.settle, "id": m.GetMessage().GetMessageId(), "token": m.GetClaimToken(), "rest": a.rest, "fail": a.fail,
				})
			}
			// One claim is lost: its second settlement.
			claims = append(claims, claims[0])
			answer, err := client.Admin.GetTransactionSql(t.Context(), &queueboxv1.GetTransactionSqlRequest{Queue: "python"})
			require.NoError(t, err)
			statements := map[string]string{}
			for _, s := range answer.GetStatements() {
				statements[s.GetName()] = s.GetSql()
			}
			work, err := json.Marshal(map[string]any{"statements": statements, "claims": claims})
			require.NoError(t, err)
			dsn := strings.TrimPrefix(db.URL, "sqlite://")
			cmd := exec.CommandContext(t.Context(), python, "-B", "testdata/own_transaction_scenario.py", c.driver, dsn)
			cmd.Stdin = bytes.NewReader(work)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, []string{
				"complete COMPLETED COMPLETED", "retry RETRIED RETRIED", "retry RETRIED RETRIED", "dead_letter DEAD DEAD",
				"complete failed None", "complete lost COMPLETED", "invoices 4",
			}, strings.Split(strings.TrimSpace(string(out)), "\n"))
			// What was enqueued beside them is there: four, since two were rolled back, and the
			// one that was retried by the policy of the queue.
			seen := map[string]int{}
			require.Eventually(t, func() bool {
				got, err := client.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: "python", MaxMessages: 10, LeaseMs: 600_000})
				require.NoError(t, err)
				for _, m := range got.GetMessages() {
					seen[string(m.GetMessage().GetPayload())]++
				}
				return len(seen) == 4 && seen["follows retry"] == 2
			}, 20*time.Second, 20*time.Millisecond)
			require.Equal(t, map[string]int{"follows complete": 1, "follows retry": 2, "follows dead_letter": 1, "": 1}, seen)
		})
	}
}
