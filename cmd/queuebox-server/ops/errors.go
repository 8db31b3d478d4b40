package ops

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// rpcError is an error of a call in the words of an operator.
type rpcError struct {
	text   string
	code   codes.Code
	reason string // "" where the answer is none of a QueueBox server
	err    error
}

func (e *rpcError) Error() string { return e.text }
func (e *rpcError) Unwrap() error { return e.err }

// explain says what a call ended with and what can be done about it.
func (s *session) explain(err error) error {
	st := status.Convert(err)
	e := &rpcError{code: st.Code(), err: err}
	var info *errdetails.ErrorInfo
	var wrong []string
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				wrong = append(wrong, flagOf(v.GetField())+": "+v.GetDescription())
			}
		}
	}
	if info == nil {
		e.text = s.foreign(st)
		return e
	}
	e.reason = info.GetReason()
	text := st.Message()
	if len(wrong) > 0 {
		text = strings.Join(wrong, "; ")
	}
	var facts strings.Builder
	facts.WriteString(e.reason)
	for _, key := range slices.Sorted(maps.Keys(info.GetMetadata())) {
		if key == "field" {
			continue // the text has it
		}
		fmt.Fprintf(&facts, ", %s=%s", key, info.GetMetadata()[key])
	}
	e.text = fmt.Sprintf("%s (%s)", text, &facts)
	if hint := hints()[e.reason]; hint != "" {
		e.text += "; " + hint
	}
	e.text = harmless(e.text)
	return e
}

// hints are the commands that help on, where the text of the server cannot name them.
func hints() map[string]string {
	const prefix = "ERROR_REASON_"
	out := map[string]string{}
	for reason, hint := range map[queueboxv1.ErrorReason]string{
		queueboxv1.ErrorReason_ERROR_REASON_QUEUE_NOT_FOUND:   "'queues list' shows the queues that there are",
		queueboxv1.ErrorReason_ERROR_REASON_QUEUE_EXISTS:      "'queues update' changes it",
		queueboxv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND: "'messages list' shows the messages that there are",
		queueboxv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH:     "'queues get' shows the present settings and their etag",
	} {
		out[strings.TrimPrefix(reason.String(), prefix)] = hint
	}
	return out
}

// foreign is about a status that no QueueBox server made: nobody is there, nobody answered,
// or it is somebody else.
func (s *session) foreign(st *status.Status) string {
	what := harmless(st.Message())
	switch st.Code() {
	case codes.Unavailable:
		// The text of gRPC nests three prefixes around what the system said.
		if _, cause, ok := strings.Cut(what, "Error while dialing: "); ok {
			what = strings.TrimSuffix(cause, `"`)
		}
		if strings.Contains(what, "tls:") || strings.Contains(what, "x509:") {
			return fmt.Sprintf("%s is there, but the encryption of the connection failed: %s; look at --server-tls and --server-ca", s.server, what)
		}
		return fmt.Sprintf("no server answers at %s: %s; start one, or name another by --server HOST:PORT or the variable QUEUEBOX_SERVER", s.server, what)
	case codes.DeadlineExceeded:
		return fmt.Sprintf("%s did not answer within %s; it may be busy, or something on the way drops the call: --timeout gives it more time", s.server, s.timeout)
	case codes.Canceled:
		return "interrupted"
	case codes.Unimplemented:
		return fmt.Sprintf("%s does not have this call: it is an older server, or no QueueBox server at all (%s)", s.server, what)
	case codes.ResourceExhausted:
		return fmt.Sprintf("%s answered with more than this command takes: %s", s.server, what)
	default:
		return fmt.Sprintf("%s answered %s: %s; is it a QueueBox server?", s.server, st.Code(), what)
	}
}

// flagOf names the flag that a field of a request came from, beside the field.
func flagOf(field string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(field, "queue."), "filter.")
	name, _, _ = strings.Cut(name, "[")
	if flag, ok := flagOfField()[name]; ok {
		return fmt.Sprintf("--%s (%s)", flag, field)
	}
	return field
}

// flagOfField holds the flags whose names are not those of their fields.
func flagOfField() map[string]string {
	flags := map[string]string{
		"states": "state", "dead_reasons": "dead-reason", "ordering_key": "ordering-key", "error_contains": "error-contains",
		"min_create_time": "since", "max_create_time": "before", "worker_id": "worker", "message_ids": "id", "reason_codes": "reason-code",
		"max_messages": "max-messages", "spread_ms": "spread", "max_attempts": "max-attempts", "payload": "payload", "etag": "etag",
		"content_type": "content-type", "attributes": "attribute", "idempotency_key": "idempotency-key", "priority": "priority",
		"delay_ms": "delay", "available_time": "at", "expire_time": "expire",
	}
	for _, f := range settingFlags() {
		flags[f.field] = f.flag
	}
	return flags
}
