package ops

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// filterFlags pick messages; all that are given must match.
type filterFlags struct {
	DeadReason    []string `group:"Filter" placeholder:"REASON" enum:"rejected,attempts-exhausted,lease-expired,expired,idempotency-key-reused" help:"Why the message is dead: rejected, attempts-exhausted, lease-expired, expired or idempotency-key-reused. Several, with commas or by repeating the flag: any of them."`
	ReasonCode    []string `group:"Filter" placeholder:"CODE" help:"Code that the worker gave to DeadLetter. Several: any of them."`
	ErrorContains string   `group:"Filter" placeholder:"TEXT" help:"Text that the last error holds."`
	OrderingKey   string   `group:"Filter" placeholder:"KEY" help:"Ordering key."`
	Worker        string   `group:"Filter" placeholder:"NAME" help:"Worker that holds or last held the claim."`
	Since         *point   `group:"Filter" placeholder:"TIME" help:"Made at or after: a time such as 2026-11-30T07:00:00Z, or how long ago, such as 2h."`
	Before        *point   `group:"Filter" placeholder:"TIME" help:"Made before; written as for --since."`
	ID            []string `name:"id" group:"Filter" placeholder:"ID" help:"These messages only. Several, with commas or by repeating the flag."`
}

// stateFlag is part of the filter where it is not the command that says the state.
type stateFlag struct {
	State []string `group:"Filter" placeholder:"STATE" enum:"pending,processing,completed,dead,cancelled" help:"State: pending, processing, completed, dead or cancelled. Several: any of them."`
}

// filter makes the filter of a request. A distance in time is measured once, so that a command
// of many calls has the same filter in each.
func (f *filterFlags) filter(ctx context.Context, s *session, states []string) (*queueboxv1.MessageFilter, error) {
	var now time.Time
	if f.Since.relative() || f.Before.relative() {
		var err error
		if now, err = s.databaseTime(ctx); err != nil {
			return nil, err
		}
	}
	out := &queueboxv1.MessageFilter{
		OrderingKey:   f.OrderingKey,
		ErrorContains: f.ErrorContains,
		WorkerId:      f.Worker,
		MessageIds:    f.ID,
		ReasonCodes:   f.ReasonCode,
		MinCreateTime: f.Since.ago(now),
		MaxCreateTime: f.Before.ago(now),
	}
	for _, state := range states {
		out.States = append(out.States, queueboxv1.MessageState(queueboxv1.MessageState_value[wireName(statePrefix, state)]))
	}
	for _, reason := range f.DeadReason {
		out.DeadReasons = append(out.DeadReasons, queueboxv1.DeadReason(queueboxv1.DeadReason_value[wireName(deadPrefix, reason)]))
	}
	return out, nil
}

func empty(f *queueboxv1.MessageFilter) bool { return proto.Size(f) == 0 }

// The prefixes of the values of enums, which people do without.
const (
	statePrefix    = "MESSAGE_STATE_"
	deadPrefix     = "DEAD_REASON_"
	orderingPrefix = "ORDERING_MODE_"
)

// wireName is the name of a value as the wire has it: skip-dead is ORDERING_MODE_SKIP_DEAD.
func wireName(prefix, name string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// plainName is the reverse of wireName, "" for the zero value.
func plainName(prefix, name string) string {
	name = strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", "-"))
	if name == "unspecified" {
		return ""
	}
	return name
}

func stateName(s queueboxv1.MessageState) string { return plainName(statePrefix, s.String()) }

func deadName(r queueboxv1.DeadReason) string { return plainName(deadPrefix, r.String()) }
