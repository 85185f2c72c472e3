package domain

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// Databases hold these ids, so they must never change.
func TestSlotRunIDIsStable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ job, slot, want string }{
		{"0199c9a2-7b3c-7d10-9c3e-2f6f3f1d5a01", "2026-10-11T03:00:00Z", "01a128e7-2780-8804-a169-8fb691c134cb"},
		{"0199c9a2-7b3c-7d10-9c3e-2f6f3f1d5a01", "2026-10-11T03:00:00.001Z", "01a128e7-2781-8f01-9d24-caa286f12642"},
		{"0199c9a2-7b3c-7d10-9c3e-2f6f3f1d5a02", "2026-10-11T03:00:00Z", "01a128e7-2780-8a3f-b484-fa1a7cf221f7"},
		{"00000000-0000-0000-0000-000000000000", "1970-01-01T00:00:00Z", "00000000-0000-8d90-8ecf-b6b256def8b4"},
	} {
		if got := SlotRunID(uuid.MustParse(c.job), instant(t, c.slot)); got.String() != c.want {
			t.Errorf("job %s, slot %s: %s, want %s", c.job, c.slot, got, c.want)
		}
	}
}

func TestSlotRunIDDoesNotDependOnTheZone(t *testing.T) {
	t.Parallel()
	slot := instant(t, "03:00")
	if a, b := SlotRunID(jobID, slot), SlotRunID(jobID, slot.In(time.FixedZone("", 3600))); a != b {
		t.Errorf("%s in UTC, %s elsewhere", a, b)
	}
}

func TestRunIDsCarryTheirTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "ms"))
		for version, id := range map[uuid.Version]uuid.UUID{8: SlotRunID(jobID, at), 7: NewRunID(at)} {
			if id.Version() != version || id.Variant() != uuid.RFC4122 {
				t.Errorf("%s: version %d, variant %s", id, id.Version(), id.Variant())
			}
			var ms int64
			for _, b := range id[:6] {
				ms = ms<<8 | int64(b)
			}
			if ms != at.UnixMilli() {
				t.Errorf("%s begins with %d ms, want %d", id, ms, at.UnixMilli())
			}
		}
	})
}

func TestRunIDsSortByTime(t *testing.T) {
	t.Parallel()
	var ids []uuid.UUID
	start := instant(t, "03:00")
	for i := range 1000 {
		at := start.Add(time.Duration(i) * time.Millisecond)
		if i%2 == 0 {
			ids = append(ids, SlotRunID(jobID, at))
		} else {
			ids = append(ids, NewRunID(at))
		}
	}
	if !slices.IsSortedFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }) {
		t.Error("they do not")
	}
}

func TestRunIDsAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[uuid.UUID]bool{}
	slot := instant(t, "03:00")
	job := jobID
	for i := range 1000 {
		job[15], job[14] = byte(i), byte(i>>8)
		for _, id := range []uuid.UUID{SlotRunID(job, slot), NewRunID(slot)} {
			if seen[id] {
				t.Fatalf("%s twice", id)
			}
			seen[id] = true
		}
	}
}
