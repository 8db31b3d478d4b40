package server

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// The limits of a request. They are part of the contract: a name that one backend
// takes, every backend takes (E11).
const (
	maxNameBytes      = 255
	maxAttributes     = 64
	maxAttributeBytes = 64 << 10
	maxClaimMessages  = 1000
	maxBatchItems     = 1000
	maxErrorBytes     = 2000
	maxFilterBytes    = 2000
	// maxDelay keeps every sum of a time and a delay far from overflow.
	maxDelay = 10 * 365 * 24 * time.Hour
)

// maxViolations bounds what is told about one request.
const maxViolations = 20

// maxTime is the latest absolute time that a request may name; every backend can
// store it.
func maxTime() time.Time { return time.Date(2200, time.January, 1, 0, 0, 0, 0, time.UTC) }

// check collects what is wrong with a request. The first violation decides the reason
// of the error; all of them are told.
type check struct {
	prefix     string
	reason     queueboxv1.ErrorReason
	violations []violation
}

// at is the path of a field.
func (c *check) at(field string) string { return c.prefix + field }

// within names the fields of a part of the request.
func (c *check) within(prefix string, f func()) {
	old := c.prefix
	c.prefix += prefix
	f()
	c.prefix = old
}

// item names the fields of an item of a list. The name is made only where something is wrong:
// a batch has a thousand items, and nearly always nothing is.
func (c *check) item(list string, i int, f func()) {
	before, old := len(c.violations), c.prefix
	c.prefix = ""
	f()
	c.prefix = old
	for k := before; k < len(c.violations); k++ {
		c.violations[k].field = fmt.Sprintf("%s%s[%d].%s", c.prefix, list, i, c.violations[k].field)
	}
}

// wrong reports a field.
func (c *check) wrong(field, format string, args ...any) {
	c.wrongFor(queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, field, format, args...)
}

func (c *check) wrongFor(reason queueboxv1.ErrorReason, field, format string, args ...any) {
	if len(c.violations) == 0 {
		c.reason = reason
	}
	if len(c.violations) >= maxViolations {
		return // the status travels in headers, which clients bound
	}
	c.violations = append(c.violations, violation{field: c.at(field), text: fmt.Sprintf(format, args...), reason: reason})
}

// err is the error of the whole request, nil where nothing is wrong.
func (c *check) err() error {
	if len(c.violations) == 0 {
		return nil
	}
	return &apiError{
		reason:     c.reason,
		text:       c.violations[0].field + ": " + c.violations[0].text,
		violations: c.violations,
	}
}

// notBuilt refuses a field whose rule this build does not have (E13).
func (c *check) notBuilt(field string, set bool) {
	if set {
		c.wrongFor(queueboxv1.ErrorReason_ERROR_REASON_UNIMPLEMENTED, field,
			"this server does not have this field yet; leave it unset or use a newer server")
	}
}

// text checks a short text: at most 255 bytes, no NUL.
func (c *check) text(field, s string) { c.textUpTo(field, s, maxNameBytes) }

func (c *check) textUpTo(field, s string, limit int) {
	switch {
	case len(s) > limit:
		c.wrong(field, "has %d bytes; at most %d are allowed", len(s), limit)
	case !utf8.ValidString(s):
		c.wrong(field, "is not valid UTF-8")
	case strings.IndexByte(s, 0) >= 0:
		c.wrong(field, "holds a NUL byte, which not every database can store")
	}
}

// queue checks the name of a queue.
func (c *check) queue(field, name string) {
	if name == "" {
		c.wrong(field, "is missing; name a queue")
		return
	}
	c.text(field, name)
}

// message reads a message id.
func (c *check) message(field, id string) storage.Ref {
	if id == "" {
		c.wrong(field, "is missing; give the message_id that the server returned")
		return storage.Ref{}
	}
	ref, err := wireid.ParseMessage(id)
	if err != nil {
		c.wrong(field, "is not a message_id that a QueueBox server made; give it back unchanged")
	}
	return ref
}

// token reads a claim token. An empty one is a claim that was never held (R3).
func (c *check) token(field, s string) storage.Token {
	token, err := wireid.ParseToken(s)
	if err != nil {
		c.wrong(field, "is not a claim_token that a QueueBox server made; give it back unchanged")
	}
	return token
}

// delay reads a duration in milliseconds.
func (c *check) delay(field string, ms int64) time.Duration {
	switch {
	case ms < 0:
		c.wrong(field, "is negative")
	case ms > maxDelay.Milliseconds():
		c.wrong(field, "is longer than 10 years")
	default:
		return time.Duration(ms) * time.Millisecond
	}
	return 0
}

// time reads an absolute time; zero where it is not set.
func (c *check) time(field string, ts *timestamppb.Timestamp) time.Time {
	if ts == nil {
		return time.Time{}
	}
	if err := ts.CheckValid(); err != nil {
		c.wrong(field, "is not a valid timestamp")
		return time.Time{}
	}
	t := ts.AsTime()
	if t.After(maxTime()) {
		c.wrong(field, "lies after the year 2199")
		return time.Time{}
	}
	if t.Unix() < 0 {
		// Long past is as good as past, and safe from overflow in any unit.
		return time.Unix(0, 0).UTC()
	}
	return t
}

// claimID reads a UUID in its usual form; zero where it is empty.
func (c *check) claimID(field, s string) storage.ClaimID {
	var id storage.ClaimID
	if s == "" {
		return id
	}
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		c.wrong(field, "is not a UUID like 6f1c3c7a-25c6-4a53-9a94-4a54be1c5ab9")
		return id
	}
	hex := strings.ReplaceAll(s, "-", "")
	if len(hex) != 32 {
		c.wrong(field, "is not a UUID like 6f1c3c7a-25c6-4a53-9a94-4a54be1c5ab9")
		return id
	}
	for i := range id {
		b, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			c.wrong(field, "is not a UUID like 6f1c3c7a-25c6-4a53-9a94-4a54be1c5ab9")
			return storage.ClaimID{}
		}
		id[i] = byte(b)
	}
	if id == (storage.ClaimID{}) {
		c.wrong(field, "is the nil UUID; make a random one")
	}
	return id
}

// payload checks the size of bytes that a message carries.
func (c *check) payload(field string, n int, limit int64) {
	if int64(n) > limit {
		c.wrongFor(queueboxv1.ErrorReason_ERROR_REASON_PAYLOAD_TOO_LARGE, field,
			"has %d bytes; this server takes at most %d; store large bodies elsewhere and enqueue a reference", n, limit)
	}
}

// batch checks the number of items of a batch.
func (c *check) batch(field string, n int) {
	if n > maxBatchItems {
		c.wrong(field, "has %d items; at most %d are allowed in one call", n, maxBatchItems)
	}
}

// leaseOf checks a lease against the limits of the queue. Zero is whatever zero stands
// for and never out of range (C8).
func leaseOf(q storage.Queue, field string, ms int64) (time.Duration, error) {
	if ms == 0 {
		return 0, nil
	}
	if ms < q.MinLease.Milliseconds() || ms > q.MaxLease.Milliseconds() {
		c := &check{}
		c.wrongFor(queueboxv1.ErrorReason_ERROR_REASON_LEASE_OUT_OF_RANGE, field,
			"is %d; this queue allows %d to %d", ms, q.MinLease.Milliseconds(), q.MaxLease.Milliseconds())
		return 0, c.err()
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// cutError keeps what S9 keeps of an error text: no NUL, at most 2000 bytes, cut on
// a rune boundary.
func cutError(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	if len(s) <= maxErrorBytes {
		return s
	}
	end := maxErrorBytes
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
