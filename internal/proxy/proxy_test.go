package proxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/proxy"
)

// echo answers every piece it gets with the same piece.
func echo(t *testing.T) string {
	t.Helper()
	return listen(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

// listen serves connections until the test ends.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				serve(c)
			}()
		}
	}()
	return lis.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask writes a text and reads as much back.
func ask(t *testing.T, c net.Conn, text string) error {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	if _, err := c.Write([]byte(text)); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	require.Equal(t, text, string(got))
	return nil
}

func TestProxyForwardsAndCuts(t *testing.T) {
	p := proxy.New(t, echo(t))
	a, b := dial(t, p.Addr()), dial(t, p.Addr())
	require.NoError(t, ask(t, a, "one"))
	require.NoError(t, ask(t, b, "two"))
	require.Equal(t, 2, p.Accepted())

	p.Cut()
	require.Error(t, ask(t, a, "three"))
	require.Error(t, ask(t, b, "three"))
	require.NoError(t, ask(t, dial(t, p.Addr()), "four"), "a cut must not keep new connections out")
	require.Eventually(t, func() bool { return p.Open() == 1 }, 5*time.Second, time.Millisecond)
}

func TestProxyRefuses(t *testing.T) {
	p := proxy.New(t, echo(t))
	old := dial(t, p.Addr())
	require.NoError(t, ask(t, old, "one"))
	p.Refuse(true)
	// The reset may come so early that the connection is never made.
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr()); err == nil {
		require.Error(t, ask(t, c, "two"))
		_ = c.Close()
	}
	require.NoError(t, ask(t, old, "three"))
	p.Refuse(false)
	require.NoError(t, ask(t, dial(t, p.Addr()), "four"))
}

func TestProxyBlackHoleHoldsBackAndLetsGo(t *testing.T) {
	p := proxy.New(t, echo(t))
	c := dial(t, p.Addr())
	require.NoError(t, ask(t, c, "one"))
	p.BlackHole(true)
	_, err := c.Write([]byte("two"))
	require.NoError(t, err, "a half-open connection still takes writes")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	var got [3]byte
	_, err = c.Read(got[:])
	var timeout net.Error
	require.True(t, errors.As(err, &timeout) && timeout.Timeout(), "got %v", err)
	p.BlackHole(false)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = io.ReadFull(c, got[:])
	require.NoError(t, err)
	require.Equal(t, "two", string(got[:]))
}

func TestProxyURL(t *testing.T) {
	p := proxy.New(t, echo(t))
	got, err := p.URL("postgres://u:secret@db.example:5432/x?sslmode=disable")
	require.NoError(t, err)
	require.Equal(t, "postgres://u:secret@"+p.Addr()+"/x?sslmode=disable", got)
	_, err = p.URL("postgres://u:secret@[bad")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

// message is one message of the PostgreSQL protocol.
func message(kind byte, body string) []byte {
	b := []byte{kind}
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+4))
	return append(b, body...)
}

// startup is the message that opens a connection.
func startup() []byte {
	body := binary.BigEndian.AppendUint32(nil, 3<<16)
	body = append(body, "user\x00x\x00\x00"...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4)), body...)
}

// database answers every message with ReadyForQuery and passes what it got on.
func database(t *testing.T, got chan<- string) string {
	t.Helper()
	return listen(t, func(c net.Conn) {
		var head [5]byte
		if _, err := io.ReadFull(c, head[:4]); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[:4])-4))
		for {
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			var body bytes.Buffer
			if _, err := io.CopyN(&body, c, int64(binary.BigEndian.Uint32(head[1:])-4)); err != nil {
				return
			}
			got <- string(head[:1]) + body.String()
			_, _ = c.Write(message('Z', "I"))
		}
	})
}

func TestCutterCutsBetweenStatementAndAnswer(t *testing.T) {
	isCommit := func(s proxy.Statement) bool { return strings.EqualFold(s.SQL, "commit") }
	for name, tc := range map[string]struct {
		at      proxy.Moment
		send    [][]byte
		reaches string
	}{
		"a simple query, before its answer":       {proxy.BeforeAnswer, [][]byte{message('Q', "commit\x00")}, "Qcommit\x00"},
		"a prepared statement, before its answer": {proxy.BeforeAnswer, [][]byte{message('P', "s1\x00COMMIT\x00\x00\x00"), message('B', "\x00s1\x00\x00\x00")}, "B\x00s1\x00\x00\x00"},
		"a simple query, before the request":      {proxy.BeforeRequest, [][]byte{message('Q', "commit\x00")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 10)
			p := proxy.New(t, database(t, got))
			c := dial(t, p.Addr())
			_, err := c.Write(startup())
			require.NoError(t, err)
			require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
			var answer [6]byte

			_, err = c.Write(message('Q', "select 1\x00"))
			require.NoError(t, err)
			_, err = io.ReadFull(c, answer[:])
			require.NoError(t, err, "a statement that does not match passes")
			require.Equal(t, "Qselect 1\x00", <-got)

			cut := p.CutAt(tc.at, isCommit)
			for i, m := range tc.send {
				_, err = c.Write(m)
				require.NoError(t, err)
				if i < len(tc.send)-1 {
					_, err = io.ReadFull(c, answer[:])
					require.NoError(t, err)
					<-got
				}
			}
			_, err = io.ReadFull(c, answer[:])
			require.Error(t, err, "the answer must not arrive")
			<-cut.Done()
			require.Equal(t, "COMMIT", strings.ToUpper(cut.SQL()))
			if tc.reaches != "" {
				require.Equal(t, tc.reaches, <-got, "the database has carried it out")
			} else {
				require.Empty(t, got, "the database never got it")
			}

			c = dial(t, p.Addr())
			_, err = c.Write(append(startup(), message('Q', "commit\x00")...))
			require.NoError(t, err)
			require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
			_, err = io.ReadFull(c, answer[:])
			require.NoError(t, err, "a cutter strikes once")
		})
	}
}

