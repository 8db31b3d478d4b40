package queuebox

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func TestDial_WithoutCredentialsOnlyToThisHost(t *testing.T) {
	for target, local := range map[string]bool{
		"127.0.0.1:7420":                   true,
		"127.9.9.9:1":                      true,
		"[::1]:7420":                       true,
		"localhost:7420":                   true,
		"LOCALHOST":                        true,
		"dns:///localhost:7420":            true,
		"dns:localhost:7420":               true,
		"passthrough:///127.0.0.1:7420":    true,
		"unix:///run/queuebox.sock":        true,
		"unix:relative.sock":               true,
		"ipv4:127.0.0.1:1,127.0.0.2:2":     true,
		"ipv6:[::1]:7420":                  true,
		"ipv4:127.0.0.1:1,10.0.0.1:2":      false,
		"10.0.0.1:7420":                    false,
		"queuebox.example.com:7420":        false,
		"dns:///queuebox.example.com:7420": false,
		"dns://8.8.8.8/localhost.evil:1":   false,
		"localhost.example.com:7420":       false,
		"0.0.0.0:7420":                     false,
		"xds:///localhost":                 false,
	} {
		t.Run(target, func(t *testing.T) {
			require.Equal(t, local, loopback(target))
			c, err := Dial(target)
			if local {
				require.NoError(t, err)
				require.NoError(t, c.Close())
				return
			}
			require.ErrorContains(t, err, "WithTLS")
			require.ErrorContains(t, err, "WithInsecure")
		})
	}
}

func TestDial_SaysHowToWriteATarget(t *testing.T) {
	for _, target := range []string{"", "http://127.0.0.1:7420", "HTTPS://queuebox.example.com:7420"} {
		for _, o := range []Option{WithTLS(nil), WithInsecure(), WithWorkerID("w")} {
			_, err := Dial(target, o)
			require.ErrorContains(t, err, "write HOST:PORT", target)
		}
	}
}

func TestDial_WithTLSOrWithInsecureToAnyHost(t *testing.T) {
	for _, o := range []Option{WithTLS(nil), WithInsecure(), WithTransportCredentials(credentials.NewTLS(nil))} {
		c, err := Dial("queuebox.example.com:7420", o)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}

func TestDial_ATokenDoesNotCrossAPlainConnectionUnasked(t *testing.T) {
	token := func(context.Context) (string, error) { return "secret", nil }
	require.False(t, bearer{source: token, plain: true}.RequireTransportSecurity())
	require.True(t, bearer{source: token}.RequireTransportSecurity())
}

func TestDial_SendsATokenWithEveryCall(t *testing.T) {
	n := 0
	source := func(context.Context) (string, error) {
		n++
		if n == 3 {
			return "", errors.New("no token to be had")
		}
		return "token" + strings.Repeat("!", n), nil
	}
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		var got []string
		f.onPut = func(ctx context.Context, _ int, _ *queueboxv1.EnqueueRequest) (*queueboxv1.EnqueueResponse, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			got = append(got, md.Get("authorization")...)
			return nil, nil
		}
		for range 2 {
			_, err := c.Enqueue(t.Context(), "q", NewMessage{})
			require.NoError(t, err)
		}
		require.Equal(t, []string{"Bearer token!", "Bearer token!!"}, got)
		_, err := c.Enqueue(t.Context(), "q", NewMessage{})
		require.ErrorContains(t, err, "no token to be had")
	}, WithToken(source))
}

func TestDefaultWorkerID_IsUniqueAndFits(t *testing.T) {
	a, b := defaultWorkerID(), defaultWorkerID()
	require.NotEqual(t, a, b)
	require.LessOrEqual(t, len(a), 255)
}

func TestMilliseconds_RoundsAwayFromZero(t *testing.T) {
	for d, ms := range map[time.Duration]int64{
		0: 0, time.Nanosecond: 1, time.Millisecond: 1, 1001 * time.Microsecond: 2, -time.Nanosecond: -1, -time.Millisecond: -1,
	} {
		require.Equal(t, ms, milliseconds(d), d)
	}
}

func TestPauses_GrowToTheirLimitAndHeedTheServer(t *testing.T) {
	p := pauses{base: 10 * time.Millisecond, limit: time.Second}
	for i := range 200 {
		full := time.Second
		if i < 7 {
			full = 10 * time.Millisecond << i
		}
		d := p.next(0)
		require.LessOrEqual(t, d, full)
		require.GreaterOrEqual(t, d, full/2)
	}
	require.Equal(t, time.Minute, p.next(time.Minute))
}
