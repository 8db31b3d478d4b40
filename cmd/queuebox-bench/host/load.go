package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Load is the load average of the last minute.
func Load() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, fmt.Errorf("load average: %w", err)
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("load average: %w", err)
	}
	return load, nil
}

// Busy is the processor time that the whole machine has used since it started, with that of the
// kernel and what other machines on the same processor took from it.
func Busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("processor time of the machine: %w", err)
	}
	return busy(string(text))
}

// busy reads the first line of /proc/stat.
func busy(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	// user, nice, system, idle, iowait, irq, softirq, steal; what guests take is in user already.
	const idle, iowait, last = 4, 5, 8
	if len(fields) <= last || fields[0] != "cpu" {
		return 0, fmt.Errorf("processor time of the machine: %q", line)
	}
	var ticks int64
	for i, f := range fields[1 : last+1] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of the machine: %w", err)
		}
		if at := i + 1; at != idle && at != iowait {
			ticks += n
		}
	}
	return time.Duration(ticks) * clockTick, nil
}
