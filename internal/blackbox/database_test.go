package blackbox

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/proxy"
)

var storageUnavailable = Want{Code: codes.Unavailable, Reason: "STORAGE_UNAVAILABLE"}

// proxied puts a proxy before the database of a server.
func proxied(t *testing.T, db *Database) (*proxy.Proxy, *Database) {
	t.Helper()
	p, through := proxy.Before(t, db.URL)
	return p, &Database{Engine: db.Engine, URL: through}
}

// health asks the health service for the state of the whole server.
func health(t *testing.T, c *Client) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	out, err := c.Health.Check(within(t), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	return out.GetStatus()
}

// TestD3DatabaseAway cuts the database off in several ways and gives it back.
func TestD3DatabaseAway(t *testing.T) {
	t.Parallel()
	together(t, those(func(e *Engine) bool { return e.Proxied }), databaseAway)
}

func databaseAway(t *testing.T, db *Database) {
	t.Helper()
	for name, away := range map[string]func(p *proxy.Proxy, on bool){
		"refused": func(p *proxy.Proxy, on bool) {
			p.Refuse(on)
			if on {
				p.Cut()
			}
		},
		"half-open": func(p *proxy.Proxy, on bool) {
			p.BlackHole(on)
			if !on {
				p.Cut()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, through := proxied(t, db)
			s := through.Start(t)
			c := s.Client(t)
			queue := name
			ids := enqueueMany(t, c, queue, 5)
			held := claimOne(t, c, queue, 10*time.Minute)
			waiter := make(chan error, 1)
			go func() {
				_, err := c.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: queue + " idle", WaitMs: 20_000})
				waiter <- err
			}()

			away(p, true)
			calls := map[string]func(ctx context.Context) error{
				"Enqueue": func(ctx context.Context) error {
					_, err := c.Enqueue(ctx, &queueboxv1.EnqueueRequest{Queue: queue, IdempotencyKey: "key"})
					return err
				},
				"Claim": func(ctx context.Context) error {
					_, err := c.Claim(ctx, &queueboxv1.ClaimRequest{Queue: queue, WorkerId: "w", ClaimId: newClaimID()})
					return err
				},
				"Renew": func(ctx context.Context) error {
					_, err := c.Renew(ctx, &queueboxv1.RenewRequest{Queue: queue, MessageId: held.GetMessage().GetMessageId(), ClaimToken: held.GetClaimToken()})
					return err
				},
				"Complete": func(ctx context.Context) error { _, err := c.Complete(ctx, completion(queue, held)); return err },
				"GetMessage": func(ctx context.Context) error {
					_, err := c.Admin.GetMessage(ctx, &queueboxv1.GetMessageRequest{Queue: queue, MessageId: ids[0]})
					return err
				},
				"CreateQueue": func(ctx context.Context) error {
					_, err := c.Admin.CreateQueue(ctx, &queueboxv1.CreateQueueRequest{Queue: &queueboxv1.Queue{Queue: "new " + queue}})
					return err
				},
				"ListQueues": func(ctx context.Context) error {
					_, err := c.Admin.ListQueues(ctx, &queueboxv1.ListQueuesRequest{})
					return err
				},
				"ListMessages": func(ctx context.Context) error {
					_, err := c.Admin.ListMessages(ctx, &queueboxv1.ListMessagesRequest{Queue: queue})
					return err
				},
			}
			var wg sync.WaitGroup
			for call, do := range calls {
				wg.Go(func() {
					start := time.Now()
					if problem := CheckStatus(do(within(t)), storageUnavailable); problem != nil {
						t.Errorf("%s after %v: %v", call, time.Since(start), problem)
					}
				})
			}
			wg.Wait()
			eventually(t, "not ready", func() bool { code, _ := s.Get(t, "/readyz"); return code == http.StatusServiceUnavailable })
			eventually(t, "not serving", func() bool { return health(t, c) == healthpb.HealthCheckResponse_NOT_SERVING })
			code, _ := s.Get(t, "/livez")
			require.Equal(t, http.StatusOK, code, "the process is well: nobody should kill it")

			away(p, false)
			require.NoError(t, s.WaitServing(20*time.Second))
			eventually(t, "serving", func() bool { return health(t, c) == healthpb.HealthCheckResponse_SERVING })
			_, err := complete(t, c, queue, held)
			require.NoError(t, err, "leases still count")
			out, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: queue, IdempotencyKey: "key"})
			require.NoError(t, err)
			require.NotEmpty(t, out.GetMessageId())
			// Four of the five, and the one with the key; whatever a lost Claim had taken comes
			// back with its lease.
			list, err := c.Admin.ListMessages(within(t), &queueboxv1.ListMessagesRequest{Queue: queue, PageSize: 100})
			require.NoError(t, err)
			require.Len(t, list.GetMessages(), 6, "none lost, none doubled")
			err = <-waiter
			if err != nil {
				RequireStatus(t, err, storageUnavailable)
			}
		})
	}
}

