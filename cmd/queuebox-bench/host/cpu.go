package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of the times in /proc, the same on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// times is what /proc says about a process.
type times struct {
	parent int
	used   time.Duration
}

// CPU is the processor time that the process and all its descendants have used so far, those
// that have ended among them as long as their parents waited for them. A pid of 0 has used none.
func CPU(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(paths) == 0 {
		return 0, fmt.Errorf("processor time of process %d: this system has no /proc", pid)
	}
	all := make(map[int]times, len(paths))
	for _, path := range paths {
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		if t, err := parseStat(string(text)); err == nil {
			all[id] = t
		}
	}
	if _, ok := all[pid]; !ok {
		return 0, fmt.Errorf("processor time of process %d: it has ended", pid)
	}
	var sum time.Duration
	for id, t := range all {
		if descends(all, id, pid) {
			sum += t.used
		}
	}
	return sum, nil
}

// descends tells whether a process is of the tree of another.
func descends(all map[int]times, id, root int) bool {
	for range 64 { // a pid that was used again could close a circle
		if id == root {
			return true
		}
		t, ok := all[id]
		if !ok {
			return false
		}
		id = t.parent
	}
	return false
}

// parseStat reads a line of /proc/<pid>/stat: the name stands in parentheses and may hold spaces
// and parentheses itself. Used are the times of the process and of the children that it waited
// for.
func parseStat(text string) (times, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const (
		ppid  = 1  // field 4 of proc(5)
		utime = 11 // field 14; then stime, cutime, cstime
	)
	if len(fields) < utime+4 {
		return times{}, fmt.Errorf("no line of /proc/<pid>/stat: %q", text)
	}
	parent, err := strconv.Atoi(fields[ppid])
	if err != nil {
		return times{}, fmt.Errorf("parent in /proc/<pid>/stat: %w", err)
	}
	t := times{parent: parent}
	for _, field := range fields[utime : utime+4] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return times{}, fmt.Errorf("time in /proc/<pid>/stat: %w", err)
		}
		t.used += time.Duration(ticks) * clockTick
	}
	return t, nil
}
