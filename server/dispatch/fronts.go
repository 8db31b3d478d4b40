package dispatch

import (
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// maxFronts bounds the priorities remembered for one queue; beyond it the one that gave a
	// message longest ago is forgotten, and scanned whole.
	maxFronts = 32
	// maxSuspects bounds the rows that are looked for below the fronts.
	maxSuspects = 1000
	// suspectLife is how long a row is looked for that should be claimable and is not: somebody
	// has locked it for a moment, or it was claimed or renewed elsewhere.
	suspectLife = 3 * time.Second
	// nearMargin is how far a front stays behind the clock, since a row may be committed a moment
	// after the clock that its ready time was read from. What is committed later than that hides
	// behind the front. Where notifications tell of it the front comes back for it; where nobody
	// does, some claims start behind their front, so far that they meet what was committed within
	// farMargin. Not all of them, for behind a snapshot that somebody holds they walk over all that
	// died in that time; but one in farEvery, so that a poll is always one of them.
	nearMargin = 50 * time.Millisecond
	farMargin  = 2 * time.Second
	farEvery   = 500 * time.Millisecond
	// frontLife is how long the fronts of a queue are kept that nobody claims from: the paced
	// look that keeps them honest rests with the claims (W7).
	frontLife = 20 * time.Second
)

// place is where a row stands among those of its priority: by its ready time on the clock of
// the database, in microseconds, then by its position.
type place struct{ ready, position int64 }

func (p place) before(o place) bool {
	return p.ready < o.ready || p.ready == o.ready && p.position < o.position
}

func (p place) min(o place) place {
	if o.before(p) {
		return o
	}
	return p
}

func placeAt(t time.Time) place { return place{ready: t.UnixMicro()} }

func placeOf(m *storage.Message) place {
	return place{ready: m.ReadyTime.UnixMicro(), position: m.Ref.Position}
}

// fronts remembers, for the priorities of one queue, the place before which nothing is ready
// as far as this server knows: what stands there is leased, gone, or in somebody's hands. A
// claim that starts there pays nothing for it. They are hints and no more: whatever makes a
// row claimable that may stand below its front lowers the front, and what nobody tells of is
// found by the paced look (W7). The lock of the queue is held in all methods.
type fronts struct {
	at   map[int32]*front
	turn uint64
	// due is the time before which no delayed message is left, zero where that is not known.
	due time.Time
	// suspects are rows below the fronts that should be claimable, by position.
	suspects map[int64]suspect
	// far is the clock of the database at the last claim that started far behind the fronts, zero
	// where there was none, farAt when the next one is due, in local time, and flyingFar that the
	// claim under way is one.
	far, farAt time.Time
	flyingFar  bool
	// claim and look are what came up while one of them is under way.
	claim, look *sunk
}

type front struct {
	place

	used uint64 // the turn in which it gave a message last
}

type suspect struct {
	priority int32
	place    place
	until    time.Time // local
}

// sunk is what became known while a statement was under way that may not have seen it.
type sunk struct {
	all *place
	at  map[int32]place
	due time.Time // of the first delayed message that became known, zero where none did
}

func (s *sunk) lower(priority int32, p place) {
	if s == nil {
		return
	}
	if old, ok := s.at[priority]; ok {
		p = p.min(old)
	}
	if s.at == nil {
		s.at = map[int32]place{}
	}
	s.at[priority] = p
}

func (s *sunk) lowerAll(p place) {
	if s == nil {
		return
	}
	if s.all != nil {
		p = p.min(*s.all)
	}
	s.all = &p
}

// cut takes back from a new place of a priority what came up meanwhile.
func (s *sunk) cut(priority int32, p place) place {
	if s == nil {
		return p
	}
	if s.all != nil {
		p = p.min(*s.all)
	}
	if low, ok := s.at[priority]; ok {
		p = p.min(low)
	}
	return p
}

// forget forgets all places, also for a look under way: it only looks before those it was given.
func (f *fronts) forget() {
	f.at, f.suspects, f.due, f.far, f.look = nil, nil, time.Time{}, time.Time{}, nil
}

func (f *fronts) known() bool { return len(f.at) > 0 }

// lower says that a row of a priority may be claimable at a place.
func (f *fronts) lower(priority int32, p place) {
	if old := f.at[priority]; old != nil {
		old.place = old.min(p)
	}
	f.claim.lower(priority, p)
	f.look.lower(priority, p)
}

// lowerDue says that a delayed message may be due since then.
func (f *fronts) lowerDue(ready time.Time) {
	if ready.Before(f.due) {
		f.due = ready
	}
	if c := f.claim; c != nil && (c.due.IsZero() || ready.Before(c.due)) {
		c.due = ready
	}
}

// lowerAll says that a row of any priority may be claimable, with this ready time or a later one.
func (f *fronts) lowerAll(ready time.Time) {
	p := placeAt(ready)
	for _, old := range f.at {
		old.place = old.min(p)
	}
	f.lowerDue(ready)
	f.claim.lowerAll(p)
	f.look.lowerAll(p)
}

// hides tells whether a claim would start behind what is ready since then, in any priority or
// among the delayed.
func (f *fronts) hides(ready time.Time) bool {
	if ready.Before(f.due) {
		return true
	}
	p := placeAt(ready)
	for _, at := range f.at {
		if p.before(at.place) {
			return true
		}
	}
	return false
}

