package domain

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"punctual/scheduler/cron"
)

func TestDueIsInOrderAndWithinJitterAndHalfTheGap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSimulation(t)
		table, jitter := s.job.Timetable, s.job.Jitter.Value()
		own := time.Duration(-1) // the offset where the gap is no limit
		var before time.Time
		for i, slot := range s.left[:min(len(s.left)-1, 50)] {
			due, gap := table.Due(slot, nil), s.left[i+1].Sub(slot)
			offset := due.Sub(slot)
			if offset < 0 || offset > 0 && offset >= min(jitter, gap/2) {
				t.Fatalf("slot %s is due %s later; jitter %s, gap %s", slot, offset, jitter, gap)
			}
			if !due.After(before) || !due.Before(s.left[i+1]) {
				t.Fatalf("slot %s is due at %s, the one before at %s, and the next slot is %s", slot, due, before, s.left[i+1])
			}
			if before = due; offset%time.Microsecond != 0 {
				t.Fatalf("%s is more precise than the database", offset)
			}
			if jitter <= gap/2 {
				if own >= 0 && own != offset {
					t.Fatalf("slot %s is due %s later, others %s", slot, offset, own)
				}
				own = offset
			}
			if again := table.Due(slot, new(cron.Memo)).Sub(slot); again != offset {
				t.Fatalf("slot %s is due %s later, with a memo %s", slot, offset, again)
			}
		}
	})
}

func TestNextAndPrevAreThoseOfTheRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSimulation(t)
		table := s.job.Timetable
		for i, slot := range s.left[:min(len(s.left)-1, 50)] {
			within := slot.Add(time.Duration(rapid.Int64Range(0, int64(s.left[i+1].Sub(slot))-1).Draw(t, "within")))
			if next, ok := table.Next(within, nil); !ok || !next.At.Equal(s.left[i+1]) {
				t.Fatalf("Next(%s) is %s, %t; want %s", within, next.At, ok, s.left[i+1])
			}
			if prev, ok := table.Prev(within); !ok || !prev.At.Equal(slot) {
				t.Fatalf("Prev(%s) is %s, %t; want %s", within, prev.At, ok, slot)
			}
		}
		if s.ended {
			last := s.left[len(s.left)-1]
			if next, ok := table.Next(last, nil); ok {
				t.Fatalf("Next after the last slot %s is %s", last, next.At)
			}
			if prev, ok := table.Prev(last.AddDate(1, 0, 0)); !ok || !prev.At.Equal(last) {
				t.Fatalf("Prev long after the last slot is %s, %t; want %s", prev.At, ok, last)
			}
		}
	})
}
