// Package storage is the seam between the server and a database: the types of
// the queue, the [Store] that every backend implements, and the rules that a
// backend MUST keep. It imports the standard library only. A stranger reads
// this page first, then [Store], then one backend (storage/sqlite is the
// shortest) beside the conformance suite in storage/storagetest.
//
// # Words
//
// A queue holds messages. A claim leases a message to one worker and makes a
// token; the token is the only proof of the claim. An attempt is one claim. To
// settle is to complete, retry, dead-letter or release. A claim is lost when its
// caller no longer holds it. The ready time is the moment at which a message
// became, or becomes, claimable. The position is the immutable place of a
// message in its queue, drawn at enqueue.
//
// # Clock
//
// There is one clock, the database's, read in SQL. A backend MUST NOT compare a
// column with a time that a host made, and MUST NOT store a host's time in a
// column that is compared: durations go in, times come out. (SQLite runs inside
// the server, so its clock is the host's; that is stated, not hidden.) Every
// result carries Now, the database clock of the statement that made it.
//
// # Lease
//
// A claim writes in one statement a new random token for each row, the lease end
// (clock + lease), the claim time, the worker and attempt + 1. A lease is live
// iff lease end > clock, and over iff lease end <= clock; at no instant both or
// neither. A renewal sets the lease end anew from the clock and touches nothing
// else.
//
// # Fence
//
// Every later write of a claim matches four conditions in this order: id, state
// processing, token, lease end > clock. It holds at a moment at which the lock
// of the row is held: a backend MUST take the lock first and judge the lease that
// the locked row has, since a plain UPDATE that waited for the lock of another
// session is not always judged again when that session goes away (measured on
// PostgreSQL: the write lands 1.5 s after the lease ended). When the fence does
// not hold, nothing changes, not one column, and the outcome says why.
//
// # Zero rows
//
// A statement for many items never waits for a row: it skips what another session
// has locked. "Not returned" therefore means unknown, never lost. What was not
// returned goes to a slow lane, one item a statement, with a bounded wait; if the
// lock cannot be had in that time the outcome is [ItemUnknown], and the caller
// may ask again. A caller that joins the calls of many sets a [LockWait]: then the
// store has no slow lane, such an item is [ItemHeld], and the caller asks for it
// again by itself.
//
// # Order
//
// A claim takes the larger priority first, then the earlier ready time, then the
// smaller position, and returns messages in that order.
//
// # Repeats
//
// A client cannot know whether an answer that it did not get was given. So every
// write can be repeated: an enqueue by its idempotency key, a claim by its claim
// id, a settlement by its token. A repeat of the same answers the same facts; a
// repeat that differs is refused and told what was recorded.
//
// # Outcomes and errors
//
// Writes are batch-shaped. What became of an item is data in the result; an error
// means that the whole call failed. [ErrUnavailable] promises that nothing
// changed. [ErrOutcomeUnknown] says that the commit may or may not have happened:
// the repeat is safe and tells.
package storage
