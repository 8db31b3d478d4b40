package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/postgres"
)

// failing makes every insert of a message fail with a code, as long as the counter,
// which no rollback turns back, has not passed n.
func (d *database) failing(t *testing.T, code string, n int) {
	t.Helper()
	d.exec(t, fmt.Sprintf(`
		CREATE SCHEMA IF NOT EXISTS broken;
		DROP TRIGGER IF EXISTS broken ON queuebox.message;
		DROP SEQUENCE IF EXISTS broken.tries;
		CREATE SEQUENCE broken.tries;
		CREATE OR REPLACE FUNCTION broken.fail() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('broken.tries') <= %d THEN RAISE EXCEPTION 'on purpose' USING ERRCODE = '%s'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER broken BEFORE INSERT ON queuebox.message FOR EACH ROW EXECUTE FUNCTION broken.fail()`, n, code))
}

func (d *database) tries(t *testing.T) int {
	t.Helper()
	var n int
	_, err := fmt.Sscan(d.lines(t, "SELECT last_value::text FROM broken.tries")[0], &n)
	require.NoError(t, err)
	return n
}

// D2, D8: what is run again, and what each failure is told as.
func TestD2D8Failures(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "failures")
	for _, s := range []struct {
		name  string
		store storage.Store
	}{
		{"session", d.store},
		{"sessionless", open(t, postgres.Config{URL: d.url + "&pooler=transaction"})},
	} {
		one := func(key string) error {
			m := storage.NewMessage{QueueID: q.ID, IdempotencyKey: key}
			_, err := s.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
			return err
		}
		for i, key := range []string{"", s.name} {
			t.Run(fmt.Sprintf("%s keyed %d", s.name, i), func(t *testing.T) {
				for _, code := range []string{"40001", "40P01"} {
					d.failing(t, code, 2)
					if key != "" {
						key += code
					}
					require.NoError(t, one(key), "D2: %s twice, then it passes", code)
					require.Equal(t, 3, d.tries(t))
					d.failing(t, code, 1000)
					require.ErrorIs(t, one(key+"x"), storage.ErrUnavailable, code)
					require.LessOrEqual(t, d.tries(t), 10, "few")
				}
				for _, code := range []string{"57P01", "57P02", "57P03", "25P04", "08006", "40003"} {
					d.failing(t, code, 1000)
					require.ErrorIs(t, one(key+"y"), storage.ErrOutcomeUnknown, code)
					require.Equal(t, 1, d.tries(t), "D8: %s proves no rollback, so it is not run again", code)
				}
				for _, code := range []string{"55P03", "57014", "25006", "25P03", "57P05", "53100", "53200"} {
					d.failing(t, code, 1000)
					require.ErrorIs(t, one(key+"z"), storage.ErrUnavailable, code)
				}
				d.failing(t, "22012", 1000)
				err := one(key + "w")
				require.Error(t, err)
				require.NotErrorIs(t, err, storage.ErrUnavailable, "a defect is no outage")
				require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
			})
		}
	}
	d.exec(t, "DROP TRIGGER broken ON queuebox.message")
}

// A caller that leaves while its statement runs gets an answer soon, and the connection
// lives on: the database was asked to stop.
func TestALeavingCallerStopsItsStatement(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "leaving")
	items := enqueue(t, d.store, q.ID, 1)
	claimed := claim(t, d.store, q.ID, 1, time.Hour)
	release := d.hold(t, items[0].Ref, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := d.store.Settle(ctx, storage.SettleParams{Items: completions(claimed)})
	unknown := isUnknown(err) // a machine too busy to stop it in time
	if err != nil && !unknown {
		require.ErrorIs(t, err, storage.ErrUnavailable)
	}
	release()
	got := settle(t, d.store, completions(claimed)...)[0]
	if !unknown {
		require.Equal(t, storage.ItemApplied, got.Status, "nothing of the first call happened later")
	}
	m, err := d.store.GetMessage(t.Context(), items[0].Ref, false)
	require.NoError(t, err)
	require.Equal(t, storage.StateCompleted, m.State)
}
