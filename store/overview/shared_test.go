package overview_test

import (
	"sync"
	"testing"
	"time"

	. "punctual/internal/storetest"
)

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
