package claim

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/definitions"
)

// What a replica remembers of a database may not be true any more on a new timeline.
func TestANewTimelineLetsTheSweepBeginAnew(t *testing.T) {
	t.Parallel()
	s := &Claims{rooms: rooms{definitions: definitions.New(0, 0, nil)}}
	s.look(timeline{here: "00000001"}, false)
	run := uuid.New()
	s.swept.Store(&run)
	s.look(timeline{here: "00000001"}, false)
	if s.swept.Load() != &run || s.replaced.Load() {
		t.Errorf("on the same timeline the sweep goes on from %v", s.swept.Load())
	}
	s.look(timeline{here: "00000002"}, false)
	if s.swept.Load() != nil || !s.replaced.Load() {
		t.Error("the sweep goes on as if nothing were lost")
	}
	s.swept.CompareAndSwap(&run, new(uuid.New())) // of a batch that was under way
	if s.swept.Load() != nil {
		t.Error("a batch that was under way let the sweep go on where it was")
	}
}

// A lease is looked at as it ends, unless the same Postgres has run since it was claimed.
func TestWhichLeasesAreOfThisPostgres(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for name, tt := range map[string]struct {
		then func(*Claims)
		want bool
	}{
		"nothing has happened":            {func(*Claims) {}, true},
		"a heartbeat finds the same":      {func(s *Claims) { s.look(timeline{here: "1", started: at}, false) }, true},
		"there is a new connection":       {func(s *Claims) { s.look(timeline{here: "1", started: at}, true) }, false},
		"Postgres was restarted":          {func(s *Claims) { s.look(timeline{here: "1", started: at.Add(1)}, false) }, false},
		"another Postgres was promoted":   {func(s *Claims) { s.look(timeline{here: "2", started: at}, false) }, false},
		"Postgres does not tell any more": {func(s *Claims) { s.postgres.Store(nil) }, false},
	} {
		s := &Claims{rooms: rooms{definitions: definitions.New(0, 0, nil)}}
		s.look(timeline{here: "1", started: at}, true)
		old := domain.Outcome{Assignment: domain.Assignment{Lease: &domain.Lease{ID: uuid.New(), Started: s.started()}}}
		tt.then(s)
		leases := []uuid.UUID{old.Lease.ID}
		if got := s.startedFor(leases, []domain.Outcome{old}); (got != nil) != tt.want {
			t.Errorf("%s: the lease is of this Postgres: %t", name, got != nil)
		}
		fresh := domain.Outcome{Assignment: domain.Assignment{Lease: &domain.Lease{ID: uuid.New(), Started: s.started()}}}
		if got := s.startedFor(append(leases, fresh.Lease.ID), []domain.Outcome{old, fresh}); (got != nil) != tt.want {
			t.Errorf("%s: it is together with a new one: %t", name, got != nil)
		}
		if s.startedFor(leases, []domain.Outcome{fresh}) != nil {
			t.Errorf("%s: a lease without an outcome is of this Postgres", name)
		}
	}
}
