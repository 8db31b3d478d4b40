package mssql

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	mssqldb "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/mssql/internal/faketds"
	"github.com/queuebox/queuebox/storage/rowlock"
)

// connect gives a connection to a fake as the store has them.
func connect(t *testing.T, answer func(r faketds.Request) faketds.Answer) (*sql.DB, *sql.Conn, *faketds.Server) {
	t.Helper()
	s := faketds.Start(t, answer)
	target, err := parseURL(s.URL())
	require.NoError(t, err)
	db := target.pool("")
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return db, conn, s
}

// run runs a statement as the store does.
func run(ctx context.Context, q rowlock.Querier, text string, args ...rowlock.Arg) error {
	query, bind, err := compile(text)
	if err != nil {
		return err
	}
	found, err := q.QueryContext(ctx, query, bind(args)...)
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		continue
	}
	return found.Err()
}

func kinds(requests []faketds.Request) (out []faketds.Kind) {
	for _, r := range requests {
		out = append(out, r.Kind)
	}
	return out
}

// TestD1_TheLevelAndTheSettingsHold: the level is asked for by each begin, and the settings
// stand in each statement, so that they hold after the pool has reset a session too.
func TestD1_TheLevelAndTheSettingsHold(t *testing.T) {
	db, conn, s := connect(t, nil)
	for n := range 3 {
		s.Forget()
		tx, err := begin(t.Context(), conn)
		require.NoError(t, err)
		require.NoError(t, run(t.Context(), tx, "UPDATE queuebox.t SET a = @a", rowlock.Arg{Name: "a", Value: int32(7)}))
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, tx.Rollback(t.Context()), "after the commit it does nothing")
		sent := s.Requests()
		require.Equal(t, []faketds.Kind{faketds.Begin, faketds.RPC, faketds.Commit}, kinds(sent))
		require.Equal(t, byte(2), sent[0].Isolation, "READ COMMITTED")
		require.True(t, sent[0].Reset, "the driver resets each session that the pool hands out, with its first request")
		require.Equal(t, settings+"UPDATE queuebox.t SET a = @a", sent[1].Text)
		require.Equal(t, "@a int", sent[1].Declared)
		require.Equal(t, []faketds.Param{{Name: "a", Type: "int", Value: int64(7)}}, sent[1].Params)
		require.False(t, sent[1].Reset)
		require.NotZero(t, sent[1].Transaction)
		require.Equal(t, sent[1].Transaction, sent[2].Transaction)
		require.Equal(t, 1, sent[0].Conn)
		if n < 2 {
			require.NoError(t, conn.Close())
			conn, err = db.Conn(t.Context())
			require.NoError(t, err)
		}
	}
	require.Contains(t, settings, "XACT_ABORT ON")
	require.Contains(t, settings, "SET LOCK_TIMEOUT 2000")
	require.NoError(t, conn.Close())
}

