// Package blackbox builds the real queuebox-server and drives it over gRPC, as a
// user would: a process of its own, a database of its own, flags, signals and the
// wire. Its tests name the rules of docs/contract.md that they check, and each
// runs twice, on SQLite and on PostgreSQL.
//
// The package itself is the harness, which the benchmarks use too: [Each] gives a
// test its databases, [Start] a server process, [Dial] a client. What a test must
// see of the database it reads outside the server, over connections of its own.
package blackbox