// TestD3SessionsKilledUnderLoad kills every session of the server again and again, as
// a restart of the database does, while messages go through.
func TestD3SessionsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	together(t, those(func(e *Engine) bool { return e.kill != nil }), sessionsKilled)
}

func sessionsKilled(t *testing.T, db *Database) {
	t.Helper()
	s := db.Start(t)
	conn := db.Open(t)
	done := make(chan struct{})
	var wg sync.WaitGroup
	keys := make([][]string, 4)
	for p := range keys {
		c := s.Client(t)
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				key := fmt.Sprintf("%d-%d", p, i)
				for {
					_, err := c.Enqueue(t.Context(), &queueboxv1.EnqueueRequest{Queue: "q", IdempotencyKey: key})
					if err == nil {
						break
					}
					if problem := CheckStatus(err, storageUnavailable); problem != nil {
						t.Errorf("enqueue: %v", problem)
						return
					}
				}
				keys[p] = append(keys[p], key)
			}
		})
	}
	for range 12 {
		time.Sleep(100 * time.Millisecond)
		db.kill(t, conn)
	}
	close(done)
	wg.Wait()
	want := 0
	for _, k := range keys {
		want += len(k)
	}
	require.NotZero(t, want)
	require.NoError(t, s.WaitServing(20*time.Second))
	require.Equal(t, []string{fmt.Sprint(want)}, Rows(t, conn, "SELECT count(*) FROM "+db.Table("message")), "none lost, none doubled")
	require.NotContains(t, s.Log(), "level=ERROR", "a database that goes away is no defect of the server")
}

// TestD5TwoServersOneDatabase races settlements of one claim on two servers.
func TestD5S7TwoServersOneDatabase(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		a, b := db.Start(t).Client(t), db.Start(t).Client(t)
		const n = 60
		enqueueMany(t, a, "q", n)
		seen := map[string]bool{}
		for i := range n {
			claimer := []*Client{a, b}[i%2]
			m := claimOne(t, claimer, "q", time.Minute)
			id := m.GetMessage().GetMessageId()
			require.False(t, seen[id], "C1")
			seen[id] = true
			var (
				wg                    sync.WaitGroup
				completed, deadLetter error
			)
			wg.Go(func() { _, completed = a.Complete(t.Context(), completion("q", m)) })
			wg.Go(func() {
				_, deadLetter = b.DeadLetter(t.Context(), &queueboxv1.DeadLetterRequest{Queue: "q", MessageId: id, ClaimToken: m.GetClaimToken()})
			})
			wg.Wait()
			if completed == nil {
				RequireStatus(t, deadLetter, settledAs("COMPLETED"))
				require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, message(t, b, "q", id).GetState())
			} else {
				require.NoError(t, deadLetter)
				RequireStatus(t, completed, settledAs("DEAD"))
				require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_DEAD, message(t, a, "q", id).GetState())
			}
		}
	})
}