// TestWire_Types: what stands on the wire for each kind of value, and that a NULL and every
// length are declared alike.
func TestWire_Types(t *testing.T) {
	_, conn, s := connect(t, nil)
	v := values{}
	token := [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	long := strings.Repeat("x", 9000)
	for _, c := range []struct {
		value any
		want  faketds.Param
		decl  string
	}{
		{v.Time(time.Date(2, 1, 1, 0, 0, 1, 2000, time.UTC)), faketds.Param{Type: "datetime2(7)", Value: []byte{0x94, 0x96, 0x98, 0, 0, 0x6d, 1, 0}}, "datetime2(6)"},
		{v.Time(time.Time{}), faketds.Param{Type: "datetime2(7)"}, "datetime2(6)"},
		{v.Token(token), faketds.Param{Type: "uniqueidentifier", Value: []byte{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15}}, "uniqueidentifier"},
		{v.Token([16]byte{}), faketds.Param{Type: "nvarchar(4000)"}, "uniqueidentifier"},
		{v.Bytes([]byte("abc")), faketds.Param{Type: "varbinary(3)", Value: []byte("abc")}, "varbinary(max)"},
		{v.Bytes([]byte(long)), faketds.Param{Type: "varbinary(max)", Value: []byte(long)}, "varbinary(max)"},
		{v.Bytes([]byte{}), faketds.Param{Type: "varbinary(max)", Value: []byte{}}, "varbinary(max)"},
		{v.Bytes(nil), faketds.Param{Type: "varbinary(max)"}, "varbinary(max)"},
		{v.Text("äö"), faketds.Param{Type: "nvarchar(2)", Value: "äö"}, "nvarchar(2000)"},
		{v.Text(""), faketds.Param{Type: "nvarchar(4000)"}, "nvarchar(2000)"},
		{"", faketds.Param{Type: "nvarchar(max)", Value: ""}, "nvarchar(2000)"},
		{v.Name("ä "), faketds.Param{Type: "varbinary(3)", Value: []byte{0xc3, 0xa4, 0x20}}, "varbinary(255)"},
		{v.Name(""), faketds.Param{Type: "varbinary(max)"}, "varbinary(255)"},
		{v.List([]byte(`[[1,"𝄞"]]`)), faketds.Param{Type: "nvarchar(max)", Value: `[[1,"𝄞"]]`}, "nvarchar(max)"},
		{v.List(nil), faketds.Param{Type: "nvarchar(4000)"}, "nvarchar(max)"},
		{int64(-1), faketds.Param{Type: "bigint", Value: int64(-1)}, "bigint"},
		{sql.NullInt64{Int64: 5, Valid: true}, faketds.Param{Type: "bigint", Value: int64(5)}, "bigint"},
		{sql.NullInt64{}, faketds.Param{Type: "bigint"}, "bigint"},
		{int32(-1), faketds.Param{Type: "int", Value: int64(-1)}, "int"},
		{sql.NullInt32{}, faketds.Param{Type: "int"}, "int"},
		{int16(-2), faketds.Param{Type: "smallint", Value: int64(-2)}, "smallint"},
		{int8(-3), faketds.Param{Type: "smallint", Value: int64(-3)}, "smallint"},
		{uint8(4), faketds.Param{Type: "tinyint", Value: int64(4)}, "tinyint"},
		{true, faketds.Param{Type: "bit", Value: true}, "bit"},
		{0.0, faketds.Param{Type: "float", Value: make([]byte, 8)}, "float"},
	} {
		s.Forget()
		require.NoError(t, run(t.Context(), conn, "SELECT @p", rowlock.Arg{Name: "p", Value: c.value}))
		r := s.Requests()[0]
		require.Equal(t, "@p "+c.decl, r.Declared)
		c.want.Name = "p"
		require.Equal(t, []faketds.Param{c.want}, r.Params)
		// What came behind it was read too: the stream is in step.
		require.NoError(t, conn.PingContext(t.Context()))
	}
}

func TestWire_AnArgumentThatIsMissingIsNeverSent(t *testing.T) {
	_, conn, s := connect(t, nil)
	require.ErrorContains(t, run(t.Context(), conn, "SELECT @p"), "@p has no argument")
	require.Empty(t, s.Requests())
	require.NoError(t, conn.PingContext(t.Context()))
}

// The first three groups of a uniqueidentifier are turned on the wire, once each way.
func TestWire_TokensComeBack(t *testing.T) {
	wire := faketds.GUID{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15}
	_, conn, s := connect(t, func(faketds.Request) faketds.Answer { return rows([]string{"token"}, []any{wire}, []any{nil}) })
	query, bind, err := compile("SELECT @token")
	require.NoError(t, err)
	token := [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	found, err := conn.QueryContext(t.Context(), query, bind([]rowlock.Arg{{Name: "token", Value: values{}.Token(token)}})...)
	require.NoError(t, err)
	defer func() { _ = found.Close() }()
	var got [][16]byte
	for found.Next() {
		var one [16]byte
		require.NoError(t, found.Scan(values{}.ScanToken(&one)))
		got = append(got, one)
	}
	require.NoError(t, found.Err())
	require.Equal(t, [][16]byte{token, {}}, got)
	p, _ := s.Requests()[0].Param("token")
	require.Equal(t, wire[:], p.Value)
}

// After an error under XACT_ABORT the server has no transaction: nothing that follows is sent,
// since it would commit by itself.
func TestXactAbort_NothingFollowsAnError(t *testing.T) {
	_, conn, s := connect(t, func(r faketds.Request) faketds.Answer {
		if strings.Contains(r.Text, "FAIL") {
			return failing(errDuplicateKey, "Violation of PRIMARY KEY constraint.")
		}
		return faketds.Answer{}
	})
	tx, err := begin(t.Context(), conn)
	require.NoError(t, err)
	require.True(t, meaning{}.Duplicate(run(t.Context(), tx, "FAIL 1")))
	err = run(t.Context(), tx, "SELECT 1")
	require.Equal(t, errNone, number(err), err)
	require.True(t, meaning{}.Unavailable(err))
	err = tx.Commit(t.Context())
	require.ErrorIs(t, err, errFailed)
	require.True(t, meaning{}.RolledBack(err))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, []faketds.Kind{faketds.Begin, faketds.RPC}, kinds(s.Requests()))

	// The connection serves on.
	tx, err = begin(t.Context(), conn)
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), tx, "SELECT 1"))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, s.Conns())
}

