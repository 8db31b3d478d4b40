package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/queuebox/queuebox/cmd/queuebox-bench/drive"
	"github.com/queuebox/queuebox/cmd/queuebox-bench/host"
	"github.com/queuebox/queuebox/cmd/queuebox-bench/report"
)

// skippedError ends a contender that cannot run here, with what it said.
type skippedError struct{ reason string }

func (e *skippedError) Error() string { return e.reason }

// costs is what server and database had spent at one moment, in seconds of processor time; unread
// where it could not be read. The client tells its own with its events: it may have ended when
// they are read.
type costs struct {
	server, database float64
	// machine is that of everything on this machine.
	machine float64
	count   host.Count
}

const unread = -1

func (s *session) costs(ctx context.Context, i *instance) (costs, error) {
	read := func(pid int) float64 {
		used, err := host.CPU(pid)
		if err != nil {
			return unread
		}
		return used.Seconds()
	}
	c := costs{server: read(i.serverID()), database: read(s.postgres.ID()), machine: unread}
	if busy, err := host.Busy(); err == nil {
		c.machine = busy.Seconds()
	}
	var err error
	c.count, err = s.counters.Read(ctx, i.database)
	return c, err
}

// between is the difference of two readings.
func between(before, after float64) float64 {
	if before == unread || after == unread {
		return unread
	}
	return after - before
}

// loadBefore is the load average now; unread where the system does not tell.
func loadBefore() float64 {
	load, err := host.Load()
	if err != nil {
		return unread
	}
	return load
}

// window runs a client process to its end and reads what it cost while it measured. There is no
// window where the process does not measure.
func (s *session) window(ctx context.Context, command []string, spec drive.Spec, i *instance) (*report.Window, error) {
	load := loadBefore()
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	reader, writer := io.Pipe()
	defer func() { _ = reader.Close() }()
	//nolint:gosec,noctx // our own program; it ends below
	cmd := exec.Command(command[0], append(command[1:], string(text))...)
	cmd.Stdout = writer
	client, err := host.Start(spec.Load, cmd)
	if err != nil {
		return nil, err
	}
	defer client.Stop(syscall.SIGTERM, 10*time.Second)
	go func() {
		<-client.Exited()
		_ = writer.Close()
	}()
	lines := make(chan drive.Event)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(reader)
		for scanner.Scan() {
			var e drive.Event
			if json.Unmarshal(scanner.Bytes(), &e) == nil {
				lines <- e
			}
		}
	}()
	// Whatever comes after an early return is read away, so that the scanner ends.
	defer func() {
		go func() {
			for range lines {
			}
		}()
	}()
	var (
		before costs
		begun  float64
		found  *report.Window
	)
	patience := time.NewTimer(spec.Warmup + spec.Window + 3*time.Minute)
	defer patience.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-patience.C:
			return nil, fmt.Errorf("%s did not end", spec.Load)
		case e, ok := <-lines:
			if !ok {
				<-client.Exited()
				return found, client.Err()
			}
			switch e.Event {
			case drive.EventSkip:
				return nil, &skippedError{e.Reason}
			case drive.EventBegin:
				begun = e.CPU
				if before, err = s.costs(ctx, i); err != nil {
					return nil, err
				}
			case drive.EventEnd:
				if e.Result == nil {
					return nil, errors.New("the client ended its window without a result")
				}
				after, err := s.costs(ctx, i)
				if err != nil {
					return nil, err
				}
				found = &report.Window{
					LoadBefore:  load,
					MachineCPU:  between(before.machine, after.machine),
					Result:      *e.Result,
					ClientCPU:   e.CPU - begun,
					ServerCPU:   between(before.server, after.server),
					DatabaseCPU: between(before.database, after.database),
					Statements:  float64(after.count.Statements - before.count.Statements),
					WAL:         float64(after.count.WAL - before.count.WAL),
				}
			}
		}
	}
}
