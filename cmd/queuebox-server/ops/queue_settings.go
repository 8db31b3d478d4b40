package ops

import (
	"errors"
	"slices"
	"strconv"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// settingsFlags are the settings of a queue. What is not given is not touched.
type settingsFlags struct {
	Lease              *time.Duration `group:"Settings" placeholder:"DURATION" help:"Lease of a claim that names none."`
	MinLease           *time.Duration `group:"Settings" placeholder:"DURATION" help:"Shortest lease."`
	MaxLease           *time.Duration `group:"Settings" placeholder:"DURATION" help:"Longest lease."`
	MaxAttempts        *int32         `group:"Settings" placeholder:"N" help:"Attempts after which a message is dead. 0 sets no limit."`
	RetryMin           *time.Duration `group:"Settings" placeholder:"DURATION" help:"Delay of the first retry."`
	RetryMax           *time.Duration `group:"Settings" placeholder:"DURATION" help:"Longest delay of a retry."`
	RetryMultiplier    *float64       `group:"Settings" placeholder:"FACTOR" help:"Factor from one retry delay to the next, 1 to 10."`
	RetryJitter        *float64       `group:"Settings" placeholder:"FRACTION" help:"Part of a retry delay that is drawn at random, 0 to 1."`
	MaxInFlight        *int32         `group:"Settings" placeholder:"N" help:"Most messages that are leased at a time. 0 sets no limit."`
	MaxClaimsPerSecond *float64       `group:"Settings" placeholder:"N" help:"Most claims in a second. 0 sets no limit."`
	Ordering           *string        `group:"Settings" placeholder:"MODE" enum:"skip-dead,block-on-dead" help:"What a dead message does to its ordering key: skip-dead lets the key go on, block-on-dead stops it until the message is redriven or purged."`
	CompletedRetention *time.Duration `group:"Settings" placeholder:"DURATION" help:"How long completed messages are kept, at least 10m. 0 takes the default of the server."`
	DeadRetention      *time.Duration `group:"Settings" placeholder:"DURATION" help:"How long dead messages are kept. 0 keeps them for ever."`
	MaxMessages        *int64         `group:"Settings" placeholder:"N" help:"Most live messages that the queue may hold. 0 sets no limit."`
}

// setting is a flag, the field that it sets, and the path of the update mask that covers it.
type setting struct {
	flag  string
	field string
	path  string
	given func(f *settingsFlags) bool
	set   func(f *settingsFlags, q *queueboxv1.Queue) error
}

// settingFlags is the one list of settings.
func settingFlags() []setting {
	length := func(flag, field, path string, from func(*settingsFlags) *time.Duration, to func(*queueboxv1.Queue) *int64) setting {
		return setting{
			flag, field, path,
			func(f *settingsFlags) bool { return from(f) != nil },
			func(f *settingsFlags, q *queueboxv1.Queue) error {
				ms, err := milliseconds(flag, *from(f))
				*to(q) = ms
				return err
			},
		}
	}
	const retry = "retry_policy"
	return []setting{
		length("lease", "default_lease_ms", "default_lease_ms",
			func(f *settingsFlags) *time.Duration { return f.Lease }, func(q *queueboxv1.Queue) *int64 { return &q.DefaultLeaseMs }),
		length("min-lease", "min_lease_ms", "min_lease_ms",
			func(f *settingsFlags) *time.Duration { return f.MinLease }, func(q *queueboxv1.Queue) *int64 { return &q.MinLeaseMs }),
		length("max-lease", "max_lease_ms", "max_lease_ms",
			func(f *settingsFlags) *time.Duration { return f.MaxLease }, func(q *queueboxv1.Queue) *int64 { return &q.MaxLeaseMs }),
		number("max-attempts", "max_attempts", "max_attempts",
			func(f *settingsFlags) *int32 { return f.MaxAttempts }, func(q *queueboxv1.Queue) *int32 { return &q.MaxAttempts }),
		length("retry-min", "retry_policy.min_backoff_ms", retry,
			func(f *settingsFlags) *time.Duration { return f.RetryMin }, func(q *queueboxv1.Queue) *int64 { return &policy(q).MinBackoffMs }),
		length("retry-max", "retry_policy.max_backoff_ms", retry,
			func(f *settingsFlags) *time.Duration { return f.RetryMax }, func(q *queueboxv1.Queue) *int64 { return &policy(q).MaxBackoffMs }),
		number("retry-multiplier", "retry_policy.multiplier", retry,
			func(f *settingsFlags) *float64 { return f.RetryMultiplier }, func(q *queueboxv1.Queue) *float64 { return &policy(q).Multiplier }),
		number("retry-jitter", "retry_policy.jitter", retry,
			func(f *settingsFlags) *float64 { return f.RetryJitter }, func(q *queueboxv1.Queue) *float64 { return &policy(q).Jitter }),
		number("max-in-flight", "max_in_flight", "max_in_flight",
			func(f *settingsFlags) *int32 { return f.MaxInFlight }, func(q *queueboxv1.Queue) *int32 { return &q.MaxInFlight }),
		number("max-claims-per-second", "max_claims_per_second", "max_claims_per_second",
			func(f *settingsFlags) *float64 { return f.MaxClaimsPerSecond }, func(q *queueboxv1.Queue) *float64 { return &q.MaxClaimsPerSecond }),
		{
			"ordering", "ordering_mode", "ordering_mode",
			func(f *settingsFlags) bool { return f.Ordering != nil },
			func(f *settingsFlags, q *queueboxv1.Queue) error {
				q.OrderingMode = queueboxv1.OrderingMode(queueboxv1.OrderingMode_value[wireName(orderingPrefix, *f.Ordering)])
				return nil
			},
		},
		length("completed-retention", "completed_retention_ms", "completed_retention_ms",
			func(f *settingsFlags) *time.Duration { return f.CompletedRetention }, func(q *queueboxv1.Queue) *int64 { return &q.CompletedRetentionMs }),
		length("dead-retention", "dead_retention_ms", "dead_retention_ms",
			func(f *settingsFlags) *time.Duration { return f.DeadRetention }, func(q *queueboxv1.Queue) *int64 { return &q.DeadRetentionMs }),
		number("max-messages", "max_messages", "max_messages",
			func(f *settingsFlags) *int64 { return f.MaxMessages }, func(q *queueboxv1.Queue) *int64 { return &q.MaxMessages }),
	}
}

func number[N any](flag, field, path string, from func(*settingsFlags) *N, to func(*queueboxv1.Queue) *N) setting {
	return setting{
		flag, field, path,
		func(f *settingsFlags) bool { return from(f) != nil },
		func(f *settingsFlags, q *queueboxv1.Queue) error {
			*to(q) = *from(f)
			return nil
		},
	}
}

func policy(q *queueboxv1.Queue) *queueboxv1.RetryPolicy {
	if q.GetRetryPolicy() == nil {
		q.RetryPolicy = &queueboxv1.RetryPolicy{}
	}
	return q.GetRetryPolicy()
}

// apply sets what was given and returns the paths of what it set.
func (f *settingsFlags) apply(q *queueboxv1.Queue) ([]string, error) {
	var paths []string
	for _, s := range settingFlags() {
		if !s.given(f) {
			continue
		}
		if err := s.set(f, q); err != nil {
			return nil, err
		}
		if !slices.Contains(paths, s.path) {
			paths = append(paths, s.path)
		}
	}
	return paths, nil
}

var errNoSetting = UsageError{errors.New("give at least one setting to change, such as --max-attempts=5 (see queuebox-server queues update --help)")}

func limit[N int32 | int64](n N) string {
	if n == 0 {
		return "none"
	}
	return count(int64(n))
}

func rate(r float64) string {
	if r == 0 {
		return "none"
	}
	return strconv.FormatFloat(r, 'f', -1, 64) + "/s"
}