// A server that did not roll back (an error that XACT_ABORT leaves alone) is asked to.
func TestXactAbort_ACommitAfterAnErrorRollsBack(t *testing.T) {
	_, conn, s := connect(t, func(r faketds.Request) faketds.Answer {
		if strings.Contains(r.Text, "FAIL") {
			return faketds.Answer{Error: faketds.Error{Number: 50000, Message: "raised"}}
		}
		return faketds.Answer{}
	})
	tx, err := begin(t.Context(), conn)
	require.NoError(t, err)
	require.Error(t, run(t.Context(), tx, "FAIL 1"))
	require.True(t, meaning{}.RolledBack(tx.Commit(t.Context())))
	require.Equal(t, []faketds.Kind{faketds.Begin, faketds.RPC, faketds.Rollback}, kinds(s.Requests()))
}

// results is what a batch goes on with after an error where XACT_ABORT is off.
func results() []faketds.Set {
	one := faketds.Rows([]string{"n"}, []any{int64(1)}, []any{int64(2)}, []any{int64(3)})
	return []faketds.Set{one, one, one}
}

// TestDriverHang is microsoft/go-mssqldb#407, in v1.11.2: where a statement fails in a query and
// two or more results follow, the next operation of the connection hangs and ignores its ctx.
// With XACT_ABORT nothing follows an error, and every statement of ours has it.
func TestDriverHang(t *testing.T) {
	_, conn, s := connect(t, func(r faketds.Request) faketds.Answer {
		if !strings.Contains(r.Text, "FAIL") {
			return rows([]string{"n"}, []any{int64(1)})
		}
		if !strings.Contains(strings.SplitN(r.Text, "\n", 2)[0], "XACT_ABORT ON") {
			return faketds.Answer{Error: faketds.Error{Number: errLockTimeout, Message: "time out"}, More: results()}
		}
		a := failing(errLockTimeout, "time out")
		a.Sets = results()[:1]
		return a
	})
	soon(t, func() {
		for range 3 {
			tx, err := begin(t.Context(), conn)
			require.NoError(t, err)
			require.True(t, meaning{}.LockTimeout(run(t.Context(), tx, "FAIL 1")))
			require.NoError(t, tx.Rollback(t.Context()))
		}
		require.NoError(t, run(t.Context(), conn, "SELECT 1"))
	})
	require.Equal(t, 1, s.Conns())
}

// TestDriverHang_IsStillThere: without XACT_ABORT the driver hangs, so the test above tests
// something. Once this fails the driver was mended, and this test can go. It runs in a process of
// its own, since nothing ends what hangs.
func TestDriverHang_IsStillThere(t *testing.T) {
	t.Parallel()
	const child = "QUEUEBOX_TEST_DRIVER_HANG"
	if os.Getenv(child) == "" {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDriverHang_IsStillThere$")
		c.Env = append(os.Environ(), child+"=1")
		out, err := c.CombinedOutput()
		require.Error(t, err, "it did not hang: %s", out)
		require.Equal(t, hangs, c.ProcessState.ExitCode(), string(out))
		return
	}
	_, conn, _ := connect(t, func(r faketds.Request) faketds.Answer {
		if !strings.Contains(r.Text, "FAIL") {
			return faketds.Answer{}
		}
		return faketds.Answer{Error: faketds.Error{Number: errLockTimeout, Message: "time out"}, More: results()}
	})
	var n int
	if conn.QueryRowContext(t.Context(), "FAIL 1").Scan(&n) == nil {
		os.Exit(0)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = conn.ExecContext(t.Context(), "SELECT 1")
	}()
	select {
	case <-done:
		os.Exit(0)
	case <-time.After(3 * time.Second):
		os.Exit(hangs)
	}
}

