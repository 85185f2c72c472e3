package fences

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// What a replica remembers of a database may not be true any more on a new timeline.
func TestWhatIsKnownIsForgottenOnANewTimeline(t *testing.T) {
	t.Parallel()
	var g Guard
	forgotten := 0
	g.OnOther(func() { forgotten++ })
	for range 2 {
		g.look(timeline{here: "00000001"})
		if forgotten > 0 || g.Replaced() {
			t.Error("it is forgotten on the same timeline")
		}
	}
	g.look(timeline{here: "00000002"})
	if forgotten != 1 || !g.Replaced() || g.Replaced() {
		t.Errorf("on a new one it is forgotten %d times", forgotten)
	}
}

// A lease is looked at as it ends, unless the same Postgres has run since it was claimed.
func TestWhichLeasesAreOfThisPostgres(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for name, tt := range map[string]struct {
		then func(*Guard)
		want bool
	}{
		"nothing has happened":            {func(*Guard) {}, true},
		"a heartbeat finds the same":      {func(g *Guard) { g.look(timeline{here: "1", started: at}) }, true},
		"there is a new connection":       {(*Guard).begin, false},
		"Postgres was restarted":          {func(g *Guard) { g.look(timeline{here: "1", started: at.Add(1)}) }, false},
		"another Postgres was promoted":   {func(g *Guard) { g.look(timeline{here: "2", started: at}) }, false},
		"Postgres does not tell any more": {func(g *Guard) { g.postgres.Store(nil) }, false},
	} {
		g := &Guard{forget: func() {}}
		g.look(timeline{here: "1", started: at})
		old := domain.Outcome{Assignment: domain.Assignment{Lease: &domain.Lease{ID: uuid.New(), Started: g.Started()}}}
		tt.then(g)
		leases := []uuid.UUID{old.Lease.ID}
		if got := g.StartedFor(leases, []domain.Outcome{old}); (got != nil) != tt.want {
			t.Errorf("%s: the lease is of this Postgres: %t", name, got != nil)
		}
		fresh := domain.Outcome{Assignment: domain.Assignment{Lease: &domain.Lease{ID: uuid.New(), Started: g.Started()}}}
		if got := g.StartedFor(append(leases, fresh.Lease.ID), []domain.Outcome{old, fresh}); (got != nil) != tt.want {
			t.Errorf("%s: it is together with a new one: %t", name, got != nil)
		}
		if g.StartedFor(leases, []domain.Outcome{fresh}) != nil {
			t.Errorf("%s: a lease without an outcome is of this Postgres", name)
		}
	}
}
