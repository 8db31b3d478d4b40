package blackbox

import (
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// What a worker did with a delivery, as far as it was told.
const (
	didNothing = iota // vanished, or was told that the claim is lost
	didComplete
	didRetry
	didRelease
)

// delivered is one claim that reached a worker.
type delivered struct {
	key      string
	attempt  int32
	did      int
	complete time.Time
}

// ledger is what producers and workers were told, kept apart from the database.
type ledger struct {
	mu       sync.Mutex
	ids      map[string]string     // idempotency key -> message id
	tokens   map[string]*delivered // token, in hex
	finished map[string]string     // idempotency key -> the token that completed it
	problems []string
	down     []outage
}

// outage is a time in which no server ran, from a kill until messages were finished again.
type outage struct{ from, to time.Time }

func (l *ledger) downSince(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = append(l.down, outage{from: at})
}

func (l *ledger) upAgain(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.down); n > 0 && l.down[n-1].to.IsZero() {
		l.down[n-1].to = at
	}
}

// served is how much of the time between two moments a server ran. The lock is held.
func (l *ledger) served(from, to time.Time) time.Duration {
	d := to.Sub(from)
	for _, o := range l.down {
		start, end := o.from, o.to
		if start.Before(from) {
			start = from
		}
		if end.After(to) {
			end = to
		}
		if end.After(start) {
			d -= end.Sub(start)
		}
	}
	return d
}

func newLedger() *ledger {
	return &ledger{ids: map[string]string{}, tokens: map[string]*delivered{}, finished: map[string]string{}}
}

// problem notes something that must never happen.
func (l *ledger) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

func (l *ledger) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.problems) > 0
}

// open counts the messages that are enqueued and not known to be completed.
func (l *ledger) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ids) - len(l.finished)
}

// progress counts the messages that are known to be completed.
func (l *ledger) progress() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.finished)
}

func (l *ledger) enqueued(key, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.ids[key]; ok && before != id {
		l.problems = append(l.problems, fmt.Sprintf("E1: key %s names %s and %s", key, before, id))
	}
	l.ids[key] = id
}

// claimed notes a delivery. A token that was delivered before was handed out twice.
func (l *ledger) claimed(m *queueboxv1.ClaimedMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	token, key := rawToken(m.GetClaimToken()), m.GetMessage().GetIdempotencyKey()
	if _, ok := l.tokens[token]; ok {
		l.problems = append(l.problems, fmt.Sprintf("C4: a token of %s was delivered twice", key))
	}
	if id, ok := l.ids[key]; ok && id != m.GetMessage().GetMessageId() {
		l.problems = append(l.problems, fmt.Sprintf("%s is delivered as another message", key))
	}
	if string(m.GetMessage().GetPayload()) != "payload of "+key {
		l.problems = append(l.problems, fmt.Sprintf("E8: %s has the payload %q", key, m.GetMessage().GetPayload()))
	}
	l.tokens[token] = &delivered{key: key, attempt: m.GetMessage().GetAttempt()}
}

// settled notes what a worker was told about its settlement.
func (l *ledger) settled(m *queueboxv1.ClaimedMessage, did int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	token := rawToken(m.GetClaimToken())
	d := l.tokens[token]
	d.did = did
	if did != didComplete {
		return
	}
	if by, ok := l.finished[d.key]; ok && by != token {
		l.problems = append(l.problems, fmt.Sprintf("S7: %s was completed by two claims", d.key))
	}
	if !d.complete.IsZero() && !d.complete.Equal(at) {
		l.problems = append(l.problems, fmt.Sprintf("S5: %s was completed at %v and at %v", d.key, d.complete, at))
	}
	d.complete = at
	l.finished[d.key] = token
}

// tokenAlphabet is how tokens are written on the wire; 16 bytes and a check sum follow
// the letter t.
var tokenAlphabet = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// rawToken is the token as the database holds it.
func rawToken(wire string) string {
	raw, err := tokenAlphabet.DecodeString(wire[1:])
	if err != nil || len(raw) < 16 {
		return "malformed " + wire
	}
	return hex.EncodeToString(raw[:16])
}

// change is one update of a live message, as a trigger in the database saw it.
type change struct {
	at, leaseEnd        int64 // milliseconds since 1970
	state               int
	token, before       string
	attempt, oldAttempt int32
}

