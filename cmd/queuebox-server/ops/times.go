package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// point is a time as an operator gives it: RFC 3339, or a distance from now such as 2h. The
// distance is measured by the clock of the database, which may not be that of this machine.
type point struct {
	text string
	at   time.Time
	by   time.Duration
}

// UnmarshalText reads a point.
func (p *point) UnmarshalText(text []byte) error {
	p.text = string(text)
	if d, err := time.ParseDuration(p.text); err == nil {
		if d < 0 {
			return fmt.Errorf("want a distance without a sign, got %q", p.text)
		}
		p.by = d
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, p.text)
	if err != nil {
		return fmt.Errorf("want a time such as 2026-11-30T07:00:00Z or a distance such as 90s, 2h or 72h, got %q", p.text)
	}
	p.at = t
	return nil
}

// ago is the point, where a distance leads into the past.
func (p *point) ago(now time.Time) *timestamppb.Timestamp {
	if p.relative() {
		return timestamppb.New(now.Add(-p.by))
	}
	return p.absolute()
}

// ahead is the point, where a distance leads into the future.
func (p *point) ahead(now time.Time) *timestamppb.Timestamp {
	if p.relative() {
		return timestamppb.New(now.Add(p.by))
	}
	return p.absolute()
}

func (p *point) absolute() *timestamppb.Timestamp {
	if p == nil {
		return nil
	}
	return timestamppb.New(p.at)
}

// relative tells whether the point needs a clock.
func (p *point) relative() bool { return p != nil && p.at.IsZero() }

// databaseTime asks for the clock that the times of messages are made of.
func (s *session) databaseTime(ctx context.Context) (time.Time, error) {
	info, err := call(ctx, s, s.admin.GetServerInfo, &queueboxv1.GetServerInfoRequest{})
	if err != nil {
		return time.Time{}, err
	}
	return info.GetServerTime().AsTime(), nil
}

// milliseconds is a duration as the wire has it.
func milliseconds(flag string, d time.Duration) (int64, error) {
	if d < 0 {
		return 0, UsageError{fmt.Errorf("--%s: is negative", flag)}
	}
	if d%time.Millisecond != 0 {
		return 0, UsageError{errors.New("--" + flag + ": want whole milliseconds")}
	}
	return d.Milliseconds(), nil
}
