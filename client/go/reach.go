package queuebox

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// unreachableEvery is how often a server that cannot be reached is told of. It is more than the
// pauses between the tries, so that an outage does not fill the log.
const unreachableEvery = 30 * time.Second

// watch says when the server cannot be reached, and when it can again. Calls wait for a connection
// instead of failing, so without this a program whose server is not there would stand still
// without a word. It ends with the client.
func (c *Client) watch() {
	told := false // whether the log says at present that the server cannot be reached
	var last time.Time
	for {
		state := c.conn.GetState()
		next := c.life
		done := context.CancelFunc(func() {})
		switch state {
		case connectivity.TransientFailure:
			pause := unreachableEvery - now().Sub(last)
			if last.IsZero() || pause <= 0 {
				if cause := c.unreachable(); cause != "" {
					c.logger.WarnContext(c.life, "cannot reach the server, trying again", "target", c.conn.Target(), "cause", cause)
					told, last = true, now()
				}
				pause = unreachableEvery
			}
			next, done = context.WithTimeout(c.life, pause)
		case connectivity.Ready:
			if told {
				c.logger.InfoContext(c.life, "reached the server again", "target", c.conn.Target())
				told = false
			}
		case connectivity.Shutdown:
			return
		case connectivity.Idle, connectivity.Connecting:
		}
		c.conn.WaitForStateChange(next, state)
		done()
		if c.life.Err() != nil {
			return
		}
	}
}

// unreachable asks for the reason of a connection that fails; empty where it no longer does. gRPC
// tells it only to a call that does not wait for the connection. Where the connection stands
// meanwhile the call is answered by the health service, or refused by a server without one.
func (c *Client) unreachable() string {
	ctx, cancel := context.WithTimeout(c.life, time.Second)
	defer cancel()
	_, err := healthpb.NewHealthClient(c.conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(false))
	if st := status.Convert(err); st.Code() == codes.Unavailable && c.conn.GetState() != connectivity.Ready {
		return st.Message()
	}
	return ""
}