// TestD7SchemaVersion: a server that meets a schema which it does not know turns not
// ready, also while it runs, and does not start on it.
func TestD7SchemaVersion(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t)
		c := s.Client(t)
		conn := db.Open(t)
		versions := db.Table(db.versions)
		_, err := conn.ExecContext(t.Context(), "INSERT INTO "+versions+" (version_id, is_applied) VALUES (999, '1')")
		require.NoError(t, err)
		eventually(t, "not ready", func() bool { code, _ := s.Get(t, "/readyz"); return code == http.StatusServiceUnavailable })
		eventually(t, "not serving", func() bool { return health(t, c) == healthpb.HealthCheckResponse_NOT_SERVING })

		text, code := Run(t, nil, "serve", "--storage="+db.URL, "--listen="+FreeAddr(t), "--metrics-listen=off")
		require.NotZero(t, code)
		require.Contains(t, text, "schema")
		require.Contains(t, text, "999")

		_, err = conn.ExecContext(t.Context(), "DELETE FROM "+versions+" WHERE version_id = 999")
		require.NoError(t, err)
		require.NoError(t, s.WaitServing(20*time.Second))
		enqueue(t, c, "q", "x")
	})
}

// TestD7UnmigratedDatabase: whatever is no file is migrated by a command of its own.
func TestD7UnmigratedDatabase(t *testing.T) {
	t.Parallel()
	for _, e := range those(func(e *Engine) bool { return !e.Migrates }) {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			unmigrated(t, e.empty(t))
		})
	}
}

func unmigrated(t *testing.T, db *Database) {
	t.Helper()
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	if u.User = url.UserPassword(u.User.Username(), "hunter2"); db.Name == EngineMySQL {
		// PostgreSQL trusts whoever comes from this machine; here only who has the password gets in.
		u.User = url.UserPassword(newRole(t, db), "hunter2")
	}
	serve := []string{"serve", "--storage=" + u.String(), "--listen=" + FreeAddr(t), "--metrics-listen=off"}
	text, code := Run(t, nil, serve...)
	require.NotZero(t, code)
	require.Contains(t, text, "migrate")
	require.NotContains(t, text, "hunter2")

	s := Start(t, Options{Storage: db.URL, Args: []string{"--auto-migrate"}})
	enqueue(t, s.Client(t), "q", "x")
	text, code = Run(t, nil, "migrate", "--storage="+db.URL)
	require.Zero(t, code, text)
	enqueue(t, s.Client(t), "q", "x")
}

// newRole makes a role of MySQL that has the password hunter2 and every right.
func newRole(t *testing.T, db *Database) string {
	t.Helper()
	conn := db.Open(t)
	role := "role_" + newClaimID()[:8]
	for _, q := range []string{"CREATE USER " + role + " IDENTIFIED BY 'hunter2'", "GRANT ALL ON *.* TO " + role} {
		_, err := conn.ExecContext(t.Context(), q)
		require.NoError(t, err)
	}
	t.Cleanup(func() { _, _ = conn.ExecContext(context.WithoutCancel(t.Context()), "DROP USER "+role) })
	return role
}

// TestD8AnswerOfCommitCut: the database has committed, and the server never hears of
// it. It says UNAVAILABLE, never that it failed, and the repeat tells what happened.
func TestD8AnswerOfCommitCut(t *testing.T) {
	t.Parallel()
	together(t, those(func(e *Engine) bool { return e.Proxied }), commitCut)
}

