package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A message leaves dead rows in the hot table: one for its claim, one for each renewal, and
// itself. Autovacuum looks once a minute by default; at tens of thousands of messages a second
// that is millions of dead rows, and a table that has grown by as much. So a server vacuums by
// itself what its role may vacuum.
const (
	// vacuumLook is how often a server looks whether a table is due.
	vacuumLook = 5 * time.Second
	// vacuumRows and vacuumShare are how many dead rows make a table due: so many, and such a
	// part of the living ones, since a VACUUM reads all of every index.
	vacuumRows  = 20_000
	vacuumShare = 0.05
	// vacuumRest bounds the time spent: it pauses for so many times what the last VACUUM took.
	vacuumRest = 8
	// vacuumLongest ends a VACUUM that takes too long to be worth it; autovacuum is there still.
	vacuumLongest = 2 * time.Minute
)

// vacuumed are the tables whose rows die with every message, or with every call.
func vacuumed() []string {
	return []string{"message", "ordering_key", "claim_call", "incoming", "marked"}
}

// vacuumer is what a server remembers of the tables that it vacuums.
type vacuumer struct {
	horizon map[string]int64     // the oldest transaction in sight at the last VACUUM
	rest    map[string]time.Time // before which it is not done again
}

// keepVacuumed starts the loop that vacuums, once, and until the store is closed.
func (s *Store) keepVacuumed() {
	s.vacuumOnce.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		s.stopVacuum = func() { cancel(); <-done }
		go func() {
			defer close(done)
			v := vacuumer{horizon: make(map[string]int64), rest: make(map[string]time.Time)}
			tick := time.NewTicker(vacuumLook)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if _, err := s.vacuum(ctx, &v, vacuumRows); err != nil && ctx.Err() == nil {
					s.log.DebugContext(ctx, "vacuum failed, autovacuum goes on", "error", err)
				}
			}
		}()
	})
}

// vacuum vacuums the tables that are due and tells which. Where another server or autovacuum is
// at a table, it is passed over: one at a time is enough, and SKIP_LOCKED is all the agreement
// that takes, also behind a pooler. The end of a table is not cut off, since that would lock out
// everybody; its pages are filled again.
func (s *Store) vacuum(ctx context.Context, v *vacuumer, rows int64) (done []string, err error) {
	type table struct {
		name                string
		dead, live, horizon int64
	}
	var due []table
	err = s.read(ctx, "vacuum: look", step{sql: s.sql.vacuumDue, args: []any{vacuumed()}, scan: each(
		func() { due = nil },
		func(r pgx.Rows) error {
			var t table
			if err := r.Scan(&t.name, &t.dead, &t.live, &t.horizon); err != nil {
				return err
			}
			due = append(due, t)
			return nil
		},
	)})
	if err != nil {
		return nil, err
	}
	now := time.Now //nolint:forbidigo // The pace of this process, not the time of a message.
	for _, t := range due {
		if t.dead < rows || float64(t.dead) < vacuumShare*float64(t.live) || now().Before(v.rest[t.name]) {
			continue
		}
		if last, ok := v.horizon[t.name]; ok && t.horizon <= last {
			continue // somebody's old snapshot: nothing that died since can be removed
		}
		start := now()
		if err := s.vacuumTable(ctx, t.name); err != nil {
			return done, err
		}
		took := now().Sub(start)
		v.horizon[t.name], v.rest[t.name] = t.horizon, now().Add(vacuumRest*took)
		done = append(done, t.name)
		s.log.DebugContext(ctx, "vacuumed", "table", "queuebox."+t.name, "dead", t.dead, "live", t.live, "took", took)
	}
	return done, nil
}

// vacuumTable is a statement of its own, outside of any transaction.
func (s *Store) vacuumTable(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, vacuumLongest)
	defer cancel()
	conn, err := s.acquire(ctx)
	if err != nil {
		return classify("vacuum", err, false)
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, "VACUUM (SKIP_LOCKED, TRUNCATE FALSE) "+pgx.Identifier{"queuebox", name}.Sanitize(), pgx.QueryExecModeExec)
	return classify("vacuum", err, true)
}
