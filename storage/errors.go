package storage

import (
	"errors"
	"fmt"
)

// Sentinel errors. A backend wraps the driver's error behind one of them with %w;
// callers use errors.Is and never read a text. Any other error is a defect, and proves nothing.
var (
	// ErrUnavailable: the database could not be reached or refused the transaction
	// (down, failing over, read-only, deadlock or serialization after inner retries,
	// a lock not had in time). Nothing changed. D3, D8.
	ErrUnavailable = errors.New("storage: database unavailable")
	// ErrLocked is the ErrUnavailable of a lock not had in time: another session, such as one
	// with an own transaction (E12), holds what the call needs. The database is well.
	ErrLocked = fmt.Errorf("%w: a lock was not had in time", ErrUnavailable)
	// ErrRefused: the database refused what the call holds, such as a value that no column takes.
	// Nothing changed, which is why the calls that a statement joins may be run apart after it
	// (D8). To the caller it is a defect.
	ErrRefused = errors.New("storage: refused by the database")
	// ErrOutcomeUnknown: the connection broke, or a timeout struck, while the
	// transaction was committing. It may or may not have happened; a repeat is safe. D8.
	ErrOutcomeUnknown = errors.New("storage: outcome of the transaction unknown")
	// ErrQueueNotFound: no queue has that name or id.
	ErrQueueNotFound = errors.New("storage: queue not found")
	// ErrQueueExists: CreateQueue met a queue of that name.
	ErrQueueExists = errors.New("storage: queue exists")
	// ErrQueueLimit: the server may not make more queues.
	ErrQueueLimit = errors.New("storage: queue limit reached")
	// ErrVersionMismatch: UpdateQueue named a version that is not the present one.
	ErrVersionMismatch = errors.New("storage: queue version mismatch")
	// ErrMessageNotFound: no message, live or finished and kept, has that reference.
	ErrMessageNotFound = errors.New("storage: message not found")
	// ErrSchema: the schema of the database is not one that this build works with. D7.
	ErrSchema = errors.New("storage: schema version")
	// ErrNoSchema is the ErrSchema of a database without tables of ours: migrate makes them.
	ErrNoSchema = fmt.Errorf("%w: there is none in this database", ErrSchema)
	// ErrUnsafeDurability: the database may lose what it acknowledged; the wrapped
	// text names the setting. D9.
	ErrUnsafeDurability = errors.New("storage: unsafe durability")
	// ErrNotSupported: the backend does not have this ability; see [Capabilities].
	ErrNotSupported = errors.New("storage: not supported by this backend")
)
