// Package proxy is a small TCP proxy for tests. It stands between two programs
// and breaks their connections on purpose: it cuts them, lets them go half-open,
// delays them, and, where the protocol is that of PostgreSQL or of MySQL, cuts a connection
// exactly between a statement that was carried out and its answer, which is the
// one moment at which a client cannot know what became of its transaction.
//
// Use [New] or [Before], give [Proxy.Addr] or a URL to the program under test, and
// then call what should break. Everything is safe for use by many goroutines.
package proxy
