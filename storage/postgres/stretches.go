package postgres

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// While somebody holds a snapshot, an index keeps the entries of all rows that died since, and a
// pass that walks the index from its start meets all of them, again and again, to see the few
// rows that live. So a pass remembers the long stretches in which nothing lived and leaves them
// out, and a paced look goes through them, piece by piece. They are hints: what they hide is
// found by that look. Little can be hidden, for places rise, and what is new stands behind all
// that is remembered: a message that was redriven elsewhere keeps its position, and so does one
// whose transaction was open for longer than stretchLag when the stretch was met.
const (
	// costly is how long a page takes, at least, for which it is worth to remember what it met.
	costly = 5 * time.Millisecond
	// wide is how far two rows are apart, at least, where the stretch between them is remembered;
	// up to half as many entries lie there, since positions rise by two.
	wide = 1000
	// maxStretches bounds those remembered; the widest stay.
	maxStretches = 128
	// stretchLag is how long a place must have been that of a living row before a stretch may
	// reach up to it: a pass, for each walks over all that died since the stretch ends.
	stretchLag = 900 * time.Millisecond
	// stretchStep is how far apart two moments are of which the highest place is remembered.
	stretchStep = stretchLag / 8
	// stretchRest is how long a stretch is left alone after a look began to go through it.
	stretchRest = 10 * time.Second
	// lookTime is about the time that a pass takes to look at pieces of stretches, a twentieth of
	// the second between two, and lookPieces how many there are at most. pieceTime is about the time
	// of one; minPiece and maxPiece bound it.
	lookTime   = 50 * time.Millisecond
	lookPieces = 16
	pieceTime  = 20 * time.Millisecond
	minPiece   = wide
	maxPiece   = 1 << 40
	// firstWidth and minWidth bound how far a page reads where a whole one has timed out.
	firstWidth = 1 << 18
	minWidth   = 1 << 12
)

// lastPlace is behind all rows.
var lastPlace = storage.Ref{QueueID: math.MaxInt32, Position: math.MaxInt64} //nolint:gochecknoglobals // a constant

// behind is the place behind that of a row.
func behind(r storage.Ref) storage.Ref {
	return storage.Ref{QueueID: r.QueueID, Position: r.Position + 1}
}

// stretch is a part of an index: from the first place up to the second one, which is not in it.
type stretch struct{ from, to storage.Ref }

func (s stretch) has(r storage.Ref) bool {
	return compareRefs(s.from, r) <= 0 && compareRefs(r, s.to) < 0
}

// splitStretches gives the arguments of a statement.
func splitStretches(parts []stretch) (fromIDs []int32, from []int64, toIDs []int32, to []int64) {
	for _, p := range parts {
		fromIDs, from = append(fromIDs, p.from.QueueID), append(from, p.from.Position)
		toIDs, to = append(toIDs, p.to.QueueID), append(to, p.to.Position)
	}
	return fromIDs, from, toIDs, to
}

// emptyStretch is one of a single queue, in which nothing lived when it was walked through last.
type emptyStretch struct {
	stretch

	seen time.Time // when that began
	// done is how far the look has come that goes through it again, since begun, and took what
	// that has taken so far.
	done  storage.Ref
	begun time.Time
	took  time.Duration
}

func (e *emptyStretch) width() int64 { return e.to.Position - e.from.Position }

// newestMark is the highest position that was met from one moment to another.
type newestMark struct {
	from, to time.Time
	newest   int64
}

// stretches remembers the empty stretches of one index, in its order. Places are references of
// messages, or queue 0 and the id of an ordering key.
type stretches struct {
	mu     sync.Mutex
	empty  []emptyStretch
	queues map[int32]struct{} // in which rows were met
	// newest is the highest position of a living row that was met, settled what it was stretchLag
	// before, and marks what it was since then, the oldest first.
	newest, settled int64
	marks           []newestMark
	// piece is how much of a stretch one statement looks at, width how much a page reads; 0 is all.
	piece, width int64
	costly       time.Duration // costly, but in tests
}

func newStretches() *stretches {
	return &stretches{queues: map[int32]struct{}{}, piece: 20 * wide, costly: costly}
}

// parts are what a page reads that goes on behind a row: all but the empty stretches.
func (s *stretches) parts(last storage.Ref) []stretch {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := behind(last)
	var out []stretch
	for _, e := range s.empty {
		if compareRefs(e.to, from) <= 0 {
			continue
		}
		if compareRefs(from, e.from) < 0 {
			out = append(out, stretch{from, e.from})
		}
		from = e.to
	}
	to := lastPlace
	if s.width > 0 && from.Position < math.MaxInt64-s.width {
		to = storage.Ref{QueueID: from.QueueID, Position: from.Position + s.width}
	}
	return append(out, stretch{from, to})
}

// failed says that a page was not done in the time of a statement.
func (s *stretches) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width == 0 {
		s.width = firstWidth
	} else {
		s.width = max(s.width/4, minWidth)
	}
}

