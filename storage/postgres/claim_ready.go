package postgres

import (
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// queueSet remembers something of queues between calls. It is only ever a hint.
type queueSet struct{ ids sync.Map }

func (s *queueSet) has(id int32) bool { _, ok := s.ids.Load(id); return ok }

func (s *queueSet) set(id int32, in bool) {
	if in {
		s.ids.Store(id, true)
	} else {
		s.ids.Delete(id)
	}
}

// ready tells whether claim_ready.sql knows all that these calls ask for.
func (b *bound) ready() bool {
	return len(b.asked) == 0 && b.args[3] == int64(0)
}

// readyStep is claim_ready.sql. Without rows nothing happened, and it says nothing.
func (b *bound) readyStep(p storage.ClaimParams, sql string, out *claimRows) step {
	a := b.args
	return step{
		sql: sql, args: []any{a[0], a[1], a[2], a[4], a[5], a[6], a[9], a[10], a[11], a[8], a[13], a[14]},
		scan: each(
			func() { *out = claimRows{open: true} },
			func(r pgx.Rows) error {
				row := raw(r)
				if out.rows == nil {
					out.now, out.picked, out.next = row.time(0), row.int(1), row.time(2)
				}
				return out.add(b, p, &row, 3)
			},
		),
	}
}

// plain tells whether a claim found something, and nothing that claim_ready.sql would not have
// leased just so: then that one goes first the next time.
func (c *claimRows) plain() bool {
	return len(c.rows) > 0 && c.due == 0 && c.picked == int64(len(c.rows))
}
