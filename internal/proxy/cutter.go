package proxy

import (
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
	switch {
	case keyword(s.SQL) == "COMMIT":
		return true
	case s.InTransaction, begins(s.SQL):
		return false
	}
	var text strings.Builder
	for line := range strings.Lines(s.SQL) {
		code, _, _ := strings.Cut(line, "--")
		text.WriteString(strings.ToUpper(code) + "\n")
	}
	// A lock is no write.
	upper := strings.ReplaceAll(text.String(), "FOR UPDATE", "")
	return strings.Contains(upper, "INSERT INTO") || strings.Contains(upper, "UPDATE ") || strings.Contains(upper, "DELETE FROM")
}

// begins tells whether a transaction begins with a statement, or with the first of several in
// one text.
func begins(sql string) bool { return slices.Contains([]string{"BEGIN", "START"}, keyword(sql)) }

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
// cut at the given moment. A cutter that was armed before is replaced.
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

// protocol takes the messages of one connection apart. It never fails: what it does not
// understand it lets through.
type protocol interface {
	// next takes one whole message off the bytes that a client has sent and returns the
	// statement that it runs, if any; false where no whole message is there.
	next(pending []byte) (sql string, rest []byte, ok bool)
	// hear looks at what the database sends, whatever is cut.
	hear(answer []byte)
	// ended looks at the answer of a statement, piece by piece, and tells when it is whole:
	// cutting only then proves that the database is through with the statement.
	ended(answer []byte) bool
}

// tap reads along on one connection.
type tap struct {
	proxy *Proxy
	link  *link
	wire  protocol

	// Owned by the copier of requests.
	pending []byte
	begun   bool
	earlier []string

	mu      sync.Mutex
	cutting *Cutter // set while the answer is to be swallowed
}

func newTap(p *Proxy, l *link) *tap { return &tap{proxy: p, link: l, wire: p.protocol()} }

// request looks at what a client sends.
func (t *tap) request(b []byte) bool {
	t.pending = append(t.pending, b...)
	for {
		sql, rest, ok := t.wire.next(t.pending)
		if !ok {
			return true
		}
		t.pending = rest
		if sql == "" {
			continue
		}
		c := t.proxy.take(Statement{SQL: sql, InTransaction: t.begun, Earlier: t.earlier})
		switch keyword(sql) {
		case "BEGIN", "START":
			t.begun, t.earlier = true, nil
			if strings.Contains(sql, ";") {
				t.earlier = []string{sql} // a statement went with it
			}
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

// answer looks at what the database sends.
func (t *tap) answer(b []byte) bool {
	t.mu.Lock()
	c := t.cutting
	t.mu.Unlock()
	if c == nil {
		t.wire.hear(b)
		return true
	}
	if t.wire.ended(b) {
		t.strike(c)
	}
	return false
}

// strike cuts the connection and tells whoever waits for it.
func (t *tap) strike(c *Cutter) {
	t.link.cut()
	c.once.Do(func() { close(c.done) })
}
