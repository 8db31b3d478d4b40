package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// S7, R1: a claim of another server may lock hundreds of rows for the moment that it takes to
// see that they are leased. Settlements and renewals of them are tried together again, not row
// by row.
func TestS7ManyRowsThatSomebodyHoldsAreTriedTogether(t *testing.T) {
	const n = 300
	for _, what := range []string{"complete", "retry", "renew"} {
		t.Run(what, func(t *testing.T) {
			d := newDatabase(t, false)
			c := newCounter(t, d)
			q := queue(t, d.store, "held")
			enqueue(t, d.store, q.ID, n)
			held := claim(t, d.store, q.ID, n, time.Minute)
			require.Len(t, held, n)
			ctx := context.WithoutCancel(t.Context())
			conn := d.connect(t)
			statements, _ := c.of(t, func() {
				tx, err := conn.Begin(ctx)
				require.NoError(t, err)
				_, err = tx.Exec(ctx, "SELECT 1 FROM queuebox.message FOR UPDATE")
				require.NoError(t, err)
				done := make(chan error, 1)
				go func() { done <- d.endAll(t.Context(), what, held) }()
				// Tried twice and more, together, or waiting for a row of its own: then the rows are let go.
				require.Eventually(t, func() bool {
					return d.lines(t, `SELECT ((SELECT count(*) > 0 FROM pg_stat_statements s JOIN pg_database b ON b.oid = s.dbid
						WHERE b.datname = current_database() AND s.calls >= 2 AND s.query LIKE '%SKIP LOCKED%' AND s.query NOT LIKE '%pg_stat%')
						OR EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'))::text`)[0] == "true"
				}, 20*time.Second, time.Millisecond)
				require.NoError(t, tx.Commit(ctx))
				require.NoError(t, <-done)
			})
			t.Logf("%d statements", statements)
			require.Less(t, statements, n/2)
		})
	}
}

// endAll settles or renews claims and wants all of it to be applied.
func (d *database) endAll(ctx context.Context, what string, held []storage.Claimed) error {
	var (
		p storage.SettleParams
		r storage.RenewParams
	)
	for _, m := range held {
		action := storage.ActionComplete
		if what == "retry" {
			action = storage.ActionRetry
		}
		p.Items = append(p.Items, storage.Settlement{Ref: m.Message.Ref, Token: m.Token, Action: action})
		r.Items = append(r.Items, storage.Renewal{Ref: m.Message.Ref, Token: m.Token, Lease: time.Minute})
	}
	if what == "renew" {
		out, err := d.store.Renew(ctx, r)
		for i, item := range out.Items {
			if item.Status != storage.ItemApplied {
				return fmt.Errorf("renewal %d: status %d", i, item.Status)
			}
		}
		return err
	}
	out, err := d.store.Settle(ctx, p)
	for i, item := range out.Items {
		if item.Status != storage.ItemApplied {
			return fmt.Errorf("settlement %d: status %d", i, item.Status)
		}
	}
	return err
}
