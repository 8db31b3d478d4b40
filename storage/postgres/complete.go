package postgres

import (
	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// plainCompletions tells whether nothing is asked for but completions without a result: then
// the statement for them does, which is much the shortest.
func plainCompletions(items []storage.Settlement, some []int) bool {
	for _, i := range some {
		if items[i].Action != storage.ActionComplete || items[i].Result != nil {
			return false
		}
	}
	return true
}

// completeStep is settleStep for completions. An item that repeats one before it is left out:
// it stays unanswered, and the look for those finds it settled.
func (s *Store) completeStep(items []storage.Settlement, some []int, answered []bool, out *storage.SettleResult) step {
	var (
		n         = len(some)
		ids       = make([]int32, 0, n)
		positions = make([]int64, 0, n)
		tokens    = make([][16]byte, 0, n)
		of        = make([]int, 0, n) // the place in some of what is sent
		rising    = true
	)
	for k, i := range some {
		it := &items[i]
		if rising && len(positions) > 0 && positions[len(positions)-1] >= it.Ref.Position {
			rising = false
		}
		ids, positions, tokens, of = append(ids, it.Ref.QueueID), append(positions, it.Ref.Position), append(tokens, it.Token), append(of, k)
	}
	if !rising {
		type fence struct {
			ref   storage.Ref
			token storage.Token
		}
		seen := make(map[fence]struct{}, n)
		ids, positions, tokens, of = ids[:0], positions[:0], tokens[:0], of[:0]
		for k, i := range some {
			it := &items[i]
			f := fence{it.Ref, it.Token}
			if _, twice := seen[f]; twice {
				continue
			}
			seen[f] = struct{}{}
			ids, positions, tokens, of = append(ids, it.Ref.QueueID), append(positions, it.Ref.Position), append(tokens, it.Token), append(of, k)
		}
	}
	return step{
		sql: s.sql.complete, args: []any{ids, positions, tokens},
		scan: each(func() {
			clear(answered)
			for _, i := range some {
				out.Items[i] = storage.Settled{}
			}
		}, func(r pgx.Rows) error {
			row := raw(r)
			out.Now = row.time(0)
			if row.null(1) {
				return row.err
			}
			k := of[row.int(1)-1]
			answered[k] = true
			item := storage.Settled{Status: storage.ItemLost, Cause: storage.LostLeaseExpired}
			if !row.null(2) {
				item = storage.Settled{Status: storage.ItemApplied, Outcome: storage.OutcomeCompleted, SettleTime: row.time(2)}
			}
			out.Items[some[k]] = item
			return row.err
		}),
	}
}