// suspect says that a row is claimable by now, and stays so until a claim has got it: it may
// be locked for a moment.
func (f *fronts) suspect(position int64, priority int32, p place, until time.Time) {
	f.lower(priority, p)
	if len(f.suspects) >= maxSuspects {
		return
	}
	if f.suspects == nil {
		f.suspects = map[int64]suspect{}
	}
	f.suspects[position] = suspect{priority, p, until}
}

// clear says that a row is not claimable, or not at that place.
func (f *fronts) clear(position int64) { delete(f.suspects, position) }

// hints are what a claim is given. They are never nil, which tells it that hints are in use.
func (f *fronts) hints(now time.Time) []storage.ScanHint {
	low := map[int32]place{}
	for position, s := range f.suspects {
		if !s.until.After(now) {
			delete(f.suspects, position)
			continue
		}
		if old, ok := low[s.priority]; ok {
			s.place = s.place.min(old)
		}
		low[s.priority] = s.place
	}
	out := make([]storage.ScanHint, 0, len(f.at))
	for priority, at := range f.at {
		p := at.place
		if s, ok := low[priority]; ok {
			p = p.min(s)
		}
		out = append(out, storage.ScanHint{Priority: priority, ReadyTime: time.UnixMicro(p.ready).UTC(), Position: p.position})
	}
	return out
}

// begin says that a claim is under way from now on, and gives what it is told. Nobody tells of a
// delayed message again when it is due; told says whether others tell of the rest.
func (f *fronts) begin(now time.Time, told bool) (from []storage.ScanHint, due time.Time) {
	f.claim = &sunk{}
	from, due = f.hints(now), f.due
	if f.flyingFar = !now.Before(f.farAt); !f.flyingFar {
		return from, due
	}
	f.farAt = now.Add(farEvery)
	if f.far.IsZero() {
		return from, due
	}
	low := f.far.Add(-farMargin)
	if low.Before(due) {
		due = low
	}
	for i := range from {
		if !told && low.Before(from[i].ReadyTime) {
			from[i].ReadyTime, from[i].Position = low, 0
		}
	}
	return from, due
}

// beginLook says that a paced look is under way from now on.
func (f *fronts) beginLook() { f.look = &sunk{} }

// end moves the fronts by what a claim has found, and never beyond the margin behind its clock.
// Of the rows that were taken the last one says most: what stood before it in the order of a
// claim was taken, or could not be.
func (f *fronts) end(res storage.ClaimResult) {
	meanwhile := f.claim
	f.claim = nil
	if f.flyingFar || f.far.IsZero() {
		f.far = res.Now
	}
	limit := placeAt(res.Now.Add(-nearMargin))
	if limit := res.Now.Add(-nearMargin); res.DueEnd || limit.Before(f.due) {
		f.due = limit
		if meanwhile != nil && !meanwhile.due.IsZero() && meanwhile.due.Before(limit) {
			f.due = meanwhile.due
		}
	}
	f.turn++
	var last *storage.Message
	for _, call := range res.Calls {
		if call.Status != storage.ClaimServed {
			continue
		}
		for i := range call.Messages {
			m := &call.Messages[i].Message
			f.clear(m.Ref.Position)
			f.use(m.Priority)
			if last == nil || behind(m, last) {
				last = m
			}
		}
	}
	if res.End && f.at[0] == nil {
		// Most queues know no other priority, and it may be that all their messages go to others.
		f.use(0)
	}
	for priority, at := range f.at {
		p := at.place
		switch {
		case res.End, last != nil && priority > last.Priority:
			p = limit
		case last != nil && priority == last.Priority:
			p = placeOf(last)
			p.position++
		}
		if p.before(at.place) {
			p = at.place // a suspect below the front was the last one
		}
		at.place = meanwhile.cut(priority, p.min(limit))
	}
}

// behind tells whether a message stands behind another one in the order of a claim.
func behind(m, o *storage.Message) bool {
	if m.Priority != o.Priority {
		return m.Priority < o.Priority
	}
	return placeOf(o).before(placeOf(m))
}

// use makes a priority known, from its start on, and notes that it was met now.
func (f *fronts) use(priority int32) {
	at := f.at[priority]
	if at == nil {
		if f.at == nil {
			f.at = map[int32]*front{}
		}
		at = &front{place: lowest}
		f.at[priority] = at
	}
	at.used = f.turn
	if len(f.at) <= maxFronts {
		return
	}
	oldest := priority
	for p, o := range f.at {
		if o.used < f.at[oldest].used {
			oldest = p
		}
	}
	if oldest != priority {
		delete(f.at, oldest)
		return
	}
	for p := range f.at { // all of them were met now
		if p != priority {
			delete(f.at, p)
			return
		}
	}
}

// lowest is before every row.
var lowest = placeAt(time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC))

// endLook takes in what a paced look has found: it lowers the fronts to the rows that they
// hide, and tells whether there were any. A priority that it met without anything claimable
// becomes known, as if a claim had come to the end of it.
func (f *fronts) endLook(res storage.FirstReadyResult) (found bool) {
	meanwhile := f.look
	f.look = nil
	limit := placeAt(res.Now.Add(-nearMargin))
	if !res.Due.IsZero() {
		found = res.Due.Before(f.due)
		f.lowerDue(res.Due)
	}
	for _, r := range res.Priorities {
		at := f.at[r.Priority]
		switch {
		case r.Found:
			p := placeAt(r.ReadyTime)
			p.position = r.Position
			if at != nil && p.before(at.place) {
				found = true
			}
			f.lower(r.Priority, p)
		case at == nil && meanwhile != nil && len(f.at) < maxFronts:
			f.use(r.Priority)
			f.at[r.Priority].place = meanwhile.cut(r.Priority, limit)
		}
	}
	return found
}
