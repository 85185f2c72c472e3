package overview_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
)

// The list of failing jobs shares the board's search for them, so it shows the jobs that the board counts.
func TestTheFailingJobsAreSearchedOnceForBoardAndList(t *testing.T) {
	c := NewReplica(t)
	c.Overview.SetAge(time.Hour)
	board, err := c.Overview.Shared(t.Context(), c.Tenant)
	Must(t, err)
	c.Create("a", Never)
	c.Finish(Failed(c.Begun("a")))
	for range 2 {
		ids, err := c.Overview.FailingJobs(t.Context(), c.Tenant)
		if err != nil || len(ids) != board.Failing.Count {
			t.Errorf("%d jobs are listed and %d on the board, of the same second (%v)", len(ids), board.Failing.Count, err)
		}
	}
	c.Overview.SetAge(0)
	ids, err := c.Overview.FailingJobs(t.Context(), c.Tenant)
	if err != nil || len(ids) != 1 {
		t.Errorf("%d jobs are listed later, want 1 (%v)", len(ids), err)
	}
	ids[0] = uuid.Nil // what a caller does with its list is its own
	c.Overview.SetAge(time.Hour)
	if ids, err = c.Overview.FailingJobs(t.Context(), c.Tenant); err != nil || len(ids) != 1 || ids[0] == uuid.Nil {
		t.Errorf("another caller has %v (%v)", ids, err)
	}
	if ids, err = c.Overview.FailingJobs(t.Context(), c.Intruder().Tenant); err != nil || len(ids) != 0 {
		t.Errorf("another tenant has %v (%v)", ids, err)
	}
}

// However many look at the board, it is read once for all of them; and it is read anew when it is old.
func TestABoardIsReadOnceForAllWhoLookAtIt(t *testing.T) {
	c := NewReplica(t)
	c.Overview.SetAge(time.Hour)
	asOf := make([]time.Time, 20)
	var all sync.WaitGroup
	for i := range asOf {
		all.Go(func() {
			f, err := c.Overview.Shared(t.Context(), c.Tenant)
			if err != nil {
				t.Error(err)
			}
			asOf[i] = f.AsOf
		})
	}
	all.Wait()
	for _, at := range asOf {
		if !at.Equal(asOf[0]) {
			t.Fatalf("the board was read at %s and at %s", asOf[0], at)
		}
	}
	other, err := c.Overview.Shared(t.Context(), c.Intruder().Tenant)
	Must(t, err)
	c.Overview.SetAge(0)
	f, err := c.Overview.Shared(t.Context(), c.Tenant)
	Must(t, err)
	if !other.AsOf.After(asOf[0]) || !f.AsOf.After(asOf[0]) {
		t.Errorf("another tenant's board is as of %s, an old one read anew as of %s, that of all %s", other.AsOf, f.AsOf, asOf[0])
	}
}
