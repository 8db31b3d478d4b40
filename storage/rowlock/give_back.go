package rowlock

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

const qGiveBack statement = "give_back"

// GiveBack implements storage.Store. The row of a call with a claim id decides between it and a
// repeat: who has it first excludes the other (C15). Messages that somebody else has locked stay
// as they are.
func (s *Store) GiveBack(ctx context.Context, p storage.GiveBackParams) (storage.GiveBackResult, error) {
	var claims []storage.HeldClaim
	var refs []storage.Ref
	for _, h := range p.Claims {
		if h.Ref.QueueID == p.QueueID {
			claims = append(claims, h)
			refs = append(refs, h.Ref)
		}
	}
	var res storage.GiveBackResult
	err := s.write(ctx, "give back", func(c *session) (_ verdict, err error) {
		res = storage.GiveBackResult{}
		// A head that is given back steps behind one that was redriven meanwhile (O7).
		keys, err := c.lockKeys(ctx, refs, waitTaken)
		if err != nil {
			return rollback, err
		}
		var (
			locked []lockedClaim
			calls  = int64(1)
			steps  = []step{clock(&res.Now)}
		)
		if p.ClaimID != (storage.ClaimID{}) {
			steps = append(steps, changing(
				qClaimCallDrop, &calls, a("queue_id", p.QueueID), c.list([][]any{{s.engine.Values.TokenText(p.ClaimID)}}),
			))
		}
		if len(claims) > 0 {
			steps = append(steps, c.lockingHeld(skipTaken, claims, &locked))
		}
		if err := c.together(ctx, steps...); err != nil || calls == 0 {
			return rollback, err
		}
		if len(locked) == 0 {
			return commit, nil
		}
		rows := make([][]any, 0, len(locked))
		for _, l := range locked {
			rows = append(rows, c.claimRow(claims[l.item]))
		}
		n, err := c.change(ctx, qGiveBack, c.list(rows))
		if err != nil {
			return rollback, err
		}
		res.GivenBack = int(n)
		_, _, err = c.promote(ctx, keys.ids)
		return commit, err
	})
	if err != nil {
		return storage.GiveBackResult{}, err
	}
	return res, nil
}
