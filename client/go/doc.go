// Package queuebox is the Go client of QueueBox, a pull queue on the database that you already
// run. A producer enqueues with Client.Enqueue. A worker runs a handler for each message with
// Worker.Run, or claims messages itself with Client.Claim and settles their handles.
//
// # What a claim is
//
// A Handle is a lease on one message. It renews itself from the moment of the claim, and every
// write it makes is fenced in the database by its token and its lease. Where the claim is lost,
// because this process was paused or cut off for longer than the lease, the context of the handle
// ends with a cause that matches ErrClaimLost, and its settlements are refused. That stops the
// writes of an old worker, not the worker: an effect on the outside may happen twice, so make it
// idempotent by queue and idempotency key.
//
// # What goes over the wire
//
// A Worker gets its messages over one Work stream and asks for as many as it has free slots; see
// DeliverStream and DeliverPoll.
//
// Handles are single, calls are not: the renewals of a queue share their requests, and what handles
// settle while a call is under way goes out as one BatchSettle when it is answered. A settlement
// alone is sent at once. So interceptors see BatchSettle beside Complete, Retry, DeadLetter and
// Release; WithSeparateSettlements is for those that cannot.
//
// # Your own transaction
//
// Where the tables of the program lie in the database of the queue, the packages pgxtx and sqltx
// below this one settle a claim in a transaction of the program's own (E12).
//
// # Rules
//
// Doc comments name the rules of the contract that they carry, such as K2 or S5; docs/clients.md
// puts those for clients together.
package queuebox