// watch makes the database itself write down every update of a live message, in the
// transaction that makes it: an observer that no crash can fool.
func watch(t *testing.T, db *Database) {
	t.Helper()
	if !db.watched() {
		t.Logf("%s: nobody writes the changes down, so attempts and order are judged by what workers saw alone", db.Name)
		return
	}
	conn := db.Open(t)
	for _, s := range observers[db.Name] {
		_, err := conn.ExecContext(t.Context(), s)
		require.NoError(t, err)
	}
}

// observers are the statements that make the triggers of [watch]. SQL Server has none: a
// statement with OUTPUT is refused on a table with a trigger (error 334).
var observers = map[string][]string{
	EngineSQLite: {
		`CREATE TABLE crash_log (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER, name TEXT, state INTEGER, token TEXT, old_token TEXT, attempt INTEGER, old_attempt INTEGER, lease_ms INTEGER)`,
		`CREATE TRIGGER crash_log AFTER UPDATE ON message BEGIN
			INSERT INTO crash_log (at_ms, name, state, token, old_token, attempt, old_attempt, lease_ms)
			VALUES (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), NEW.idempotency_key, NEW.state, lower(hex(NEW.token)), lower(hex(OLD.token)), NEW.attempt, OLD.attempt, NEW.lease_end);
		END`,
	},
	EnginePostgres: {
		`CREATE TABLE crash_log (seq bigserial PRIMARY KEY, at_ms bigint, name text, state int, token text, old_token text, attempt int, old_attempt int, lease_ms bigint)`,
		`CREATE FUNCTION crash_log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO public.crash_log (at_ms, name, state, token, old_token, attempt, old_attempt, lease_ms)
			VALUES (extract(epoch FROM clock_timestamp()) * 1000, NEW.idempotency_key, NEW.state, replace(NEW.token::text, '-', ''),
				replace(OLD.token::text, '-', ''), NEW.attempt, OLD.attempt, extract(epoch FROM NEW.lease_end) * 1000);
			RETURN NULL; END $$`,
		`CREATE TRIGGER crash_log AFTER UPDATE ON queuebox.message FOR EACH ROW EXECUTE FUNCTION crash_log()`,
	},
	EngineMySQL: {
		`CREATE TABLE crash_log (seq BIGINT AUTO_INCREMENT PRIMARY KEY, at_ms BIGINT, name VARCHAR(255), state INT, token VARCHAR(40), old_token VARCHAR(40), attempt INT, old_attempt INT, lease_ms BIGINT)`,
		`CREATE TRIGGER crash_log AFTER UPDATE ON message FOR EACH ROW
			INSERT INTO crash_log (at_ms, name, state, token, old_token, attempt, old_attempt, lease_ms)
			VALUES (timestampdiff(MICROSECOND, '1970-01-01', sysdate(6)) DIV 1000, NEW.idempotency_key, NEW.state, lower(hex(NEW.token)), lower(hex(OLD.token)),
				NEW.attempt, OLD.attempt, timestampdiff(MICROSECOND, '1970-01-01', NEW.lease_end) DIV 1000)`,
	},
}

// watched tells whether the database writes its changes down.
func (e *Engine) watched() bool { return observers[e.Name] != nil }