func TestStatementHolds(t *testing.T) {
	st := proxy.Statement{SQL: "COMMIT", InTransaction: true, Earlier: []string{"SELECT 1", "INSERT INTO t VALUES (1)"}}
	require.True(t, st.Holds("INSERT INTO t"))
	require.True(t, st.Holds("COMMIT"))
	require.False(t, st.Holds("INSERT INTO u"))
}

func TestStatementCommits(t *testing.T) {
	for _, tc := range []struct {
		statement proxy.Statement
		want      bool
	}{
		{proxy.Statement{SQL: "commit", InTransaction: true}, true},
		{proxy.Statement{SQL: "COMMIT;", InTransaction: true}, true},
		{proxy.Statement{SQL: "-- why\n\nWITH x AS (SELECT 1) UPDATE t SET a = 1"}, true},
		{proxy.Statement{SQL: "INSERT INTO t VALUES (1)"}, true},
		{proxy.Statement{SQL: "INSERT INTO t VALUES (1)", InTransaction: true}, false},
		{proxy.Statement{SQL: "-- commit\nSELECT 1"}, false},
		{proxy.Statement{SQL: "-- UPDATE t\nSELECT a FROM t FOR UPDATE SKIP LOCKED"}, false},
		{proxy.Statement{SQL: "BEGIN"}, false},
		{proxy.Statement{SQL: "START TRANSACTION READ WRITE;\nINSERT INTO t VALUES (1)"}, false},
	} {
		require.Equal(t, tc.want, tc.statement.Commits(), "%v", tc.statement)
	}
}

// mysqlPacket is one packet of the protocol of MySQL.
func mysqlPacket(count byte, body string) []byte {
	return append([]byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), count}, body...)
}

// mysqlDatabase answers every packet with one that begins with zero and a number, as a
// prepared statement is answered, and passes what it got on.
func mysqlDatabase(t *testing.T, got chan<- string) string {
	t.Helper()
	return listen(t, func(c net.Conn) {
		for {
			var head [4]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			body := make([]byte, int(head[0])+int(head[1])<<8)
			if _, err := io.ReadFull(c, body); err != nil {
				return
			}
			got <- string(body)
			// In two pieces: a packet need not come whole.
			answer := mysqlPacket(head[3]+1, "\x00\x07\x00\x00\x00rest")
			_, _ = c.Write(answer[:6])
			_, _ = c.Write(answer[6:])
		}
	})
}

func TestCutterReadsMySQL(t *testing.T) {
	isCommit := func(s proxy.Statement) bool {
		return strings.EqualFold(s.SQL, "commit") && s.InTransaction && s.Holds("INSERT")
	}
	for name, tc := range map[string]struct {
		at      proxy.Moment
		send    []string
		reaches string
	}{
		"a query, before its answer":              {proxy.BeforeAnswer, []string{"\x03START TRANSACTION", "\x03INSERT", "\x03COMMIT"}, "\x03COMMIT"},
		"a query, before the request":             {proxy.BeforeRequest, []string{"\x03START TRANSACTION", "\x03INSERT", "\x03COMMIT"}, ""},
		"a prepared statement, before its answer": {proxy.BeforeAnswer, []string{"\x03BEGIN", "\x03INSERT", "\x16commit", "\x17\x07\x00\x00\x00"}, "\x17\x07\x00\x00\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 10)
			p, through := proxy.Before(t, "mysql://u:secret@"+mysqlDatabase(t, got)+"/x")
			require.Equal(t, "mysql://u:secret@"+p.Addr()+"/x", through)
			c := dial(t, p.Addr())
			require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
			say := func(count byte, body string) error {
				_, err := c.Write(mysqlPacket(count, body))
				require.NoError(t, err)
				_, err = io.ReadFull(c, make([]byte, 13))
				return err
			}
			cut := p.CutAt(tc.at, isCommit)
			require.NoError(t, say(1, "\x03COMMIT"), "a packet of the login is no statement")
			require.NoError(t, say(0, "\x03COMMIT"), "no transaction")
			for _, body := range tc.send[:len(tc.send)-1] {
				require.NoError(t, say(0, body))
			}
			require.False(t, cut.Struck())
			for range len(tc.send) + 1 {
				<-got
			}
			require.Error(t, say(0, tc.send[len(tc.send)-1]), "the answer must not arrive")
			<-cut.Done()
			if tc.reaches != "" {
				require.Equal(t, tc.reaches, <-got, "the database has carried it out")
			} else {
				require.Empty(t, got, "the database never got it")
			}
		})
	}
}
