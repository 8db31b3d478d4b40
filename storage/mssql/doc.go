// Package mssql is the backend for SQL Server 2019 and later and for Azure SQL, on
// github.com/microsoft/go-mssqldb. The order of the steps of an operation is in
// storage/rowlock; here are the layout (migrations/00001_layout.sql), the statements
// (queries), the connection and the meaning of its errors. No SQL Server runs where this
// is built: docs/engines.md says what was proven where.
//
// # Names and keys
//
// The name of a queue, an ordering key and an idempotency key are varbinary(255): the bytes
// of their UTF-8. SQL Server pads texts before it compares them, under every collation, so
// that 'a' and 'a ' would be one key; bytes compare as they are (E11), sort as Go sorts them,
// and a statement that compares one with a text is refused instead of being wrong. (Bytes are
// padded with 0x00, which no name holds.) Therefore:
//
//   - A parameter is values.Name, and a column is compared with it as it stands: name = @name.
//   - In a list a name is values.NameText, base64, which OPENJSON decodes for varbinary(max):
//     OPENJSON(@keys) WITH (queue_id int '$[0]', name varbinary(max) '$[1]') AS j, and it is
//     compared as CAST(j.name AS varbinary(255)), since an index is not sought by a (max).
//   - The empty key, of a message without one, is 0x.
//   - They are copied between tables as they are, and scanned into a Go string as they are.
//   - A text of a caller's own transaction becomes a key by
//     CAST(CAST(@key COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(255)) AS varbinary(255)).
//   - To read one: CAST(name AS varchar(255)), exact for ASCII.
//
// All other texts (worker, reason, error, content type) are nvarchar, and no statement
// compares them as texts: where two have to be the same, Go compares, or a filter casts both
// to varbinary.
//
// # Statements
//
// Parameters stand as @name in the text. Every statement is run by sp_executesql with
// declarations that depend on the Go types of its arguments alone, never on their length, so
// that it has one plan; and in front of it stand SET XACT_ABORT ON and SET LOCK_TIMEOUT, which
// last as long as the statement and cost no round trip, whatever state the pool left the
// session in.
//
// With XACT_ABORT every error rolls the whole transaction back. A statement that changes rows
// ends with SELECT @@ROWCOUNT AS changed; the counts of the protocol are never looked at.
//
// The clock {{now}} is CAST(SYSUTCDATETIME() AS datetime2(6)), so that what is stored and what
// it is later compared with were rounded alike. It stands still within a statement: whoever may
// wait for a lock takes it in an earlier statement (S13).
//
// # Connections
//
// A transaction is begun by the driver and not by a statement, so that the driver knows when
// the server has ended it: what follows an error is then refused and never sent, where it would
// commit by itself. Rows are read to their end, since closing them before it cancels the
// statement, and with XACT_ABORT the transaction.
//
// Each wait has an end that is ours: a login, since the driver bounds the dialing alone; a
// cancel that nobody confirms, which the driver waits for 5 s; the answer to a commit whose caller
// has left. A connection that the database closed while it was idle is replaced when the pool
// hands it out. Claims of a queue take turns by an application lock of the transaction, and one
// claim a server waits for it at a time, since each waiter occupies a thread of the database.
package mssql
