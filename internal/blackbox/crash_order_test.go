package blackbox

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// crashKey draws the ordering key of a message: few keys, so that each is always busy, and
// none for every third message.
func crashKey(rnd *rand.Rand) string {
	if rnd.IntN(3) == 0 {
		return ""
	}
	return fmt.Sprint("key ", rnd.IntN(6))
}

// checkOrder compares every claim of a message with an ordering key, as the database itself
// wrote it down, with the ends of those before it in its key: none may be earlier (O1, O5).
// That every message has ended is for the ledger to say (O9).
func checkOrder(t *testing.T, db *Database) {
	t.Helper()
	if !db.watched() {
		return
	}
	query := db.Text(t, map[string]string{
		EngineSQLite: `SELECT ordering_key, idempotency_key, finish_time FROM completed WHERE ordering_key <> '' ORDER BY ordering_key, position`,
		EnginePostgres: `SELECT ordering_key, idempotency_key, floor(extract(epoch FROM finish_time) * 1000)::bigint FROM queuebox.completed
			WHERE ordering_key IS NOT NULL ORDER BY ordering_key, position`,
		EngineMySQL: `SELECT ordering_key, idempotency_key, timestampdiff(MICROSECOND, '1970-01-01', finish_time) DIV 1000 FROM completed
			WHERE ordering_key <> '' ORDER BY ordering_key, id`,
	})
	rows, err := db.Open(t).QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	log := history(t, db)
	keys, claims := map[string]int64{}, 0 // key -> when the latest before has ended
	last := map[string]string{}           // and which one it is
	for rows.Next() {
		var (
			key, name string
			finish    int64
		)
		require.NoError(t, rows.Scan(&key, &name, &finish))
		for _, c := range log[name] {
			if c.state != 1 || c.token == c.before {
				continue // no claim
			}
			claims++
			if early := keys[key] - c.at; early > 5 {
				t.Errorf("O1 O5: %s of %s was claimed %d ms before the end of %s, which comes before it\n%+v\n%+v", name, key, early, last[key], log[last[key]], log[name])
			}
		}
		if finish > keys[key] {
			keys[key], last[key] = finish, name
		}
	}
	require.NoError(t, rows.Err())
	t.Logf("%d claims of messages of %d keys were in order", claims, len(keys))
	require.NotZero(t, claims)
}
