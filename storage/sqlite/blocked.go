package sqlite

import "context"

// Blocked implements storage.Admin.
func (s *Store) Blocked(ctx context.Context, queueID int32) (bool, error) {
	var blocked bool
	err := s.read(ctx, "blocked", func(c *session) error {
		return c.one(ctx, qBlocked, args(queueID), &blocked)
	})
	return blocked, err
}