// hangs is how the process ends that shows the hang.
const hangs = 42

// TestCancel: a ctx that ends cancels the statement in the server, and the connection serves on.
func TestCancel(t *testing.T) {
	running := make(chan struct{}, 1)
	hold := make(chan struct{})
	_, conn, s := connect(t, func(r faketds.Request) faketds.Answer {
		if strings.Contains(r.Text, "SLOW") {
			running <- struct{}{}
			return faketds.Answer{Hold: hold, RolledBack: true}
		}
		return faketds.Answer{}
	})
	soon(t, func() {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := begin(ctx, conn)
		require.NoError(t, err)
		go func() {
			<-running
			cancel()
		}()
		require.ErrorIs(t, run(ctx, tx, "SLOW 1"), context.Canceled)
		require.Equal(t, 1, s.Attentions())
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, run(t.Context(), conn, "SELECT 1"))
	})
	require.Equal(t, []faketds.Kind{faketds.Begin, faketds.RPC, faketds.RPC}, kinds(s.Requests()), "the server has rolled back")
	require.Equal(t, 1, s.Conns())
}

// A cancel that nobody confirms costs the connection, which is cut off long before the driver
// would have given up, and no caller hangs: a statement, a begin or a commit.
func TestCancel_ThatNobodyConfirms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind faketds.Kind
		do   func(ctx context.Context, conn *sql.Conn) error
	}{
		"a query": {faketds.RPC, func(ctx context.Context, conn *sql.Conn) error { return run(ctx, conn, "SLOW 1") }},
		"an exec": {faketds.Batch, func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, "SLOW 1")
			return err
		}},
		"a procedure": {faketds.RPC, func(ctx context.Context, conn *sql.Conn) error {
			_, err := call(ctx, conn, "slow")
			return err
		}},
		"a begin": {faketds.Begin, func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.BeginTx(ctx, nil)
			return err
		}},
		"a commit": {faketds.Commit, func(ctx context.Context, conn *sql.Conn) error {
			tx, err := begin(t.Context(), conn)
			if err != nil {
				return err
			}
			err = tx.Commit(ctx)
			require.False(t, meaning{}.RolledBack(err))
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			running := make(chan struct{}, 1)
			_, conn, _ := connect(t, func(r faketds.Request) faketds.Answer {
				if r.Kind == c.kind {
					running <- struct{}{}
					return faketds.Answer{Hold: make(chan struct{}), Deaf: true}
				}
				return faketds.Answer{}
			})
			soon(t, func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					<-running
					cancel()
				}()
				err := c.do(ctx, conn)
				broken, ok := errors.AsType[mssqldb.StreamError](err)
				require.True(t, ok, "%v", err)
				require.ErrorIs(t, broken.InnerError, net.ErrClosed, "cut off, and not given up by the driver")
				require.True(t, meaning{}.Broken(err))
				require.True(t, meaning{}.Unavailable(err))
			})
		})
	}
}

func TestBegin_ThatIsCancelled(t *testing.T) {
	running := make(chan struct{}, 1)
	hold := make(chan struct{})
	_, conn, s := connect(t, func(r faketds.Request) faketds.Answer {
		if r.Kind == faketds.Begin {
			running <- struct{}{}
			return faketds.Answer{Hold: hold}
		}
		return faketds.Answer{}
	})
	soon(t, func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			<-running
			cancel()
		}()
		_, err := begin(ctx, conn)
		require.ErrorIs(t, err, context.Canceled)
	})
	require.Equal(t, 1, s.Attentions())
}

