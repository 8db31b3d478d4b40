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
	"key_lock":      {does: "SELECT", locks: "ordering_key UPDLOCK ROWLOCK FORCESEEK", params: "list", gives: rows},
	"key_lock_free": {does: "SELECT", locks: "ordering_key UPDLOCK READPAST ROWLOCK FORCESEEK", params: "list", gives: rows},
	"key_add":       {does: "INSERT SELECT", locks: "ordering_key", params: "list", gives: change},
	"key_look": {
		does: "SELECT", params: "list", gives: rows,
		locks:   "queue NOLOCK, dead NOLOCK, message READPAST READCOMMITTEDLOCK ROWLOCK, ordering_key NOLOCK, message NOLOCK, message NOLOCK",
		because: map[string]string{"hints": "who has the lock of the key is the only one to add, end or move its messages; who looks without it looks again under it"},
	},
	"key_heads":    {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"key_park":     {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list", gives: change},
	"key_promote":  {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list now", gives: change},
	"key_unblock":  {does: "UPDATE SELECT", locks: "ordering_key ROWLOCK", params: "list", gives: change},
	"key_blocking": {does: "SELECT", locks: "ordering_key NOLOCK, queue NOLOCK", params: "list", gives: rows},
	"key_block":    {does: "UPDATE SELECT", locks: "ordering_key ROWLOCK", params: "list", gives: change},
	"key_page": {
		does: "SELECT", locks: "ordering_key NOLOCK", params: "after limit", gives: rows,
		because: map[string]string{"hints": "what is found is looked at again under the lock of the key"},
	},
	"key_delete": {does: "DELETE SELECT", locks: "ordering_key ROWLOCK", params: "list", gives: change},
	"blocked": {
		does: "SELECT", locks: "ordering_key NOLOCK, message NOLOCK", params: "queue_id", gives: rows,
		because: map[string]string{"hints": "an answer for people, who ask again"},
	},

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
	"message_try":    {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK", params: "queue_id id", gives: rows},
	"message_there":  {does: "SELECT", locks: "message NOLOCK", params: "queue_id id", gives: rows},

	// Settlements: the claims are locked where nobody else has the row, decided, and written by
	// statements that test the fence again under the lock (S1, S2, S13).
	"settle_lock":         {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"settle_policy":       {does: "SELECT", locks: "queue NOLOCK", params: "list", gives: rows},
	"complete_copy":       {does: "INSERT SELECT", locks: "ordering_key, message ROWLOCK, completed", params: "list now", gives: change, fenced: true},
	"settle_dead":         {does: "INSERT SELECT", locks: "ordering_key, message ROWLOCK, dead", params: "list now", gives: change, fenced: true},
	"settle_return":       {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list now", gives: change, fenced: true},
	"settle_history":      {does: "INSERT SELECT", locks: "settlement", params: "list now", gives: change},
	"complete_follow_ups": {does: "UPDATE SELECT", locks: "completed ROWLOCK", params: "follow_ups id queue_id", gives: change},

	// A stop that is asked for (S14), and a claim that is taken away (S8): the row is locked by
	// message_wait or message_try before.
	"cancel_ask":    {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "id queue_id", gives: change},
	"key_position":  {does: "SELECT", locks: "idempotency_key", params: "name queue_id", gives: rows},
	"revoke_hold":   {does: "SELECT", locks: "message UPDLOCK ROWLOCK", params: "id queue_id", gives: rows},
	"revoke_return": {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "id queue_id refund token now", gives: change, fenced: true},

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
	"idempotency_try":  {does: "SELECT", locks: "idempotency_key FORCESEEK NOWAIT ROWLOCK UPDLOCK", params: "list", gives: rows},
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
	// W7 reads what nobody is writing.
	"first_ready":         {does: "SELECT", locks: "message READPAST READCOMMITTEDLOCK ROWLOCK INDEX(MESSAGE_READY)", params: "queue_id urgency ready_time", gives: rows},
	"first_urgency":       {does: "SELECT", locks: "message READPAST READCOMMITTEDLOCK ROWLOCK INDEX(MESSAGE_READY)", params: "queue_id urgency", gives: rows},
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
	"claim_call_held":     {does: "UPDATE SELECT", locks: "claim_call ROWLOCK", params: "queue_id list", gives: change},
	"claim_call_drop":     {does: "DELETE SELECT", locks: "claim_call ROWLOCK", params: "queue_id list", gives: change},

	// Give back and renew: the lock first, the fence in a later statement (S13).
	"held_lock": {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"held_wait": {does: "SELECT", locks: "message UPDLOCK ROWLOCK", params: "list", gives: rows},
	"give_back": {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list", gives: change, fenced: true},
	"renew":     {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list", gives: change, fenced: true},
	"renewed":   {does: "SELECT", locks: "message", params: "list", gives: rows},
	"look":      {does: "SELECT", locks: "message READPAST READCOMMITTEDLOCK ROWLOCK", params: "list", gives: rows},

	// Queues. queue_turn is the lock under which a queue is made.
	"queue_turn":      {does: "SELECT", locks: "count_turn UPDLOCK ROWLOCK", gives: rows},
	"queue_count":     {does: "SELECT", locks: "queue", gives: rows},
	"queue_insert":    {does: "INSERT SELECT", locks: "queue", params: "name paused default_lease_us min_lease_us max_lease_us max_attempts retry_min_us retry_max_us retry_multiplier retry_jitter max_in_flight max_claims_per_second ordering_mode completed_retention_us dead_retention_us max_messages", gives: change},
	"queue_get":       {does: "SELECT", locks: "queue", params: "name", gives: rows},
	"queue_get_by_id": {does: "SELECT", locks: "queue", params: "queue_id", gives: rows},
	"queue_list":      {does: "SELECT", locks: "queue", params: "after limit", gives: rows},
	"queue_hold":      {does: "SELECT", locks: "queue UPDLOCK ROWLOCK", params: "name", gives: rows},
	"queue_update":    {does: "UPDATE SELECT", locks: "queue", params: "queue_id paused default_lease_us min_lease_us max_lease_us max_attempts retry_min_us retry_max_us retry_multiplier retry_jitter max_in_flight max_claims_per_second ordering_mode completed_retention_us dead_retention_us max_messages", gives: change},
	"queue_pause":     {does: "UPDATE SELECT", locks: "queue", params: "queue_id paused", gives: change},

	// One message, and lists: what is committed. A list looks for the bounds of its pages past
	// the locks of others, at ids alone.
	"message_live":         {does: byVersions, locks: "databases, ordering_key NOLOCK, message", params: "id queue_id payload", gives: rows},
	"message_completed":    {does: byVersions, locks: "databases, completed, queue", params: "id queue_id payload", gives: rows},
	"message_dead":         {does: byVersions, locks: "databases, dead, queue", params: "id queue_id payload", gives: rows},
	"list_live":            {does: byVersions, locks: "databases, ordering_key NOLOCK, message INDEX(MESSAGE_ID), ordering_key", params: "queue_id first last limit payload " + meant, gives: rows},
	"list_completed":       {does: byVersions, locks: "databases, completed INDEX(COMPLETED_ID), queue", params: "queue_id first last limit payload " + meant, gives: rows},
	"list_dead":            {does: byVersions, locks: "databases, dead INDEX(DEAD_QUEUE), queue", params: "queue_id first last limit payload " + meant, gives: rows},
	"list_live_named":      {does: byVersions, locks: "databases, ordering_key NOLOCK, message, ordering_key", params: "queue_id list payload " + meant, gives: rows},
	"list_completed_named": {does: byVersions, locks: "databases, completed, queue", params: "queue_id list payload " + meant, gives: rows},
	"list_dead_named":      {does: byVersions, locks: "databases, dead, queue", params: "queue_id list payload " + meant, gives: rows},
	"page_live":            {does: "SELECT", locks: "message NOLOCK INDEX(MESSAGE_ID)", params: "last rows", gives: rows, because: map[string]string{"hints": pageBounds}},
	"page_completed":       {does: "SELECT", locks: "completed NOLOCK INDEX(COMPLETED_ID)", params: "last rows", gives: rows, because: map[string]string{"hints": pageBounds}},
	"page_dead":            {does: "SELECT", locks: "dead NOLOCK INDEX(DEAD_QUEUE)", params: "last rows queue_id", gives: rows, because: map[string]string{"hints": pageBounds}},

	"ids_live": {
		does: "SELECT", params: "queue_id limit", gives: rows,
		locks:   "message NOLOCK INDEX(MESSAGE_READY), message NOLOCK INDEX(MESSAGE_DELAYED), message NOLOCK INDEX(MESSAGE_PARKED)",
		because: map[string]string{"hints": pageBounds, "order": "whichever: where there are more, none of them is used"},
	},
	"ids_completed": {does: "SELECT", locks: "completed NOLOCK INDEX(COMPLETED_FINISH)", params: "queue_id limit", gives: rows, because: map[string]string{"hints": pageBounds}},
	"ids_marked":    {does: "SELECT", locks: "marked READPAST READCOMMITTEDLOCK ROWLOCK", params: "queue_id limit", gives: rows},

	// Counts: past the locks of others, since whoever counts 20,000 rows would wait for some
	// all the time, and hold up others.
	"count_live":            {does: "SELECT", locks: "message NOLOCK INDEX(MESSAGE_ID)", params: "after limit now", gives: rows, because: map[string]string{"hints": counts}},
	"count_live_queue":      {does: "SELECT", locks: "message NOLOCK INDEX(MESSAGE_READY), message NOLOCK INDEX(MESSAGE_DELAYED), message NOLOCK INDEX(MESSAGE_PARKED)", params: "queue_id now", gives: rows, because: map[string]string{"hints": counts}},
	"count_completed":       {does: "SELECT", locks: "completed NOLOCK INDEX(COMPLETED_FINISH), queue NOLOCK", params: "after limit", gives: rows, because: map[string]string{"hints": counts}},
	"count_completed_queue": {does: "SELECT", locks: "completed NOLOCK INDEX(COMPLETED_FINISH)", params: "queue_id after_time after_id limit", gives: rows, because: map[string]string{"hints": counts}},
	"count_dead":            {does: "SELECT", locks: "dead NOLOCK INDEX(DEAD_FINISH), queue NOLOCK", params: "after limit", gives: rows, because: map[string]string{"hints": counts}},
	"count_dead_queue":      {does: "SELECT", locks: "dead NOLOCK INDEX(DEAD_FINISH)", params: "queue_id after_time after_id limit", gives: rows, because: map[string]string{"hints": counts}},
	"queue_times":           {does: "SELECT", locks: "queue", params: "after limit", gives: rows},
	"stats_get":             {does: "SELECT", locks: "queue, queue_stats", params: "queue_id", gives: rows},
	"stats_insert":          {does: "INSERT SELECT", locks: "queue_stats, queue_stats", params: "list as_of", gives: change},
	"stats_update":          {does: "UPDATE SELECT", locks: "queue_stats ROWLOCK", params: "list as_of idle_time", gives: change},
	// The turn to count is one row, taken and ended by one UPDATE each.
	"turn_take": {does: "UPDATE SELECT", locks: "count_turn", params: "holder", gives: change},
	"turn_done": {does: "UPDATE SELECT", locks: "count_turn", params: "holder rest_us", gives: change},

	// Retention: found and locked where nobody has them, the idempotency keys that name them
	// too, then deleted (D6). What is oldest only says where to begin.
	"retain_turn":      {does: "SELECT", locks: "count_turn UPDLOCK READPAST ROWLOCK", gives: rows},
	"retain_completed": {does: "SELECT", locks: "completed UPDLOCK READPAST ROWLOCK INDEX(COMPLETED_FINISH)", params: "queue_id from until limit", gives: rows},
	"retain_dead":      {does: "SELECT", locks: "dead UPDLOCK READPAST ROWLOCK INDEX(DEAD_FINISH)", params: "queue_id from until limit", gives: rows},
	"retain_cancelled": {does: "SELECT", locks: "dead UPDLOCK READPAST ROWLOCK INDEX(DEAD_FINISH)", params: "queue_id from until limit", gives: rows},
	"retain_history":   {does: "SELECT", locks: "settlement UPDLOCK READPAST ROWLOCK INDEX(SETTLEMENT_TIME)", params: "queue_id from until limit", gives: rows},

	"retain_completed_keys":   {does: "SELECT", locks: "completed NOLOCK, idempotency_key NOLOCK", params: "list", gives: rows, because: map[string]string{"hints": lockedNext}},
	"retain_dead_keys":        {does: "SELECT", locks: "dead NOLOCK, idempotency_key NOLOCK", params: "list", gives: rows, because: map[string]string{"hints": lockedNext}},
	"retain_completed_lock":   {does: "SELECT", locks: "completed ROWLOCK, idempotency_key UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"retain_dead_lock":        {does: "SELECT", locks: "dead ROWLOCK, idempotency_key UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"retain_completed_free":   {does: "DELETE SELECT", locks: "completed ROWLOCK, idempotency_key ROWLOCK", params: "list", gives: change},
	"retain_dead_free":        {does: "DELETE SELECT", locks: "dead ROWLOCK, idempotency_key ROWLOCK", params: "list", gives: change},
	"retain_completed_delete": {does: "DELETE SELECT", locks: "completed ROWLOCK", params: "list", gives: change},
	"retain_dead_delete":      {does: "DELETE SELECT", locks: "dead ROWLOCK", params: "list", gives: change},
	"retain_history_delete":   {does: "DELETE SELECT", locks: "settlement ROWLOCK", params: "list", gives: change},
	"retain_completed_oldest": {does: "SELECT", locks: "completed NOLOCK INDEX(COMPLETED_FINISH)", params: "queue_id from", gives: rows, because: map[string]string{"hints": whereToBegin}},
	"retain_dead_oldest":      {does: "SELECT", locks: "dead NOLOCK INDEX(DEAD_FINISH)", params: "queue_id from", gives: rows, because: map[string]string{"hints": whereToBegin}},
	"retain_cancelled_oldest": {does: "SELECT", locks: "dead NOLOCK INDEX(DEAD_FINISH)", params: "queue_id from", gives: rows, because: map[string]string{"hints": whereToBegin}},
	"retain_history_oldest":   {does: "SELECT", locks: "settlement NOLOCK INDEX(SETTLEMENT_TIME)", params: "queue_id from", gives: rows, because: map[string]string{"hints": whereToBegin}},

	// Claim calls go when they are old and none of their leases runs.
	"maintain_calls": {does: "SELECT", locks: "claim_call READPAST READCOMMITTEDLOCK ROWLOCK INDEX(CLAIM_CALL_TIME)", params: "after_time after_queue_id until limit", gives: rows},
	"maintain_held": {
		does: "SELECT", locks: "message NOLOCK", params: "list", gives: rows,
		because: map[string]string{"hints": "a lease of such a call ends and never begins, so one that is seen too long keeps the call a while"},
	},
	"maintain_delete": {does: "DELETE SELECT", locks: "claim_call ROWLOCK", params: "list", gives: change},

	// The sweep: what is over is found without waiting, and judged again under its lock by
	// end_lock (C18, E7, S14).
	"sweep_last":  {does: "SELECT", locks: "message NOLOCK INDEX(MESSAGE_ID)", params: "after rows", gives: rows, because: map[string]string{"hints": pageBounds}},
	"sweep_page":  {does: "SELECT", locks: "message READPAST READCOMMITTEDLOCK ROWLOCK", params: "after last now", gives: rows},
	"sweep_named": {does: "SELECT", locks: "message READPAST READCOMMITTEDLOCK ROWLOCK", params: "list now", gives: rows},

	// Messages that come in.
	"message_insert": {
		does: "INSERT", locks: "message", params: "list payloads", gives: rows,
		because: map[string]string{
			"go":    "it is run by insert of this package, which gives the two",
			"alike": "MySQL has no list of bytes that big, so its rows are parameters of their own",
		},
	},

	// Limits: the row of claim_limit is the lock, so nothing else of them is locked.
	"limit_lock":   {does: "SELECT", locks: "claim_limit UPDLOCK ROWLOCK", params: "queue_id", gives: rows},
	"limit_add":    {does: "INSERT SELECT", locks: "claim_limit UPDLOCK HOLDLOCK ROWLOCK, claim_limit", params: "queue_id in_flight", gives: change},
	"limit_set":    {does: "UPDATE SELECT", locks: "claim_limit", params: "queue_id in_flight", gives: change},
	"limit_bucket": {does: "UPDATE SELECT", locks: "claim_limit", params: "queue_id rate full_ns", gives: change},
	"limit_filled": {does: "UPDATE SELECT", locks: "claim_limit", params: "queue_id", gives: change},
	"limit_leased": {
		does: "SELECT", locks: "message NOLOCK INDEX(MESSAGE_READY)", params: "queue_id", gives: rows,
		because: map[string]string{"hints": "leases that are not committed yet have to be seen; one too many is removed again"},
	},
	"limit_slots": {
		does: "SELECT", params: "queue_id", gives: rows,
		locks:   "claim_slot, message READPAST READCOMMITTEDLOCK ROWLOCK, message NOLOCK, message READCOMMITTEDLOCK ROWLOCK",
		because: map[string]string{"order": "TOP (1) of the one row of a primary key"},
	},
	"limit_over":     {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"limit_slot_add": {does: "INSERT SELECT", locks: "claim_slot", params: "queue_id list", gives: change},
	"limit_slot_set": {does: "UPDATE SELECT", locks: "claim_slot ROWLOCK", params: "queue_id list", gives: change},
	"limit_forget": {
		does: "DELETE SELECT", locks: "claim_slot", params: "queue_id", gives: change,
		because: map[string]string{"bounded": "as many as max_in_flight was, narrow rows that nobody else looks at under the lock of the limit; locks never escalate"},
	},

	// What an operator does. He looks for messages without waiting; who moves them looks again
	// under the lock. A message stays whose idempotency key somebody else has.
	"pick_page_completed": {does: "SELECT", locks: "completed NOLOCK", params: "after look", gives: rows, because: map[string]string{"hints": judgedAgain}},
	"pick_page_dead":      {does: "SELECT", locks: "dead NOLOCK INDEX(DEAD_QUEUE)", params: "queue_id after look", gives: rows, because: map[string]string{"hints": judgedAgain}},
	"pick_page_pending":   {does: "SELECT", locks: "message NOLOCK", params: "after look", gives: rows, because: map[string]string{"hints": judgedAgain}},
	"pick_completed":      {does: "SELECT", locks: "completed READPAST READCOMMITTEDLOCK ROWLOCK, queue NOLOCK", params: "queue_id list " + meant, gives: rows},
	"pick_dead": {
		does: "SELECT", locks: "ordering_key NOLOCK, dead READPAST READCOMMITTEDLOCK ROWLOCK, queue NOLOCK", params: "queue_id list " + meant, gives: rows,
		because: map[string]string{"hints": "whether a key waits behind it says only which keys are locked; without the lock it is left"},
	},
	"pick_pending": {does: "SELECT", locks: "ordering_key NOLOCK, message READPAST READCOMMITTEDLOCK ROWLOCK, ordering_key", params: "queue_id list " + meant, gives: rows},
	"redrive_lock": {does: "SELECT", locks: "dead UPDLOCK READPAST ROWLOCK", params: "queue_id list", gives: rows},
	"redrive_copy": {
		does: "SETIDENTITYINSERT INSERT SELECT SETIDENTITYINSERT", locks: "dead, queue NOLOCK, message", params: "list max_attempts now", gives: change,
		because: map[string]string{"no surprise": "a message comes back with the id that it had", "count": "the setting is taken back behind it"},
	},
	"dead_delete":            {does: "DELETE SELECT", locks: "dead ROWLOCK", params: "queue_id list", gives: change},
	"purge_completed_lock":   {does: "SELECT", locks: "completed UPDLOCK READPAST ROWLOCK", params: "queue_id list", gives: rows},
	"purge_dead_lock":        {does: "SELECT", locks: "dead UPDLOCK READPAST ROWLOCK", params: "queue_id list", gives: rows},
	"purge_pending_lock":     {does: "SELECT", locks: "ordering_key NOLOCK, message UPDLOCK READPAST ROWLOCK, ordering_key", params: "queue_id list " + meant, gives: rows},
	"purge_completed_delete": {does: "DELETE SELECT", locks: "completed ROWLOCK", params: "queue_id list", gives: change},
	"purge_pending_delete":   {does: "DELETE SELECT", locks: "message ROWLOCK", params: "queue_id list", gives: change},
	"purge_history":          {does: "DELETE SELECT", locks: "settlement ROWLOCK", params: "queue_id list", gives: change},
	"purge_keys_lock":        {does: "SELECT", locks: "idempotency_key UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"purge_keys_left": {
		does: "SELECT", locks: "idempotency_key NOLOCK", params: "list", gives: rows,
		because: map[string]string{"hints": "a key that somebody writes may name the message still, so the message stays"},
	},
	"purge_keys_delete": {does: "DELETE SELECT", locks: "idempotency_key ROWLOCK", params: "list", gives: change},
	"explain_message": {
		does: "SELECT", locks: "ordering_key NOLOCK, dead NOLOCK, message NOLOCK, queue NOLOCK, message NOLOCK", params: "id now queue_id", gives: rows,
		because: map[string]string{"hints": forPeople},
	},
	"explain_ahead": {
		does: "SELECT", params: "id now queue_id ready_time urgency", gives: rows,
		locks:   "message NOLOCK INDEX(MESSAGE_READY), message NOLOCK INDEX(MESSAGE_READY), message NOLOCK INDEX(MESSAGE_DELAYED)",
		because: map[string]string{"hints": forPeople, "order": "whichever: no more than so many are counted"},
	},
	"explain_limit": {
		does: "SELECT", locks: "claim_slot NOLOCK, message NOLOCK, claim_limit NOLOCK", params: "now queue_id", gives: rows,
		because: map[string]string{"hints": forPeople},
	},

	// Transactions of others (E12). What is not committed yet is passed over; rows and marks are
	// taken where no other server is at them.
	"own_incoming":        {does: "SELECT", locks: "incoming READPAST READCOMMITTEDLOCK ROWLOCK INDEX(INCOMING_ID)", params: "from look", gives: rows},
	"own_keyed":           {does: "SELECT", locks: "incoming READPAST READCOMMITTEDLOCK ROWLOCK INDEX(INCOMING_ID)", params: "from last", gives: rows},
	"own_incoming_first":  {does: "SELECT", locks: "incoming UPDLOCK ROWLOCK NOWAIT INDEX(INCOMING_ID)", params: "from", gives: rows},
	"own_marked_first":    {does: "SELECT", locks: "marked UPDLOCK ROWLOCK NOWAIT INDEX(MARKED_SEQ)", params: "from", gives: rows},
	"own_take":            {does: "SELECT", locks: "incoming UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"own_incoming_delete": {does: "DELETE SELECT", locks: "incoming ROWLOCK", params: "list", gives: change},
	"own_refuse":          {does: "UPDATE SELECT", locks: "incoming", params: "id why", gives: change},
	"own_reused":          {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list", gives: change},
	"own_reused_heads":    {does: "SELECT", locks: "message", params: "list", gives: rows},
	"own_marked":          {does: "SELECT", locks: "marked READPAST READCOMMITTEDLOCK ROWLOCK INDEX(MARKED_SEQ)", params: "from look", gives: rows},
	"own_marked_take":     {does: "SELECT", locks: "marked UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"own_marked_delete":   {does: "DELETE SELECT", locks: "marked ROWLOCK", params: "list", gives: change},
	"own_finish_lock":     {does: "SELECT", locks: "message UPDLOCK READPAST ROWLOCK", params: "list", gives: rows},
	"own_finish_there":    {does: "SELECT", locks: "message NOLOCK", params: "list", gives: rows},
	"own_finish_history":  {does: "INSERT SELECT", locks: "message, settlement", params: "list", gives: change},
	"own_finish_complete": {does: "INSERT SELECT", locks: "ordering_key NOLOCK, message, completed", params: "list", gives: change},
	"own_finish_dead":     {does: "INSERT SELECT", locks: "ordering_key NOLOCK, message, dead", params: "list", gives: change},
	"own_finish_return":   {does: "UPDATE SELECT", locks: "message ROWLOCK", params: "list now", gives: change},
}

const (
	// meant are the parameters by which lists, redrive and purge choose messages.
	meant = "states dead_reasons ordering_key reason_codes error_contains worker_id min_create_time max_create_time"

	// byVersions reads at SNAPSHOT where the database has it, so that a transaction of somebody
	// else that is open for long keeps nobody waiting.
	byVersions = "IF SETTRANSACTIONISOLATIONLEVEL SELECT SETTRANSACTIONISOLATIONLEVEL"

	judgedAgain  = "what is found is judged again, and locked before anything is done to it"
	forPeople    = "an answer for people, who ask again"
	lockedNext   = "what it finds is locked and looked at again before anything is deleted"
	whereToBegin = "a hint for the next call, which looks from the start once an hour"
	counts       = "counts are told with their time and may miss, or see, what is being committed right then"
	pageBounds   = "where a page ends is nobody's promise: ids never change, and a row more or less makes a page longer or shorter"
)