// met takes in what a page has read: the highest position of its rows and, where rows is not
// nil, all of them in their order. full says that the page ended with the last of them.
func (s *stretches) met(now time.Time, parts []stretch, newest int64, rows []storage.Ref, full bool, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark(now, newest)
	switch {
	case s.width > maxPiece:
		s.width = 0
	case took < pieceTime:
		s.width *= 4
	}
	if rows == nil {
		return
	}
	for _, r := range rows {
		s.queues[r.QueueID] = struct{}{}
	}
	for _, p := range parts {
		from := p.from
		for len(rows) > 0 && p.has(rows[0]) {
			s.between(now, from, rows[0])
			from, rows = behind(rows[0]), rows[1:]
		}
		if full && len(rows) == 0 {
			break
		}
		s.between(now, from, p.to)
	}
	s.tidy()
}

// mark notes the highest position of a page.
func (s *stretches) mark(now time.Time, newest int64) {
	for len(s.marks) > 0 && now.Sub(s.marks[0].to) >= stretchLag {
		s.settled, s.marks = s.marks[0].newest, s.marks[1:]
	}
	s.newest = max(s.newest, newest)
	n := len(s.marks) - 1
	if n < 0 || now.Sub(s.marks[n].from) >= stretchStep {
		s.marks, n = append(s.marks, newestMark{from: now}), n+1
	}
	s.marks[n].to, s.marks[n].newest = now, s.newest
}

// between remembers that nothing was met from one place to another. Where they are of two queues
// that is the end of one, where new rows come, all of those between, and the start of the other.
func (s *stretches) between(now time.Time, from, to storage.Ref) {
	if from.QueueID == to.QueueID {
		s.add(now, from, to.Position)
		return
	}
	s.add(now, from, math.MaxInt64)
	for id := range s.queues {
		if id > from.QueueID && id < to.QueueID {
			s.add(now, storage.Ref{QueueID: id}, math.MaxInt64)
		}
	}
	if to != lastPlace {
		s.add(now, storage.Ref{QueueID: to.QueueID}, to.Position)
	}
}

func (s *stretches) add(now time.Time, from storage.Ref, to int64) {
	if to = min(to, s.settled); to-from.Position >= wide {
		s.empty = append(s.empty, emptyStretch{
			stretch: stretch{from, storage.Ref{QueueID: from.QueueID, Position: to}}, seen: now, done: from,
		})
	}
}

// tidy puts the stretches in order, joins those that touch, and keeps the widest.
func (s *stretches) tidy() {
	slices.SortFunc(s.empty, func(a, b emptyStretch) int { return compareRefs(a.from, b.from) })
	out := s.empty[:0]
	for _, e := range s.empty {
		n := len(out) - 1
		if n < 0 || compareRefs(out[n].to, e.from) < 0 {
			out = append(out, e)
			continue
		}
		if compareRefs(out[n].to, e.to) < 0 {
			out[n].to = e.to
		}
		if e.seen.Before(out[n].seen) {
			out[n].seen = e.seen
		}
	}
	for len(out) > maxStretches {
		narrow := 0
		for i := range out {
			if out[i].width() < out[narrow].width() {
				narrow = i
			}
		}
		out = slices.Delete(out, narrow, narrow+1)
	}
	s.empty = out
}

// again is the piece of a stretch that the paced look goes through next.
func (s *stretches) again(now time.Time) (piece stretch, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next *emptyStretch
	for i := range s.empty {
		e := &s.empty[i]
		if e.done != e.from { // one that was begun is ended first
			next = e
			break
		}
		if next == nil || e.seen.Before(next.seen) {
			next = e
		}
	}
	if next == nil || next.done == next.from && now.Sub(next.seen) < stretchRest {
		return stretch{}, false
	}
	if next.done == next.from {
		next.begun, next.took = now, 0
	}
	to := next.to
	to.Position = min(to.Position, next.done.Position+s.piece)
	return stretch{next.done, to}, true
}

// looked takes in what was met in a piece. Rows that live there are left out no more. full says
// that there may be more behind the last of them.
func (s *stretches) looked(piece stretch, rows []storage.Ref, full bool, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case took < pieceTime/2:
		s.piece = min(2*s.piece, maxPiece)
	case took > 2*pieceTime:
		s.piece = max(s.piece/2, minPiece)
	}
	done := piece.to
	if full && len(rows) > 0 {
		done = behind(rows[len(rows)-1])
	}
	i := slices.IndexFunc(s.empty, func(e emptyStretch) bool { return e.done == piece.from })
	if i >= 0 {
		e := &s.empty[i]
		e.done = done
		e.took += took
		if compareRefs(e.done, e.to) >= 0 {
			e.done, e.seen = e.from, e.begun
			if e.took < s.costly {
				s.empty = slices.Delete(s.empty, i, i+1) // what was dead there has been removed
			}
		}
	}
	s.split(rows)
}

// open takes places out of the stretches.
func (s *stretches) open(rows ...storage.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.split(rows)
}

func (s *stretches) split(rows []storage.Ref) {
	for _, r := range rows {
		i := slices.IndexFunc(s.empty, func(e emptyStretch) bool { return e.has(r) })
		if i < 0 {
			continue
		}
		var parts []emptyStretch
		for _, p := range []stretch{{s.empty[i].from, r}, {behind(r), s.empty[i].to}} {
			e := s.empty[i]
			e.stretch = p
			if e.width() < wide {
				continue
			}
			if compareRefs(e.done, e.from) < 0 || compareRefs(e.done, e.to) >= 0 {
				e.done, e.took = e.from, 0
			}
			parts = append(parts, e)
		}
		s.empty = slices.Replace(s.empty, i, i+1, parts...)
	}
}