// history reads what watch wrote down, by message.
func history(t *testing.T, db *Database) map[string][]change {
	t.Helper()
	rows, err := db.Open(t).QueryContext(t.Context(), `SELECT name, at_ms, state, coalesce(token, ''), coalesce(old_token, ''), attempt, old_attempt, coalesce(lease_ms, 0) FROM crash_log ORDER BY seq`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	all := map[string][]change{}
	for rows.Next() {
		var (
			name string
			c    change
		)
		require.NoError(t, rows.Scan(&name, &c.at, &c.state, &c.token, &c.before, &c.attempt, &c.oldAttempt, &c.leaseEnd))
		all[name] = append(all[name], c)
	}
	require.NoError(t, rows.Err())
	return all
}

// finishedRows reads the completed messages: key -> attempt and token.
func finishedRows(t *testing.T, db *Database) map[string][]string {
	t.Helper()
	query := db.Text(t, map[string]string{
		EngineSQLite:   `SELECT idempotency_key, attempt, lower(hex(token)) FROM completed`,
		EnginePostgres: `SELECT idempotency_key, attempt, replace(token::text, '-', '') FROM queuebox.completed`,
		EngineMySQL:    `SELECT idempotency_key, attempt, lower(hex(token)) FROM completed`,
		EngineMSSQL:    `SELECT CAST(idempotency_key AS varchar(255)), attempt, lower(replace(CONVERT(char(36), token), '-', '')) FROM queuebox.completed`,
	})
	rows, err := db.Open(t).QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	all := map[string][]string{}
	for rows.Next() {
		var (
			key, token string
			attempt    int32
		)
		require.NoError(t, rows.Scan(&key, &attempt, &token))
		all[key] = append(all[key], fmt.Sprintf("%d %s", attempt, token))
	}
	require.NoError(t, rows.Err())
	return all
}

// check compares the ledger with the database once everything is over.
func (l *ledger) check(t *testing.T, db *Database, worstWait time.Duration) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range l.problems {
		if i == 20 {
			t.Errorf("… and %d more", len(l.problems)-i)
			break
		}
		t.Error(p)
	}
	if rows := Rows(t, db.Open(t), "SELECT * FROM "+db.Table("message")); len(rows) > 0 {
		t.Errorf("%d messages are still live, the first: %s", len(rows), rows[0])
	}
	done := finishedRows(t, db)
	if len(done) != len(l.ids) {
		t.Errorf("%d messages were acknowledged and %d are completed", len(l.ids), len(done))
	}
	if !db.watched() {
		return
	}
	log := history(t, db)
	var claims, refunds, unseen, expired int
	var longest time.Duration
	for key := range l.ids {
		var (
			attempt  int32
			mine     = map[string]int32{}
			lastOpen *change // the last claim or renewal, while its lease counts
		)
		for i, c := range log[key] {
			if c.oldAttempt != attempt {
				t.Errorf("%s: change %d starts from attempt %d, the one before left %d", key, i, c.oldAttempt, attempt)
			}
			switch {
			case c.state == 1 && c.token != c.before: // a claim
				claims++
				if c.attempt != c.oldAttempt+1 {
					t.Errorf("%s: a claim took attempt %d to %d", key, c.oldAttempt, c.attempt)
				}
				if _, again := mine[c.token]; again {
					t.Errorf("C4 %s: a token was drawn twice", key)
				}
				mine[c.token] = c.attempt
				if _, ok := l.tokens[c.token]; !ok {
					unseen++
				}
				if lastOpen != nil {
					expired++
					wait := time.Duration(c.at-lastOpen.leaseEnd) * time.Millisecond
					longest = max(longest, l.served(time.UnixMilli(lastOpen.leaseEnd), time.UnixMilli(c.at)))
					if wait < -5*time.Millisecond {
						t.Errorf("C3 %s was claimed %v before its lease ended", key, -wait)
					}
				}
				lastOpen = &log[key][i]
			case c.attempt == c.oldAttempt-1 && c.state == 0: // a release, or given back
				refunds++
				lastOpen = nil
			case c.attempt != c.oldAttempt:
				t.Errorf("%s: attempt went from %d to %d in state %d", key, c.oldAttempt, c.attempt, c.state)
			case c.state == 1: // a renewal
				lastOpen = &log[key][i]
			case c.state == 0: // a retry
				lastOpen = nil
			}
			attempt = c.attempt
		}
		want := fmt.Sprintf("%d %s", attempt, l.finished[key])
		if got := done[key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: completed rows %q, want one: %q", key, got, want)
		}
		for token, n := range mine {
			if d, ok := l.tokens[token]; ok && (d.key != key || d.attempt != n) {
				t.Errorf("%s: the worker was told attempt %d of %s, the database says %d", key, d.attempt, d.key, n)
			}
		}
	}
	for token, d := range l.tokens {
		if !claimedInLog(log[d.key], token) {
			t.Errorf("%s: a worker got a token that the database never stored", d.key)
		}
	}
	t.Logf("%d messages, %d claims, %d of them reached nobody, %d leases ran out, %d attempts refunded; the longest wait after a lease: %v",
		len(l.ids), claims, unseen, expired, refunds, longest)
	if longest > worstWait {
		t.Errorf("a message was stuck for %v after its lease ended", longest)
	}
}

func claimedInLog(log []change, token string) bool {
	for _, c := range log {
		if c.token == token {
			return true
		}
	}
	return false
}
