// Package ops holds the commands of queuebox-server that an operator runs against a server
// that is up: they speak gRPC and open no database. [Commands] is the part of the command line
// that they make up, in the tags of kong, and [Env] is what they run in. Each command is one
// file: its flags, its calls, and how its answer is shown.
//
// What all of them keep to: an answer goes to standard output, as a table for people or as one
// JSON object a line (-o json, the answer of the call in protojson); whatever else there is to
// say goes to standard error. However long a list or a redrive is, one page or one batch of it
// is in memory. Text that came from elsewhere is made harmless before a terminal sees it. A
// claim token is never asked for and never shown.
package ops
