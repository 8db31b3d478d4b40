// Package rowlock is the part of a backend that MySQL, MariaDB and SQL Server share. All
// of them lock rows, none of them has statements that write inside of others, so an
// operation is a short transaction of several statements: lock, look, write. This package
// holds the order of those steps and what follows from the rows; an [Engine] brings the
// statements in its own SQL, the connection, the values of its driver and the meaning of
// its errors. What runs on MariaDB in the tests is therefore the same Go code that runs
// on SQL Server; what differs is the text of the statements.
//
// # Statements
//
// A statement is a file of the engine's queries directory and has the same name, the same
// parameters by name and the same columns on every engine. Text in queries/parts is put in
// where {{name}} stands. {{now}} is the clock of the database; nothing else reads a clock.
// A statement that changes rows is run by session.change, which tells how many rows it
// matched: on SQL Server the last thing of its file is SELECT @@ROWCOUNT, on MySQL the
// driver counts what was found, changed or not.
//
// # Round trips
//
// Statements that need nothing of each other's answers are the steps of one session.together:
// where the engine takes several statements in one text (Engine.MatchedRows) they are one round
// trip, elsewhere one each. They stay statements of their own, in the same order, so a lock is
// had by an earlier one than that which looks or writes. COMMIT always goes alone: its answer is
// the outcome of the transaction and of nothing else (D8).
//
// # The clock
//
// {{now}} goes on while a statement waits, so it is read for every row and bounds no range of
// an index: WHERE ready_time <= {{now}} walks over every row of the index (and locks them one
// after the other), also those far ahead. Where a range needs an end, the clock is read by
// an earlier statement and its time is a parameter; the condition with {{now}} stands beside
// it where the row has to be judged at the moment of the write (S13).
//
// # Lists
//
// A list of things is one parameter, JSON text: an array of arrays, read by JSON_TABLE on
// MySQL and by OPENJSON on SQL Server. So a statement has one text, whatever the number
// of its rows.
//
// # Positions
//
// A message has an id that the database counts up. The position in a [storage.Ref] is twice
// the id, plus one where the message has an ordering key: so a reference alone tells that a
// key has to be locked first, and messages without keys pay nothing for those with.
//
// # Locks
//
// The order is that of the contract (D12): ordering keys by queue and name, then idempotency
// keys by queue and name, then messages by id. Each kind is locked by an earlier statement
// than the next. Nobody who holds a message waits for a key, and a claim locks no key. Whoever
// works on many messages skips those that somebody else has locked; what was skipped is
// tried alone, with a bounded wait. The lock is had first, and the fence is judged by a
// later statement (S13). A transaction that the database chose as the victim of a deadlock
// is run again.
//
// # Reads
//
// A read is not a transaction: each of its statements sees what is committed by then. Who
// looks for a message in several tables looks at the live ones once more at the end, since
// a message moves between them.
//
// # Retention
//
// There are no partitions to drop: what has passed its retention is deleted, the oldest first,
// in transactions of at most 500 rows, which lock only what nobody else has, and by one server
// at a time, which has the row of count_turn that stands for it. A server remembers where it
// ended, since deleted rows stay in the indexes for as long as anybody may see them.
package rowlock
