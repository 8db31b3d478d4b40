package drive

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// What a process is to do.
const (
	// Fill enqueues Count messages and ends.
	Fill = "fill"
	// Cycle enqueues, claims and completes for the length of a window.
	Cycle = "cycle"
	// Burn works off the Count messages that Fill left and ends; nothing is enqueued beside it.
	Burn = "burn"
	// Latency enqueues Rate messages a second into an idle queue and measures until a handler
	// starts.
	Latency = "latency"
)

// Spec is the order to a process.
type Spec struct {
	// Load names the client program, with its shape.
	Load string `json:"load"`
	// Do is one of the constants above.
	Do string `json:"do"`
	// Database is the URL of the database, Server the address of the server of the contender;
	// each only where there is one.
	Database string `json:"database,omitempty"`
	Server   string `json:"server,omitempty"`
	Queue    string `json:"queue"`
	// Payload is the size of a body in bytes.
	Payload int `json:"payload"`
	// Keys is the number of ordering keys, 0 for messages without one.
	Keys  int `json:"keys,omitempty"`
	Count int `json:"count,omitempty"`
	Rate  int `json:"rate,omitempty"`
	// Warmup runs before the window and is not measured.
	Warmup time.Duration `json:"warmup"`
	Window time.Duration `json:"window"`
}

// What a line says.
const (
	EventBegin = "begin"
	EventEnd   = "end"
	// EventSkip ends a contender that this server or this machine cannot run, with the reason.
	EventSkip = "skip"
)

// Event is one line that a process writes.
type Event struct {
	Event string `json:"event"`
	// CPU is the processor time that the process has used so far, in seconds.
	CPU    float64 `json:"cpu,omitempty"`
	Result *Result `json:"result,omitempty"`
	Reason string  `json:"reason,omitempty"`
}

// Result is what one window brought.
type Result struct {
	// Messages are whole cycles.
	Messages int64   `json:"messages"`
	Seconds  float64 `json:"seconds"`
	// Steps are the times of single calls, by the name of the step.
	Steps map[string]Percentiles `json:"steps,omitempty"`
}

// Percentiles are in milliseconds.
type Percentiles struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
}

// Say writes one event as a line.
func Say(w io.Writer, e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("event: %w", err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("event: %w", err)
	}
	return nil
}
