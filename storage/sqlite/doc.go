// Package sqlite keeps queues in one SQLite file: the embedded default, without
// cgo and without a server beside it. [Open] makes the file, migrates it and gives
// a [storage.Store].
//
// SQLite has one writer at a time, so a write takes the write lock of the file first
// (BEGIN IMMEDIATE) and holds it to the commit, which all calls that wait for it share. Everything that a fence judges is
// therefore read under the lock, and the clock is read after it. Readers work beside
// the writer on a snapshot (WAL). Several processes may serve one file; they wait for
// each other's write lock for a bounded time.
//
// Start with write.go and group.go, then claim.go and settle.go beside their statements in queries/.
package sqlite
