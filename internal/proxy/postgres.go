package proxy

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Moment says when a [Cutter] cuts.
type Moment int

// The moments.
const (
	// BeforeRequest: the statement never reaches the database.
	BeforeRequest Moment = iota + 1
	// BeforeAnswer: the database has carried the statement out, committed where it
	// stands alone or is a COMMIT, and the client never hears of it.
	BeforeAnswer
)

// Statement is one that a client sent.
type Statement struct {
	SQL string
	// InTransaction: a BEGIN came before it on this connection, and no COMMIT or ROLLBACK.
	InTransaction bool
	// Earlier are the statements that came since that BEGIN.
	Earlier []string
}

// Holds tells whether a text stands in the statement, or in an earlier one of its transaction.
func (s Statement) Holds(text string) bool {
	holds := func(sql string) bool { return strings.Contains(sql, text) }
	return holds(s.SQL) || slices.ContainsFunc(s.Earlier, holds)
}

// Commits tells whether a transaction that changes data commits with this statement:
// it is a COMMIT, or it stands alone and writes.
func (s Statement) Commits() bool {
	if keyword(s.SQL) == "COMMIT" {
		return true
	}
	upper := strings.ToUpper(s.SQL)
	return !s.InTransaction && (strings.Contains(upper, "INSERT INTO") || strings.Contains(upper, "UPDATE ") || strings.Contains(upper, "DELETE FROM"))
}

// keyword is the first word of a statement, comments left out, in upper case.
func keyword(sql string) string {
	for {
		sql = strings.TrimSpace(sql)
		if !strings.HasPrefix(sql, "--") {
			break
		}
		_, sql, _ = strings.Cut(sql, "\n")
	}
	if i := strings.IndexFunc(sql, func(r rune) bool { return !unicode.IsLetter(r) }); i >= 0 {
		sql = sql[:i]
	}
	return strings.ToUpper(sql)
}

// Cutter cuts one connection at one statement. It is armed by [Proxy.CutAt] and
// strikes once.
type Cutter struct {
	at    Moment
	match func(Statement) bool
	once  sync.Once
	done  chan struct{}
	sql   string
}

// Done is closed when the cut has been made.
func (c *Cutter) Done() <-chan struct{} { return c.done }

// Struck tells whether the cut has been made.
func (c *Cutter) Struck() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// SQL is the statement at which it struck; valid after Done.
func (c *Cutter) SQL() string { return c.sql }

// CutAt arms a cutter: the next statement, on any connection, that match accepts is
// cut at the given moment. It reads the protocol of PostgreSQL, where the text of a
// prepared statement was sent with Parse over the same connection. A cutter
// that was armed before is replaced.
func (p *Proxy) CutAt(at Moment, match func(Statement) bool) *Cutter {
	c := &Cutter{at: at, match: match, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutter = c
	return c
}

// Disarm takes an armed cutter away.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutter = nil
}

// take returns the armed cutter if it accepts the statement, and disarms it.
func (p *Proxy) take(st Statement) *Cutter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.cutter; c != nil && c.match(st) {
		p.cutter = nil
		c.sql = st.SQL
		return c
	}
	return nil
}

// tap reads along on one connection. It never fails: what it does not understand
// it lets through.
type tap struct {
	proxy *Proxy
	link  *link

	// Owned by the copier of requests.
	pending  []byte
	started  bool
	begun    bool
	earlier  []string
	prepared map[string]string

	mu      sync.Mutex
	cutting *Cutter // set while the answer is to be swallowed
	tail    []byte
}

func newTap(p *Proxy, l *link) *tap {
	return &tap{proxy: p, link: l, prepared: map[string]string{}}
}

// Codes that open a connection in place of a protocol version: the packet is
// followed by another start, or by nothing.
const (
	codeCancel = 80877102
	codeSSL    = 80877103
	codeGSS    = 80877104
)

// request looks at what a client sends.
func (t *tap) request(b []byte) bool {
	t.pending = append(t.pending, b...)
	for {
		sql, ok := t.next()
		if !ok {
			return true
		}
		if sql == "" {
			continue
		}
		c := t.proxy.take(Statement{SQL: sql, InTransaction: t.begun, Earlier: t.earlier})
		switch keyword(sql) {
		case "BEGIN", "START":
			t.begun, t.earlier = true, nil
		case "COMMIT", "ROLLBACK", "END", "ABORT":
			t.begun, t.earlier = false, nil
		default:
			if t.begun {
				t.earlier = append(t.earlier, sql)
			}
		}
		if c == nil {
			continue
		}
		if c.at == BeforeRequest {
			t.strike(c)
			return false
		}
		t.mu.Lock()
		t.cutting = c
		t.mu.Unlock()
	}
}

// next takes one whole message off the pending bytes and returns the statement that
// it runs, if any; false where no whole message is there.
func (t *tap) next() (string, bool) {
	if !t.started {
		if len(t.pending) < 8 {
			return "", false
		}
		size := int(binary.BigEndian.Uint32(t.pending))
		if size < 8 || len(t.pending) < size {
			return "", false
		}
		code := binary.BigEndian.Uint32(t.pending[4:])
		t.started = code != codeSSL && code != codeGSS && code != codeCancel
		t.pending = t.pending[size:]
		return "", true
	}
	if len(t.pending) < 5 {
		return "", false
	}
	size := 1 + int(binary.BigEndian.Uint32(t.pending[1:]))
	if size < 5 || len(t.pending) < size {
		return "", false
	}
	kind, body := t.pending[0], t.pending[5:size]
	sql := ""
	switch kind {
	case 'Q':
		sql, _ = cString(body)
	case 'P':
		name, rest := cString(body)
		text, _ := cString(rest)
		t.prepared[name] = text
	case 'B':
		_, rest := cString(body)
		name, _ := cString(rest)
		sql = t.prepared[name]
	}
	t.pending = t.pending[size:]
	return sql, true
}

// cString splits a text that ends with a zero byte from what follows.
func cString(b []byte) (text string, rest []byte) {
	head, rest, _ := bytes.Cut(b, []byte{0})
	return string(head), rest
}

// endOfAnswer begins the message ReadyForQuery, which ends every answer; one byte with
// the state of the transaction follows. Cutting only after it proves that the
// database is through with the statement.
const endOfAnswer = "Z\x00\x00\x00\x05"

// answer looks at what the database sends.
func (t *tap) answer(b []byte) bool {
	t.mu.Lock()
	c := t.cutting
	t.mu.Unlock()
	if c == nil {
		return true
	}
	t.tail = append(t.tail, b...)
	if keep := len(endOfAnswer) + 1; len(t.tail) > keep {
		t.tail = t.tail[len(t.tail)-keep:]
	}
	if bytes.HasPrefix(t.tail, []byte(endOfAnswer)) {
		t.strike(c)
	}
	return false
}

// strike cuts the connection and tells whoever waits for it.
func (t *tap) strike(c *Cutter) {
	t.link.cut()
	c.once.Do(func() { close(c.done) })
}
