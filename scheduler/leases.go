package scheduler

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// remembered is how long a claim that was asked for and never answered may still turn up: its commit may wait for a
// standby. What turns up later counts as sent.
const remembered = time.Hour

// leases are what a replica knows of its claims. The database may know better: the answer to a claim may be lost, and
// an asynchronous failover loses outcomes that were acknowledged. Safe for concurrent use.
type leases struct {
	mu      sync.Mutex
	held    map[uuid.UUID][]uuid.UUID // claims with runs here, each with its other runs: their outcomes were acknowledged
	asked   map[uuid.UUID]time.Time   // claims of which nothing was sent, and when they were asked for
	given   map[uuid.UUID]time.Time   // claims given back, and when: their answers may still be under way
	unknown map[uuid.UUID]bool        // claims in the replica's name that it did not hold at the last beat
}

func newLeases() *leases {
	return &leases{
		held: map[uuid.UUID][]uuid.UUID{}, asked: map[uuid.UUID]time.Time{}, given: map[uuid.UUID]time.Time{},
	}
}

// ask returns the id for a claim that is about to be made. Until hold, nothing of it is sent.
func (l *leases) ask() uuid.UUID {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := uuid.New()
	l.asked[id] = time.Now()
	return id
}

// empty records that a claim has no runs.
func (l *leases) empty(id uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, id)
}

// hold records that the runs of a lease are about to be sent. It returns false for a lease that was given back because
// the answer to its claim came so late: other replicas may be sending its runs.
func (l *leases) hold(id uuid.UUID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.given[id]; ok {
		return false
	}
	delete(l.asked, id)
	l.held[id] = nil
	return true
}

// earlier returns the runs of leases whose outcomes were acknowledged before now.
func (l *leases) earlier(ids []uuid.UUID) (runs []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		runs = append(runs, l.held[id]...)
	}
	return runs
}

// acknowledge records that outcomes were acknowledged, and that leases have ended. Only the finisher calls it.
func (l *leases) acknowledge(outcomes []domain.Outcome, ended []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ended {
		delete(l.held, id)
	}
	for i := range outcomes {
		if lease := outcomes[i].Lease; lease.Remaining > 0 {
			l.held[lease.ID] = append(l.held[lease.ID], outcomes[i].RunID)
		}
	}
}

// doubtful returns the leases of which some outcomes were acknowledged, and the runs of these outcomes.
func (l *leases) doubtful() (ids, runs []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, written := range l.held {
		if len(written) > 0 {
			ids, runs = append(ids, id), append(runs, written...)
		}
	}
	return ids, runs
}

// strays returns the claims in the replica's name that it did not hold at two beats in a row. Seen at one beat only,
// such a claim may just have been committed. Nothing was sent of those in unsent: the answer to the claim was lost, or
// comes later than that. From now on their runs must not be sent. The database has denied the end of those in lost:
// they were held, and ended with an outcome that was acknowledged.
func (l *leases) strays(claims []uuid.UUID) (unsent, lost []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := map[uuid.UUID]bool{}
	for _, id := range claims {
		if _, ok := l.held[id]; !ok {
			now[id] = true
		}
	}
	maps.DeleteFunc(l.given, func(_ uuid.UUID, at time.Time) bool { return time.Since(at) > 2*tickTimeout })
	maps.DeleteFunc(l.asked, func(_ uuid.UUID, at time.Time) bool { return time.Since(at) > remembered })
	for _, id := range slices.DeleteFunc(claims, func(id uuid.UUID) bool { return !now[id] || !l.unknown[id] }) {
		if _, ok := l.asked[id]; ok {
			l.given[id] = time.Now()
			unsent = append(unsent, id)
		} else {
			lost = append(lost, id)
		}
	}
	l.unknown = now
	return unsent, lost
}

// doubt looks whether the database has lost outcomes of leases with runs that go on. When the last run of a lease ends,
// Finish looks by itself.
func (s *Scheduler) doubt(ctx context.Context) (wait time.Duration, left bool, err error) {
	claims, runs := s.heart.leases.doubtful()
	if len(runs) == 0 {
		return 0, false, nil
	}
	return 0, false, s.lose(ctx, claims, runs)
}

// lose ends attempts whose outcomes the database has lost. The runs are tried again.
func (s *Scheduler) lose(ctx context.Context, claims, runs []uuid.UUID) error {
	if len(claims) == 0 {
		return nil
	}
	n, err := s.store.Lose(ctx, claims, runs)
	if n > 0 {
		s.log.Error("the database has lost outcomes that it had acknowledged; their attempts count as lost", "runs", n)
	}
	return err
}

// doubtAll forgets or tells again what the database may have lost, although it had acknowledged it: outcomes, slots of
// tenants with limits, reports of what is held back, and secrets. A lost version of a secret gives its number to the
// next one, so what was made with it is not known by its number.
func (s *Scheduler) doubtAll() {
	s.log.Warn("another Postgres has taken over, or it was restarted; what it has lost is looked for")
	s.admission.Limits.Forget()
	s.transport.sender.Forget()
	s.chores.ask(choreOutcomes, ChoreHolds)
}
