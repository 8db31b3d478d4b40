package config

import (
	"iter"
	"strings"
)

// nearest returns the known name that is closest to the unknown one by edits. Case and
// the choice between dash and underscore count for nothing, since they are what people
// mix up most.
func nearest(unknown string, known iter.Seq[string]) string {
	best, bestDistance := "", -1
	for name := range known {
		d := distance(canonical(unknown), canonical(name))
		if bestDistance < 0 || d < bestDistance || (d == bestDistance && name < best) {
			best, bestDistance = name, d
		}
	}
	return best
}

func canonical(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", "-"))
}

// distance is the number of insertions, deletions and substitutions of a byte between
// two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substituted := diagonal
			if a[i] != b[j] {
				substituted++
			}
			diagonal = row[j+1]
			row[j+1] = min(substituted, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
