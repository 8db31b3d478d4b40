package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
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
	// vacuumVain bounds the pause after those that removed little, which doubles with each: some
	// session holds a snapshot, and where this role cannot see it nobody tells when it is gone.
	vacuumVain = 5 * time.Minute
	// vacuumOld is the age from which on a snapshot that keeps dead rows is worth a warning, and
	// vacuumWarn the least time between two of them.
	vacuumOld  = 30 * time.Second
	vacuumWarn = time.Minute
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
	vain    map[string]int       // how many in a row have removed little
	// What the log was told, and when of an old snapshot, which counts as one from the age of old on.
	barred, failing bool
	warned          time.Time
	old             time.Duration
}

func newVacuumer() *vacuumer {
	return &vacuumer{old: vacuumOld, horizon: map[string]int64{}, rest: map[string]time.Time{}, vain: map[string]int{}}
}

// vacuums counts them.
type vacuums struct {
	mu    sync.Mutex
	stats storage.VacuumStats
}

func (v *vacuums) add(change func(s *storage.VacuumStats)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(&v.stats)
}

// Vacuums implements storage.Vacuumer.
func (s *Store) Vacuums() storage.VacuumStats {
	s.vacuums.mu.Lock()
	defer s.vacuums.mu.Unlock()
	return s.vacuums.stats
}

// keepVacuumed starts the loop that vacuums, once, and until the store is closed.
func (s *Store) keepVacuumed() {
	s.vacuumOnce.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		s.stopVacuum = func() { cancel(); <-done }
		go func() {
			defer close(done)
			v := newVacuumer()
			tick := time.NewTicker(vacuumLook)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				_, err := s.vacuum(ctx, v, vacuumRows)
				if ctx.Err() != nil {
					return
				}
				if err != nil && !v.failing {
					s.log.WarnContext(ctx, "vacuum failed; autovacuum goes on, and it is tried again", "error", err)
				}
				v.failing = err != nil
			}
		}()
	})
}

// deadRows is what a table has to be vacuumed of.
type deadRows struct {
	name                string
	dead, live, horizon int64
	// held is the age in seconds of the transaction that holds the horizon: 0 where none does, below
	// 0 where it is not known.
	held float64
	// sees: this role sees the snapshots of all sessions. prompt: what a VACUUM has left is known at
	// once.
	sees, prompt bool
}

func (s *Store) vacuumDue(ctx context.Context, names []string) (tables []deadRows, err error) {
	err = s.read(ctx, "vacuum: look", step{sql: s.sql.vacuumDue, args: []any{names}, scan: each(
		func() { tables = nil },
		func(r pgx.Rows) error {
			var t deadRows
			if err := r.Scan(&t.name, &t.dead, &t.live, &t.horizon, &t.held, &t.sees, &t.prompt); err != nil {
				return err
			}
			tables = append(tables, t)
			return nil
		},
	)})
	return tables, err
}

// vacuum vacuums the tables that are due and tells which. Where another server or autovacuum is
// at a table, it is passed over: one at a time is enough, and SKIP_LOCKED is all the agreement
// that takes, also behind a pooler. The end of a table is not cut off, since that would lock out
// everybody; its pages are filled again.
func (s *Store) vacuum(ctx context.Context, v *vacuumer, rows int64) (done []string, err error) {
	tables, err := s.vacuumDue(ctx, vacuumed())
	if err != nil {
		return nil, err
	}
	s.vacuums.add(func(st *storage.VacuumStats) {
		st.Tables, st.Dead, st.OldestSnapshot = len(tables), 0, 0
		for _, t := range tables {
			st.Dead += t.dead
			st.OldestSnapshot = max(st.OldestSnapshot, seconds(t.held))
		}
	})
	if len(tables) == 0 && !v.barred {
		s.log.InfoContext(ctx, "this role may vacuum no table of queuebox, so only autovacuum does; see docs/operations.md")
	}
	v.barred = len(tables) == 0
	now := time.Now //nolint:forbidigo // The pace of this process, not the time of a message.
	for _, t := range tables {
		if t.dead < rows || float64(t.dead) < vacuumShare*float64(t.live) || now().Before(v.rest[t.name]) {
			continue
		}
		if last, ok := v.horizon[t.name]; ok && t.horizon <= last {
			s.warnOfSnapshot(ctx, v, t, now())
			continue // somebody's old snapshot: nothing that died since can be removed
		}
		start := now()
		err := s.vacuumTable(ctx, t.name)
		took := now().Sub(start)
		v.horizon[t.name], v.rest[t.name] = t.horizon, now().Add(vacuumRest*took)
		if err != nil {
			if ctx.Err() == nil {
				s.vacuums.add(func(st *storage.VacuumStats) {
					st.Took += took
					if took >= vacuumLongest || errors.Is(err, context.DeadlineExceeded) {
						st.TimedOut++
					} else {
						st.Failed++
					}
				})
			}
			return done, err
		}
		left, err := s.vacuumDue(ctx, []string{t.name})
		if err != nil {
			return done, err
		}
		vain := t.prompt && len(left) == 1 && left[0].dead > t.dead/2
		s.vacuums.add(func(st *storage.VacuumStats) {
			st.Took += took
			if vain {
				st.InVain++
			} else {
				st.Done++
				st.Last = now()
			}
		})
		s.vain(ctx, v, t, vain, now())
		done = append(done, t.name)
		s.log.DebugContext(ctx, "vacuumed", "table", "queuebox."+t.name, "dead", t.dead, "live", t.live, "took", took, "in_vain", vain)
	}
	return done, nil
}

// vain takes in whether a VACUUM has removed little: then the next one waits longer.
func (s *Store) vain(ctx context.Context, v *vacuumer, t deadRows, vain bool, now time.Time) {
	if !vain {
		v.vain[t.name] = 0
		return
	}
	v.vain[t.name]++
	s.warnOfSnapshot(ctx, v, t, now)
	if !t.sees {
		// With the right to see the session the horizon says when another one is worth it.
		rest := min(vacuumLook<<min(v.vain[t.name], 10), vacuumVain)
		if at := now.Add(rest); v.rest[t.name].Before(at) {
			v.rest[t.name] = at
		}
	}
}

// warnOfSnapshot tells, once in a while, that a table is full of what nobody can remove. A snapshot
// that will be gone in a moment is not worth it, where its age is seen.
func (s *Store) warnOfSnapshot(ctx context.Context, v *vacuumer, t deadRows, now time.Time) {
	if t.sees && t.held >= 0 && (t.held == 0 || seconds(t.held) < v.old) || !v.warned.IsZero() && now.Sub(v.warned) < vacuumWarn {
		return
	}
	v.warned = now
	attributes := []any{"table", "queuebox." + t.name, "dead", t.dead, "sees_all_sessions", t.sees}
	if t.held > 0 {
		attributes = append(attributes, "oldest_transaction", seconds(t.held).Round(time.Second))
	}
	s.log.WarnContext(ctx, "a vacuum removes little, since some session, prepared transaction or replication slot holds an old snapshot; "+
		"dead rows pile up until it is gone; see docs/operations.md", attributes...)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

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