// TestD8_CommitIsUnknown: a connection that breaks during a commit leaves an outcome that
// nobody knows; one that broke before proves that nothing is left.
func TestD8_CommitIsUnknown(t *testing.T) {
	for name, answer := range map[string]faketds.Answer{
		"dropped":        {Drop: true},
		"service error":  {Error: faketds.Error{Number: errServiceError, Message: "The service has encountered an error processing your request."}},
		"fatal":          {Error: faketds.Error{Number: 3617, Class: 20, Message: "fatal", Fatal: true}},
		"log full":       {Error: faketds.Error{Number: errLogFull, Message: "The transaction log is full."}},
		"without reason": {Error: faketds.Error{Number: -1, Message: "?"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, conn, _ := connect(t, func(r faketds.Request) faketds.Answer {
				if r.Kind == faketds.Commit {
					return answer
				}
				return faketds.Answer{}
			})
			tx, err := begin(t.Context(), conn)
			require.NoError(t, err)
			err = tx.Commit(t.Context())
			require.Error(t, err)
			require.False(t, meaning{}.RolledBack(err), err)
		})
	}
	t.Run("the caller leaves", func(t *testing.T) {
		running, hold := make(chan struct{}, 1), make(chan struct{})
		_, conn, s := connect(t, func(r faketds.Request) faketds.Answer {
			if r.Kind == faketds.Commit {
				running <- struct{}{}
				return faketds.Answer{Hold: hold}
			}
			return faketds.Answer{}
		})
		tx, err := begin(t.Context(), conn)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			<-running
			cancel()
		}()
		soon(t, func() { err = tx.Commit(ctx) })
		require.Error(t, err)
		require.False(t, meaning{}.RolledBack(err), err)
		require.Equal(t, 1, s.Attentions())
	})
	t.Run("the caller leaves and the answer comes", func(t *testing.T) {
		running, hold := make(chan struct{}, 1), make(chan struct{})
		_, conn, _ := connect(t, func(r faketds.Request) faketds.Answer {
			if r.Kind == faketds.Commit {
				running <- struct{}{}
				return faketds.Answer{Hold: hold}
			}
			return faketds.Answer{}
		})
		tx, err := begin(t.Context(), conn)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			<-running
			cancel()
			close(hold)
		}()
		soon(t, func() { require.NoError(t, tx.Commit(ctx)) })
	})
	t.Run("it was never sent", func(t *testing.T) {
		_, conn, s := connect(t, nil)
		tx, err := begin(t.Context(), conn)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = tx.Commit(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, meaning{}.RolledBack(err))
		require.NotContains(t, kinds(s.Requests()), faketds.Commit)
	})
	t.Run("it was refused", func(t *testing.T) {
		_, conn, _ := connect(t, func(r faketds.Request) faketds.Answer {
			if r.Kind == faketds.Commit {
				return failing(errUncommittable, "The current transaction cannot be committed.")
			}
			return faketds.Answer{}
		})
		tx, err := begin(t.Context(), conn)
		require.NoError(t, err)
		require.True(t, meaning{}.RolledBack(tx.Commit(t.Context())))
	})
}

func TestRollback_ThatFails(t *testing.T) {
	_, conn, _ := connect(t, func(r faketds.Request) faketds.Answer {
		if r.Kind == faketds.Rollback {
			return faketds.Answer{Drop: true}
		}
		return faketds.Answer{}
	})
	tx, err := begin(t.Context(), conn)
	require.NoError(t, err)
	require.Error(t, tx.Rollback(t.Context()))
}

// RETURN codes of a procedure come by RPC, with the types that the procedure declares.
func TestCall(t *testing.T) {
	_, conn, s := connect(t, func(faketds.Request) faketds.Answer { return faketds.Answer{Return: -999} })
	code, err := call(t.Context(), conn, "sys.sp_getapplock", sql.Named("Resource", "r"), sql.Named("LockTimeout", int32(5)))
	require.NoError(t, err)
	require.Equal(t, -999, code)
	r := s.Requests()[0]
	require.Equal(t, "sys.sp_getapplock", r.Procedure)
	require.Equal(t, []faketds.Param{{Name: "Resource", Type: "nvarchar(1)", Value: "r"}, {Name: "LockTimeout", Type: "int", Value: int64(5)}}, r.Params)
}
