package queuebox

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

// serviceConfig is what gRPC does by itself. docs/clients.md prints it for other languages, and a
// test holds the two together.
//
// A call that is safe to repeat is repeated on UNAVAILABLE: a renewal only sets a lease again, a
// settlement is safe by S5, and a claim carries its claim_id (C14). Enqueue has no retry policy,
// since a message without an idempotency key would be there twice; it waits for a connection
// instead of failing at once, which repeats nothing. The client repeats an enqueue with a key, and
// a Cancel, itself. Where gRPC knows that the server never saw a call it sends it again in any case.
const serviceConfig = `{
  "methodConfig": [
    {
      "name": [
        {"service": "queuebox.v1.WorkerService", "method": "Claim"},
        {"service": "queuebox.v1.WorkerService", "method": "Renew"},
        {"service": "queuebox.v1.WorkerService", "method": "BatchRenew"},
        {"service": "queuebox.v1.WorkerService", "method": "Complete"},
        {"service": "queuebox.v1.WorkerService", "method": "Retry"},
        {"service": "queuebox.v1.WorkerService", "method": "DeadLetter"},
        {"service": "queuebox.v1.WorkerService", "method": "Release"},
        {"service": "queuebox.v1.WorkerService", "method": "BatchSettle"}
      ],
      "waitForReady": true,
      "retryPolicy": {
        "maxAttempts": 3,
        "initialBackoff": "0.05s",
        "maxBackoff": "0.5s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]
      }
    },
    {
      "name": [
        {"service": "queuebox.v1.ProducerService", "method": "Enqueue"},
        {"service": "queuebox.v1.ProducerService", "method": "BatchEnqueue"},
        {"service": "queuebox.v1.ProducerService", "method": "Cancel"}
      ],
      "waitForReady": true,
      "timeout": "30s"
    }
  ]
}`

// connectParams keep a client near: the default of gRPC grows to two minutes between tries, in
// which every lease has run out.
func connectParams() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: 5 * time.Second,
	}
}

// keepaliveParams find a connection whose other end is gone without a word. The time is above
// the longest poll (20 s), so that a working connection with claims on it is never pinged.
func keepaliveParams() keepalive.ClientParameters {
	return keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}
}