func commitCut(t *testing.T, db *Database) {
	t.Helper()
	p, through := proxied(t, db)
	s := through.Start(t)
	c := s.Client(t)
	enqueue(t, c, "q", "warm-up")
	_, err := complete(t, c, "q", claimOne(t, c, "q", time.Minute))
	require.NoError(t, err)

	for name, at := range map[string]proxy.Moment{"before the answer": proxy.BeforeAnswer, "before the request": proxy.BeforeRequest} {
		// cut arms the proxy, makes the call that it will strike and returns its error. The call
		// is told by a text of its transaction: what the server writes by itself must not
		// take the blow.
		cut := func(t *testing.T, text string, call func() error) error {
			t.Helper()
			cutter := p.CutAt(at, func(s proxy.Statement) bool { return s.Commits() && s.Holds(text) })
			defer p.Disarm()
			err := call()
			select {
			case <-cutter.Done():
			case <-time.After(5 * time.Second):
				t.Fatalf("the proxy cut nothing: %v", err)
			}
			return err
		}
		// committed tells what the repeat must say: whether the first call had been carried
		// out. A request that was lost may have been sent again by the server itself.
		committed := at == proxy.BeforeAnswer
		check := func(t *testing.T, first error, repeated bool) {
			t.Helper()
			if committed {
				RequireStatus(t, first, storageUnavailable)
				require.True(t, repeated, "the repeat does not know of the first call")
				return
			}
			if first != nil {
				RequireStatus(t, first, storageUnavailable)
				require.False(t, repeated, "it had never reached the database")
			}
		}
		t.Run("Enqueue "+name, func(t *testing.T) {
			req := &queueboxv1.EnqueueRequest{Queue: "q", IdempotencyKey: "enqueue " + name}
			first := cut(t, "INSERT INTO "+db.Table("message"), func() error { _, err := c.Enqueue(within(t), req); return err })
			out, err := c.Enqueue(within(t), req)
			require.NoError(t, err)
			check(t, first, out.GetDuplicate())
			_, err = complete(t, c, "q", claimOne(t, c, "q", time.Minute))
			require.NoError(t, err)
			require.Empty(t, claim(t, c, "q", 10, 0), "one message, not two")
		})
		t.Run("Claim "+name, func(t *testing.T) {
			id := enqueue(t, c, "q", "x")
			req := &queueboxv1.ClaimRequest{Queue: "q", WorkerId: "w", ClaimId: newClaimID(), LeaseMs: 3_600_000}
			first := cut(t, "INSERT INTO "+db.Table("claim_call"), func() error { _, err := c.Claim(within(t), req); return err })
			out := claimWith(t, c, req)
			check(t, first, out.GetReplayed())
			require.Len(t, out.GetMessages(), 1)
			require.Equal(t, id, out.GetMessages()[0].GetMessage().GetMessageId())
			require.EqualValues(t, 1, out.GetMessages()[0].GetMessage().GetAttempt())
			_, err := complete(t, c, "q", out.GetMessages()[0])
			require.NoError(t, err)
		})
		type settlement struct {
			name string
			call func(m *queueboxv1.ClaimedMessage) (already bool, err error)
			want queueboxv1.MessageState
			// table gets a row from it.
			table string
		}
		for _, tc := range []settlement{
			{"Complete", func(m *queueboxv1.ClaimedMessage) (bool, error) {
				out, err := c.Complete(within(t), completion("q", m))
				return out.GetAlreadySettled(), err
			}, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED, "completed"},
			{"Retry", func(m *queueboxv1.ClaimedMessage) (bool, error) {
				out, err := c.Retry(within(t), &queueboxv1.RetryRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: proto.Int64(3_600_000)})
				return out.GetAlreadySettled(), err
			}, queueboxv1.MessageState_MESSAGE_STATE_PENDING, "settlement"},
			{"DeadLetter", func(m *queueboxv1.ClaimedMessage) (bool, error) {
				out, err := c.DeadLetter(within(t), &queueboxv1.DeadLetterRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()})
				return out.GetAlreadySettled(), err
			}, queueboxv1.MessageState_MESSAGE_STATE_DEAD, "settlement"},
			{"Release", func(m *queueboxv1.ClaimedMessage) (bool, error) {
				out, err := c.Release(within(t), &queueboxv1.ReleaseRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), DelayMs: 3_600_000})
				return out.GetAlreadySettled(), err
			}, queueboxv1.MessageState_MESSAGE_STATE_PENDING, "settlement"},
		} {
			t.Run(tc.name+" "+name, func(t *testing.T) {
				id := enqueue(t, c, "q", "x")
				m := claimOne(t, c, "q", time.Hour)
				first := cut(t, "INSERT INTO "+db.Table(tc.table), func() error { _, err := tc.call(m); return err })
				already, err := tc.call(m)
				require.NoError(t, err)
				check(t, first, already)
				require.Equal(t, tc.want, message(t, c, "q", id).GetState())
			})
		}
	}
}

