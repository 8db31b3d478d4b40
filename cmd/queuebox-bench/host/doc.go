// Package host runs what a benchmark needs on this machine and reads what it costs: a private
// PostgreSQL with default durability, server processes, the processor time of process trees, and
// the statements and WAL of the database. Everything that it starts it stops by process id.
package host
