// Package mysql is the backend for MySQL 8 and MariaDB. The order of the steps of an
// operation is in storage/rowlock; here are the statements, the connection and its errors.
//
// Nothing of a role's or a server's defaults matters to the statements: each connection
// sets its isolation level, time zone, character set, SQL mode and the bounds of its
// waits before it is used (see session.go). What a connection cannot set for itself is
// checked when the store opens (see check.go), and what a database has that would break a
// promise stops the start.
//
// # Round trips
//
// The driver writes arguments into the text, escaped, so nothing is prepared, and takes several
// statements in one text. A transaction starts in the text of its first statement, and
// rowlock joins those that need nothing of each other (session.together). ROW_COUNT() tells how
// many rows each of them matched, as the driver tells it of one alone. Only texts of this
// package and placeholders go into a statement.
//
// # The clock
//
// {{now}} is SYSDATE(6), which goes on while a statement waits; NOW(6) stands still from
// the start of the statement on, and a fence judged by it would let a lease live that has
// run out meanwhile (S13). SYSDATE is read anew for every row, so it bounds no range of
// an index.
//
// # Where the two differ
//
// A locking SELECT that joins a list (JSON_TABLE) says on MySQL which tables it locks, or
// MySQL refuses it with error 3569; MariaDB knows no such words. They stand in a comment
// that MySQL alone runs: FOR UPDATE /*!80000 OF m */. MariaDB passes over comments of the
// versions 50700 to 99999.
package mysql
