package sqlite

import (
	"context"
	"database/sql"

	"github.com/queuebox/queuebox/storage"
)

// Look implements storage.Store: one statement that most often returns no row, and on the same
// snapshot the reasons of those claims that are not held any more. T6.
func (s *Store) Look(ctx context.Context, claims []storage.HeldClaim) (storage.RenewResult, error) {
	res := storage.RenewResult{Items: make([]storage.Renewed, len(claims))}
	positions := make([]int64, len(claims))
	tokens := make([]byte, 0, tokenBytes*len(claims))
	for i, h := range claims {
		res.Items[i].Status = storage.ItemApplied
		positions[i] = h.Ref.Position
		tokens = append(tokens, h.Token[:]...)
	}
	list, err := toJSON(positions)
	if err != nil {
		return storage.RenewResult{}, err
	}
	err = s.read(ctx, "look", func(c *session) error {
		var gone []int
		err := c.each(ctx, qLook, args(list, tokens), func(rows *row) error {
			var i int
			var asked sql.NullBool
			err := rows.Scan(&i, &asked)
			if err == nil && !asked.Valid {
				gone = append(gone, i)
			} else if err == nil {
				res.Items[i].CancelRequested = asked.Bool
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, i := range gone {
			why, err := c.explain(ctx, claims[i].Ref, claims[i].Token)
			if err != nil {
				return err
			}
			res.Items[i] = storage.Renewed{Status: why.status, Cause: why.cause}
			if why.status == storage.ItemSettled {
				res.Items[i].Outcome = why.outcome
			}
		}
		res.Now, err = c.now(ctx)
		return err
	})
	if err != nil {
		return storage.RenewResult{}, err
	}
	return res, nil
}
