package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size. Its text is a number, or a number with KiB, MiB or GiB.
type Bytes int64

// UnmarshalText reads a size.
func (b *Bytes) UnmarshalText(text []byte) error {
	digits, unit := string(text), int64(1)
	for suffix, factor := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if number, ok := strings.CutSuffix(digits, suffix); ok {
			digits, unit = number, factor
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("want a size such as 65536, 64KiB or 1MiB, got %q", text)
	}
	*b = Bytes(n * unit)
	return nil
}

// String writes a size with the largest unit that divides it.
func (b Bytes) String() string {
	switch {
	case b == 0:
		return "0"
	case b%(1<<30) == 0:
		return strconv.FormatInt(int64(b>>30), 10) + "GiB"
	case b%(1<<20) == 0:
		return strconv.FormatInt(int64(b>>20), 10) + "MiB"
	case b%(1<<10) == 0:
		return strconv.FormatInt(int64(b>>10), 10) + "KiB"
	}
	return strconv.FormatInt(int64(b), 10)
}
