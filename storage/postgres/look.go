package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// Look implements storage.Store: one statement that most often returns no row, and the facts
// of those claims that are not held any more. T6.
func (s *Store) Look(ctx context.Context, claims []storage.HeldClaim) (storage.RenewResult, error) {
	n := len(claims)
	var (
		out       = storage.RenewResult{Items: make([]storage.Renewed, n)}
		ids       = make([]int32, n)
		positions = make([]int64, n)
		tokens    = make([][16]byte, n)
		gone      []int
		now       time.Time
	)
	for i, c := range claims {
		ids[i], positions[i], tokens[i] = c.Ref.QueueID, c.Ref.Position, c.Token
	}
	err := s.read(
		ctx, "look",
		step{sql: s.sql.now, scan: one(func(r pgx.Rows) error { return r.Scan(&now) })},
		step{sql: s.sql.look, args: []any{ids, positions, tokens}, scan: each(
			func() {
				gone = gone[:0]
				for i := range out.Items {
					out.Items[i] = storage.Renewed{Status: storage.ItemApplied}
				}
			},
			func(r pgx.Rows) error {
				var ord int64
				var asked *bool
				if err := r.Scan(&ord, &asked); err != nil {
					return err
				}
				if out.Items[ord-1].CancelRequested = is(asked); asked == nil {
					gone = append(gone, int(ord-1))
				}
				return nil
			},
		)},
	)
	if err != nil {
		return storage.RenewResult{}, err
	}
	out.Now = now.UTC()
	if len(gone) == 0 {
		return out, nil
	}
	lost := make([]storage.HeldClaim, len(gone))
	for k, i := range gone {
		lost[k] = claims[i]
	}
	facts, now, err := s.diagnose(ctx, "look", lost)
	if err != nil {
		return storage.RenewResult{}, err
	}
	out.Now = now
	for k, i := range gone {
		f := facts[k]
		if f.held() {
			continue
		}
		out.Items[i].Status, out.Items[i].Cause = f.verdict()
		if rec := f.recorded(); rec != nil {
			out.Items[i].Outcome = rec.outcome
		}
	}
	return out, nil
}
