package postgres

import (
	"time"

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

// completeStep is settleStep for completions. An item for a message that one before it names,
// too, is left out: it stays unanswered, and the look for those finds what has become of it. Where
// the messages have ordering keys, which are locked then, it tells in which queues one went on.
func (s *Store) completeStep(items []storage.Settlement, some []int, ordered bool, answered []bool, out *storage.SettleResult) step {
	reset := func() {
		clear(answered)
		out.Ready = nil
		for _, i := range some {
			out.Items[i] = storage.Settled{}
		}
	}
	lost := storage.Settled{Status: storage.ItemLost, Cause: storage.LostLeaseExpired}
	if len(some) == 1 && !ordered {
		it := &items[some[0]]
		return step{
			sql: s.sql.completeOne, args: []any{it.Ref.QueueID, it.Ref.Position, [16]byte(it.Token)},
			scan: each(reset, func(r pgx.Rows) error {
				row := raw(r)
				out.Now = row.time(0)
				switch {
				case !row.null(3):
					answered[0], out.Items[some[0]] = true, completedAt(row.time(1))
				case !row.bool(2):
					answered[0], out.Items[some[0]] = true, lost
				}
				return row.err
			}),
		}
	}
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
		rising = rising && (k == 0 || positions[k-1] < it.Ref.Position)
		ids, positions, tokens, of = append(ids, it.Ref.QueueID), append(positions, it.Ref.Position), append(tokens, it.Token), append(of, k)
	}
	if !rising {
		seen := make(map[int64]struct{}, n)
		ids, positions, tokens, of = ids[:0], positions[:0], tokens[:0], of[:0]
		for k, i := range some {
			it := &items[i]
			if _, twice := seen[it.Ref.Position]; twice {
				continue
			}
			seen[it.Ref.Position] = struct{}{}
			ids, positions, tokens, of = append(ids, it.Ref.QueueID), append(positions, it.Ref.Position), append(tokens, it.Token), append(of, k)
		}
	}
	sql := s.sql.complete
	if ordered {
		sql = s.sql.completeOrdered
	}
	return step{
		sql: sql, args: []any{ids, positions, tokens},
		scan: each(reset, func(r pgx.Rows) error {
			row := raw(r)
			out.Now = row.time(0)
			if ordered {
				row.usual(5, &out.Ready)
			}
			done := completedAt(row.time(1))
			if row.int(2) == int64(len(positions)) {
				for _, k := range of {
					answered[k], out.Items[some[k]] = true, done
				}
				return row.err
			}
			var applied, over []int64
			row.usual(3, &applied)
			row.usual(4, &over)
			at := make(map[int64]int, len(positions))
			for n, position := range positions {
				at[position] = of[n]
			}
			for _, position := range applied {
				k := at[position]
				answered[k], out.Items[some[k]] = true, done
			}
			for _, position := range over {
				k := at[position]
				answered[k], out.Items[some[k]] = true, lost
			}
			return row.err
		}),
	}
}

func completedAt(at time.Time) storage.Settled {
	return storage.Settled{Status: storage.ItemApplied, Outcome: storage.OutcomeCompleted, SettleTime: at}
}