// TestD9UnsafeDurability: a database that may lose what it acknowledged stops the
// start, and the text names the setting.
func TestD9UnsafeDurability(t *testing.T) {
	t.Parallel()
	db := Postgres(t)
	conn := db.Open(t)
	// A role of its own: the setting must not touch anybody else's sessions.
	role := "unsafe_" + strings.ReplaceAll(newClaimID(), "-", "")
	for _, q := range []string{
		"CREATE ROLE " + role + " LOGIN SUPERUSER",
		"ALTER ROLE " + role + " SET synchronous_commit = off",
	} {
		_, err := conn.ExecContext(t.Context(), q)
		require.NoError(t, err)
	}
	t.Cleanup(func() { _, _ = conn.ExecContext(context.WithoutCancel(t.Context()), "DROP ROLE "+role) })
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	u.User = url.User(role)
	args := []string{"serve", "--storage=" + u.String(), "--listen=" + FreeAddr(t), "--metrics-listen=off"}
	text, code := Run(t, nil, args...)
	require.NotZero(t, code)
	require.Contains(t, text, "synchronous_commit")
	require.Contains(t, text, "--allow-unsafe-durability")

	s := Start(t, Options{Storage: u.String(), Args: []string{"--allow-unsafe-durability"}})
	enqueue(t, s.Client(t), "q", "x")
}

// TestD1RoleDefaults: a role whose defaults are unlike those of the server, for
// isolation and time zone, changes nothing.
func TestD1C5RoleDefaults(t *testing.T) {
	t.Parallel()
	db := Postgres(t)
	conn := db.Open(t)
	role := "odd_" + strings.ReplaceAll(newClaimID(), "-", "")
	for _, q := range []string{
		"CREATE ROLE " + role + " LOGIN SUPERUSER",
		"ALTER ROLE " + role + " SET default_transaction_isolation = 'serializable'",
		"ALTER ROLE " + role + " SET timezone = 'Asia/Kathmandu'",
		"ALTER ROLE " + role + " SET datestyle = 'German'",
		"ALTER ROLE " + role + " SET intervalstyle = 'sql_standard'",
		"ALTER ROLE " + role + " SET bytea_output = 'escape'",
	} {
		_, err := conn.ExecContext(t.Context(), q)
		require.NoError(t, err)
	}
	t.Cleanup(func() { _, _ = conn.ExecContext(context.WithoutCancel(t.Context()), "DROP ROLE "+role) })
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	u.User = url.User(role)
	s := Start(t, Options{Storage: u.String(), Env: []string{"TZ=America/St_Johns"}})
	const n = 200
	enqueueMany(t, s.Client(t), "q", n)
	var wg sync.WaitGroup
	for range 8 {
		c := s.Client(t)
		wg.Go(func() {
			for {
				out, err := c.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: "q", LeaseMs: 60_000})
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				if len(out.GetMessages()) == 0 {
					return
				}
				m := out.GetMessages()[0]
				if d := leaseLength(leaseOf{m, out}); d.Round(time.Second) != time.Minute {
					t.Errorf("a lease of %v", d)
				}
				if _, err := c.Complete(t.Context(), completion("q", m)); err != nil {
					t.Errorf("complete: %v (%v)", err, status.Code(err))
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, []string{fmt.Sprint(n)}, Rows(t, conn, `SELECT count(*) FROM queuebox.completed`))
}
