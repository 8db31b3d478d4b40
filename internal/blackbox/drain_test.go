package blackbox

import (
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// TestDrainOnSIGTERM: the server answers who waits, ends streams in good order and
// leaves with code 0.
func TestDrainOnSIGTERM(t *testing.T) {
	KindsParallel(t, func(t *testing.T, db *Database) {
		for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
			t.Run(sig.String(), func(t *testing.T) {
				s := db.Start(t, "--drain-timeout=4s")
				c := s.Client(t)
				queue := "q " + sig.String()
				enqueue(t, c, queue, "x")
				m := claimOne(t, c, queue, time.Hour)
				var chans []<-chan answered
				for range 5 {
					chans = append(chans, waitFor(t, c, &queueboxv1.ClaimRequest{Queue: queue, WaitMs: 20_000}))
				}
				eventually(t, "all wait", func() bool { return waiting(t, c, queue) == 5 })
				stream := openHeartbeat(within(t), t, c)
				beat(t, stream, &queueboxv1.HeartbeatRequest{Sequence: 1, Queue: queue, Renewals: []*queueboxv1.RenewItem{{MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()}}})

				start := time.Now()
				s.Signal(sig)
				for _, ch := range chans {
					a := <-ch
					require.Empty(t, a.out.GetMessages())
					require.Equal(t, queueboxv1.EmptyReason_EMPTY_REASON_DRAINING, a.out.GetEmptyReason())
					require.NotNil(t, a.out.GetServerTime(), "D11")
				}
				out, err := stream.Recv()
				require.NoError(t, err)
				require.Zero(t, out.GetSequence())
				require.True(t, out.GetDraining())
				for err == nil {
					_, err = stream.Recv()
				}
				require.True(t, ended(err), "the stream ends OK, got %v", err)
				code, err := s.ExitCode(20 * time.Second)
				require.NoError(t, err)
				require.Zero(t, code)
				require.Less(t, time.Since(start), 15*time.Second)

				s.Restart()
				_, err = complete(t, s.Client(t), queue, m)
				require.NoError(t, err, "the claim outlives the server")
			})
		}
	})
}

// TestDrainUnderLoad: calls that run when the signal comes get whole answers or are
// told to come again; what was acknowledged is there.
func TestDrainUnderLoad(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t)
		type outcome struct {
			acknowledged int
			err          error
		}
		results := make(chan outcome, 8)
		for range 8 {
			c := s.Client(t)
			go func() {
				var o outcome
				for {
					_, o.err = c.Enqueue(t.Context(), &queueboxv1.EnqueueRequest{Queue: "q"})
					if o.err != nil {
						results <- o
						return
					}
					o.acknowledged++
				}
			}()
		}
		time.Sleep(300 * time.Millisecond)
		s.Signal(syscall.SIGTERM)
		code, err := s.ExitCode(20 * time.Second)
		require.NoError(t, err)
		require.Zero(t, code)
		sum := 0
		for range 8 {
			o := <-results
			sum += o.acknowledged
			require.Equal(t, codes.Unavailable, status.Code(o.err), "%v", o.err)
		}
		require.NotZero(t, sum)
		s.Restart()
		c := s.Client(t)
		got := 0
		for {
			n := len(claim(t, c, "q", 1000, time.Hour))
			if n == 0 {
				break
			}
			got += n
		}
		// A call that was cut may have been carried out: at most one of each caller.
		require.GreaterOrEqual(t, got, sum, "an acknowledged message is lost")
		require.LessOrEqual(t, got, sum+8)
	})
}

func TestHealthAndReadiness(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		s := db.Start(t)
		c := s.Client(t)
		out, err := c.Health.Check(within(t), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, out.GetStatus())
		for _, service := range []string{"queuebox.v1.WorkerService", "queuebox.v1.ProducerService", "queuebox.v1.AdminService"} {
			out, err = c.Health.Check(within(t), &healthpb.HealthCheckRequest{Service: service})
			require.NoError(t, err)
			require.Equal(t, healthpb.HealthCheckResponse_SERVING, out.GetStatus(), service)
		}
		for _, page := range []string{"/livez", "/readyz", "/metrics"} {
			code, body := s.Get(t, page)
			require.Equal(t, http.StatusOK, code, "%s: %s", page, body)
		}
		text, code := Run(t, nil, "healthcheck", "--listen="+s.Addr)
		require.Zero(t, code, text)
		info, err := c.Admin.GetServerInfo(within(t), &queueboxv1.GetServerInfoRequest{})
		require.NoError(t, err)
		require.Equal(t, db.Name, info.GetStorage())
		require.EqualValues(t, 1000, info.GetMaxClaimMessages())
		require.EqualValues(t, 1000, info.GetMaxBatchItems())
		require.EqualValues(t, 20_000, info.GetMaxWaitMs())
		require.EqualValues(t, 1<<20, info.GetMaxPayloadBytes())

		token := func() string {
			enqueue(t, c, "q", "top secret payload")
			m := claimOne(t, c, "q", time.Minute)
			_, err = complete(t, c, "q", m)
			require.NoError(t, err)
			_, err = complete(t, c, "q", m)
			require.NoError(t, err)
			_, err = c.Retry(within(t), &queueboxv1.RetryRequest{Queue: "q", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken()})
			require.Error(t, err)
			require.NotContains(t, err.Error(), m.GetClaimToken())
			return m.GetClaimToken()
		}()
		_, metrics := s.Get(t, "/metrics")
		for where, got := range map[string]string{"log": s.Log(), "metrics": metrics} {
			require.NotContains(t, got, token, "a token in the %s", where)
			require.NotContains(t, got, "top secret payload")
		}

		s.Signal(syscall.SIGTERM)
		code, err = s.ExitCode(20 * time.Second)
		require.NoError(t, err)
		require.Zero(t, code)
		_, code = Run(t, nil, "healthcheck", "--listen="+s.Addr)
		require.NotZero(t, code)
	})
}
