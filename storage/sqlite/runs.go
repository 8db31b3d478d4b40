package sqlite

import "sort"

// together is what is completed together: positions, and their tokens one after the other.
type together struct {
	positions []int64
	tokens    []byte
}

var _ sort.Interface = (*together)(nil)

func (t *together) Len() int           { return len(t.positions) }
func (t *together) Less(i, j int) bool { return t.positions[i] < t.positions[j] }

func (t *together) Swap(i, j int) {
	t.positions[i], t.positions[j] = t.positions[j], t.positions[i]
	a, b := t.tokens[tokenBytes*i:tokenBytes*(i+1)], t.tokens[tokenBytes*j:tokenBytes*(j+1)]
	var token [tokenBytes]byte
	copy(token[:], a)
	copy(a, b)
	copy(b, token[:])
}

func (t *together) part(r run) together {
	return together{t.positions[r.from:r.to], t.tokens[tokenBytes*r.from : tokenBytes*r.to]}
}

// run is a part of a list of positions.
type run struct {
	from, to int
	// whole: it has every position from first to last. A statement that takes a range of the
	// primary key costs about half of one that takes a list.
	whole       bool
	first, last int64
}

// minRun is how many positions a run must have on average; below it a list of all of them is
// cheaper than a statement for each run.
const minRun = 4

// runsOf splits positions into runs without a gap, or gives all of them as one list.
// Messages that were enqueued together are most often claimed and completed together.
func runsOf(positions []int64) []run {
	if len(positions) == 0 {
		return nil
	}
	var runs []run
	for from, i := 0, 1; i <= len(positions); i++ {
		if i < len(positions) && positions[i] == positions[i-1]+1 {
			continue
		}
		runs = append(runs, run{from: from, to: i, whole: true, first: positions[from], last: positions[i-1]})
		from = i
	}
	if len(runs) > 1 && len(runs)*minRun > len(positions) {
		return []run{{from: 0, to: len(positions)}}
	}
	return runs
}
