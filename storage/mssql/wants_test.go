package mssql_test

// wants says for every statement what it has to be, by hand and from the contract: a look at
// this table tells which rows each statement locks and how, what it takes and what it gives.
//
// UPDLOCK is the lock of a row that a transaction is going to write; with READPAST it is had
// only where nobody else has it. READPAST READCOMMITTEDLOCK reads what nobody is writing. NOLOCK
// reads what never changes.
var wants = map[string]want{
	// The clock.
	"now": {does: "SELECT", gives: rows},

	// Ordering keys: the lock of a key is that of its row (D12). Names and ids are looked for
	// without a lock and looked at again under it.
	"key_ids":       {does: "SELECT", locks: "ordering_key NOLOCK FORCESEEK", params: "list", gives: rows},
	"key_names":     {does: "SELECT", locks: "ordering_key NOLOCK", params: "list", gives: rows},
	"keys_of":       {does: "SELECT", locks: "message NOLOCK, ordering_key NOLOCK", params: "list", gives: rows},
	"key_lock":      {does: "SELECT", locks: "ordering_key UPDLOCK ROWLOCK", params: "list", gives: rows},
	"key_lock_free": {does: "SELECT", locks: "ordering_key UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"key_add":       {does: "INSERT SELECT", locks: "ordering_key", params: "list", gives: change},
	"key_look": {
		does: "SELECT", params: "list", gives: rows,
		locks:   "queue NOLOCK, dead NOLOCK, message READPAST READCOMMITTEDLOCK ROWLOCK, ordering_key NOLOCK, message NOLOCK, message NOLOCK",
		because: map[string]string{"hints": "who has the lock of the key is the only one to add, end or move its messages; who looks without it looks again under it"},
	},
	"key_heads":    {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"key_park":     {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list", gives: change},
	"key_promote":  {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list", gives: change},
	"key_unblock":  {does: "UPDATE SELECT", locks: "ordering_key ROWLOCK", params: "list", gives: change},
	"key_blocking": {does: "SELECT", locks: "ordering_key NOLOCK, queue NOLOCK", params: "list", gives: rows},
	"key_block":    {does: "UPDATE SELECT", locks: "ordering_key ROWLOCK", params: "list", gives: change},

	// Why a fence did not hold (S5, S6, S8): the live row if nobody is writing it, then what
	// its token did, then its end, each waited for where it is being written.
	"diagnose_live":     {does: "SELECT", locks: "message NOLOCK, message READPAST READCOMMITTEDLOCK ROWLOCK", params: "list", gives: rows},
	"diagnose_history":  {does: "SELECT", locks: "settlement READCOMMITTEDLOCK, queue NOLOCK", params: "list", gives: rows},
	"diagnose_finished": {does: "SELECT", locks: "completed READCOMMITTEDLOCK, queue NOLOCK, dead READCOMMITTEDLOCK, queue NOLOCK", params: "list", gives: rows},
	"diagnose_others":   {does: "SELECT", locks: "queue NOLOCK, settlement READCOMMITTEDLOCK", params: "list", gives: rows},

	// Ends without a settlement (C18, E7, S14): locked where nobody has the row, copied, removed.
	"end_lock":       {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK", params: "list cancel", gives: rows},
	"dead_copy":      {does: "INSERT SELECT", locks: "ordering_key, message ROWLOCK, dead", params: "list now", gives: change},
	"message_delete": {does: "DELETE SELECT", locks: "message ROWLOCK", params: "list", gives: change},
	"message_wait":   {does: "SELECT", locks: "message UPDLOCK ROWLOCK", params: "queue_id id", gives: rows},

	// Enqueue: idempotency keys are locked where they are there, and else their primary key
	// decides (E6). Under the lock of an ordering key its messages are read past their locks.
	"enqueue_queues": {does: "SELECT", locks: "queue NOLOCK", params: "list", gives: rows},
	"enqueue_keys": {
		does: "SELECT", locks: "message NOLOCK, queue NOLOCK, dead NOLOCK, ordering_key", params: "list", gives: rows,
		because: map[string]string{"hints": "who has the lock of the key is the only one to add or end its messages"},
	},
	"idempotency_lock": {does: "SELECT", locks: "idempotency_key UPDLOCK ROWLOCK FORCESEEK", params: "list", gives: rows},
	"idempotency_add":  {does: "INSERT SELECT", locks: "idempotency_key", params: "list", gives: change},
	"idempotency_take": {does: "UPDATE SELECT", locks: "idempotency_key ROWLOCK", params: "list", gives: change},
	"message_states": {
		does: "SELECT", params: "list", gives: rows,
		locks:   "message NOLOCK, completed READCOMMITTEDLOCK, queue NOLOCK, dead READCOMMITTEDLOCK, queue NOLOCK, message NOLOCK",
		because: map[string]string{"hints": "the lock of its idempotency key keeps the message; only the state may be a moment ahead (E1)"},
	},

	// Claim: the look waits for nobody; the locks pass over what somebody has (C3); what is
	// written and read then is locked already.
	"claim_look": {
		does: "SELECT", params: "queue_id urgency ready_time last_urgency claim_ids", gives: rows,
		locks: "claim_call, queue NOLOCK, message READPAST READCOMMITTEDLOCK ROWLOCK INDEX(MESSAGE_DELAYED), message READPAST READCOMMITTEDLOCK ROWLOCK INDEX(MESSAGE_READY)",
	},
	"claim_lock":          {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK INDEX(MESSAGE_READY)", params: "queue_id urgency ready_time last_urgency limit", gives: rows},
	"claim_due":           {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK INDEX(MESSAGE_DELAYED)", params: "queue_id now limit", gives: rows},
	"claim_next":          {does: "SELECT", locks: "message READPAST READCOMMITTEDLOCK ROWLOCK INDEX(MESSAGE_DELAYED)", params: "queue_id now", gives: rows},
	"claim_move":          {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list", gives: change},
	"claim_lease":         {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "queue_id list", gives: change},
	"claim_taken":         {does: "SELECT", locks: "ordering_key NOLOCK, message", params: "list", gives: rows},
	"claim_held":          {does: "SELECT", locks: "ordering_key NOLOCK, message READCOMMITTEDLOCK", params: "queue_id list", gives: rows},
	"claim_call_lock":     {does: "SELECT", locks: "claim_call UPDLOCK ROWLOCK FORCESEEK", params: "queue_id list", gives: rows},
	"claim_call_add":      {does: "INSERT SELECT", locks: "claim_call", params: "queue_id list", gives: change},
	"claim_call_replayed": {does: "UPDATE SELECT", locks: "claim_call ROWLOCK", params: "queue_id list", gives: change},
	"claim_call_drop":     {does: "DELETE SELECT", locks: "claim_call ROWLOCK", params: "queue_id claim_id", gives: change},

	// Give back and renew: the lock first, the fence in a later statement (S13).
	"held_lock": {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"held_wait": {does: "SELECT", locks: "message UPDLOCK ROWLOCK", params: "list", gives: rows},
	"give_back": {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list", gives: change, fenced: true},
	"renew":     {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list", gives: change, fenced: true},
	"renewed":   {does: "SELECT", locks: "message", params: "list", gives: rows},
	"look":      {does: "SELECT", locks: "message READPAST READCOMMITTEDLOCK ROWLOCK", params: "list", gives: rows},
}
