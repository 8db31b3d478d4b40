package storage

import "time"

// Ref names a message: the id of its queue and its position. It is all that a
// backend needs for a lookup.
type Ref struct {
	QueueID  int32
	Position int64
}

// Token is the random 128-bit proof of a claim. It is a secret: never log it, never
// put it in an error or a metric. The zero token matches no claim.
type Token [16]byte

// ClaimID is the UUID that a client chose for one claim call. The zero value means
// that it chose none.
type ClaimID [16]byte

// State of a message.
type State int16

// The states. Their numbers are stored.
const (
	StatePending    State = 0
	StateProcessing State = 1
	StateCompleted  State = 2
	// StateSettling is a message marked by a transaction of its worker (E12). It is
	// seen in the storage alone.
	StateSettling  State = 3
	StateDead      State = 4
	StateCancelled State = 5
)

// DeadReason says why a message is dead. The numbers are stored and are those of
// the wire.
type DeadReason int16

// The reasons.
const (
	DeadReasonNone              DeadReason = 0
	DeadReasonRejected          DeadReason = 1
	DeadReasonAttemptsExhausted DeadReason = 2
	DeadReasonLeaseExpired      DeadReason = 3
	DeadReasonExpired           DeadReason = 4
	DeadReasonKeyReused         DeadReason = 5
)

// Action is what a settlement asks for. The numbers are stored.
type Action int16

// The actions.
const (
	ActionComplete   Action = 1
	ActionRetry      Action = 2
	ActionDeadLetter Action = 3
	ActionRelease    Action = 4
	// ActionRevoke stands in the history alone, where an operator took a claim away: its
	// token is lost and not settled (S8).
	ActionRevoke Action = 5
)

// Outcome is what became of a message at a settlement. The numbers are stored and
// are those of the wire.
type Outcome int16

// The outcomes.
const (
	OutcomeNone      Outcome = 0
	OutcomeCompleted Outcome = 1
	OutcomeRetried   Outcome = 2
	OutcomeDead      Outcome = 3
	OutcomeReleased  Outcome = 4
	OutcomeCancelled Outcome = 5
)

// OrderingMode says what a dead message does to its ordering key. The numbers are
// stored and are those of the wire.
type OrderingMode int16

// The modes.
const (
	OrderingSkipDead    OrderingMode = 1
	OrderingBlockOnDead OrderingMode = 2
)

// RetryPolicy gives the delay of a Retry that names none: Min times Multiplier to
// the power of (attempt - 1), never above Max. Of that delay the part Jitter (0 to
// 1) is drawn at random: the result lies in [(1-Jitter) * delay, delay], so never
// above Max.
type RetryPolicy struct {
	Min        time.Duration
	Max        time.Duration
	Multiplier float64
	Jitter     float64
}

// QueueSettings are what an operator may change. The server checks ranges and fills
// defaults; a backend stores them as they are.
type QueueSettings struct {
	Paused             bool
	DefaultLease       time.Duration
	MinLease           time.Duration
	MaxLease           time.Duration
	MaxAttempts        int32 // 0: no limit
	Retry              RetryPolicy
	MaxInFlight        int32   // 0: no limit
	MaxClaimsPerSecond float64 // 0: no limit
	Ordering           OrderingMode
	CompletedRetention time.Duration
	DeadRetention      time.Duration // 0: for ever
	MaxMessages        int64         // 0: no limit
}

// Queue is a queue as it is stored. ID and Name never change; Version rises with
// every change of the settings and is the etag.
type Queue struct {
	QueueSettings

	ID         int32
	Name       string
	CreateTime time.Time
	Version    int64
}

// Message is a message as it is stored, live or finished. Times are UTC; a zero
// time is one that is not set.
type Message struct {
	Ref            Ref
	IdempotencyKey string
	Payload        []byte // nil where the call did not ask for it
	PayloadBytes   int64
	ContentType    string
	Attributes     map[string]string
	OrderingKey    string
	Priority       int32
	State          State
	Attempt        int32
	MaxAttempts    int32 // 0: no limit
	CreateTime     time.Time
	ReadyTime      time.Time
	ExpireTime     time.Time
	LastError      string
	DeadReason     DeadReason
	ReasonCode     string
	WorkerID       string
	LeaseEnd       time.Time
	FinishTime     time.Time // completed, dead or cancelled since
	Result         []byte
}

// Capabilities says what a backend does in another way than the others. The suite
// names a capability where it skips a group.
type Capabilities struct {
	// Name is "sqlite", "postgres", "mssql" or "mysql".
	Name string
	// ClockTick is the resolution of stored times: "one tick earlier" in a rule.
	ClockTick time.Duration
	// Notifications: Listen works, so that an enqueue on one server wakes another.
	Notifications bool
	// RowLocks: another session can hold one row while others go on. Without it a
	// session that writes holds the whole database.
	RowLocks bool
	// OddKeyed: the position of a message is odd where it has an ordering key and even where it
	// has none, so that whoever joins calls can keep the two apart.
	OddKeyed bool
	// Durability is one line for the operator: what an acknowledged write survives.
	Durability string
	// Version of the database, for the operator.
	Version string
	// MaxPayload is the largest payload or result that the database takes, in bytes; 0 where
	// that is beyond what a server may be set to.
	MaxPayload int64
}

// Keyed tells whether a message is known to have an ordering key. Where the backend cannot
// tell, none is.
func (c Capabilities) Keyed(ref Ref) bool { return c.OddKeyed && ref.Position&1 == 1 }
