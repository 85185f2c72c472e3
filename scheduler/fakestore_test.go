package scheduler

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"punctual/scheduler/admit"

	"github.com/google/uuid"

	"punctual/scheduler/credential"
	"punctual/scheduler/domain"
)

// fakeStore is a database that knows only slots and runs. Its clock is an hour ahead of this machine's.
type fakeStore struct {
	Store // the methods that the loops do not call here

	mu        sync.Mutex
	waiting   []fakeSlot                      // slots and runs that were not claimed yet
	roundTrip time.Duration                   // how long NextDue takes; set before the loops start
	others    []Heartbeat                     // the heartbeats of other replicas
	held      []domain.Outcome                // runs that are parked for their hosts, longest wait first
	states    []admit.HoldState               // what the replica last reported to hold back
	orders    []admit.HoldOrder               // orders for the replica's next report
	locked    bool                            // other transactions lock everything that is due
	claiming  func(ctx context.Context) error // called when a claim has committed, before it returns
	finish    func(ctx context.Context) error // decides the result of a write
	renew     func(ctx context.Context) error
	holding   []uuid.UUID                     // claims that a renewal finds under the replica's id
	peeking   func(ctx context.Context) error // called before Contenders looks who waits
	look      func() error
	wake      chan struct{}
	asked     map[string]chan struct{} // by writes, for chores
	signing   func() ([]credential.SigningKey, error)
	limits    []admit.TenantLimits
	frozen    *Freeze      // the freeze of the deployment
	halted    bool         // the deployment is frozen, and no heartbeat says so
	drawing   func() error // called before a draw
	drawn     time.Time    // starts are used up until then
	asks      []string     // the chores that a renewal names
	replaced  bool         // the next renewal says that another Postgres has taken over

	// The calls it received. Times are on its own clock.
	looks     []time.Time
	claims    []fakeClaim
	peeks     int // calls of Contenders
	draws     int
	finishes  []int // the number of outcomes in each write
	writes    int
	outcomes  []domain.Outcome
	released  []uuid.UUID
	leases    int
	reports   int         // of what is held back
	fetched   int         // parked runs that were claimed again
	lease     uuid.UUID   // the lease of the latest claim
	earlier   []uuid.UUID // the earlier runs of ended leases
	givenBack []uuid.UUID // claims that were given back
	lost      []uuid.UUID // claims that were lost
	doubted   []uuid.UUID // runs that were doubted
	draining  bool
	lacks     string
	stoppedAt time.Time // when the replica deregistered
}

// fakeSlot is a slot, or a run that waits in ready.
type fakeSlot struct {
	due   time.Time
	job   *domain.Job
	lane  int16
	ready bool
}

// work returns the kind of work that it is now.
func (s fakeSlot) work(now time.Time) domain.Work {
	switch {
	case s.ready && s.lane == domain.OrderLane(s.lane/4):
		return domain.WorkOrdered
	case s.ready:
		return domain.WorkReady
	case s.due.Before(now.Add(-OlderThan)):
		return domain.WorkLate
	}
	return domain.WorkDue
}

type fakeClaim struct {
	at    time.Time
	work  domain.Work
	asked int
	runs  int
}

const ahead = time.Hour

func newFakeStore() *fakeStore {
	return &fakeStore{wake: make(chan struct{}, 1)}
}

// fakeSigningSecret signs every request of these tests.
const fakeSigningSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbdbMUDWDBH0="

func (f *fakeStore) SigningKeys(context.Context, int32) ([]credential.SigningKey, error) {
	if f.signing != nil {
		return f.signing()
	}
	key, err := credential.NewSigningKey(fakeSigningSecret, time.Time{})
	return []credential.SigningKey{key}, err
}

func (f *fakeStore) NamedSecret(context.Context, int32, string) (s credential.Secret, err error) {
	return s, errAway
}

func (f *fakeStore) JobSecret(context.Context, int32, uuid.UUID, uuid.UUID) (s credential.Secret, err error) {
	return s, errAway
}

func (f *fakeStore) now() time.Time { return time.Now().Add(ahead) }

// add makes n slots of a job due after the given time, or that long ago if it is negative.
func (f *fakeStore) add(n int, job *domain.Job, in time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.waiting = append(f.waiting, fakeSlot{due: f.now().Add(in), job: job, lane: normalLane})
	}
}

// wait makes n runs of a job wait in ready, due since the given time ago, or after that long if it is negative.
func (f *fakeStore) wait(n int, job *domain.Job, since time.Duration, lane int16) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.waiting = append(f.waiting, fakeSlot{due: f.now().Add(-since), job: job, lane: lane, ready: true})
	}
}

func (f *fakeStore) NextDue(_ context.Context, queues LookInto, ahead bool) (Upcoming, error) {
	time.Sleep(f.roundTrip)
	f.mu.Lock()
	defer f.mu.Unlock()
	u := Upcoming{Now: f.now(), Halted: f.halted || f.frozen != nil}
	for _, l := range f.limits {
		if l.Frozen {
			u.Frozen = append(u.Frozen, l.Tenant)
		}
	}
	f.looks = append(f.looks, u.Now)
	if f.look != nil {
		if err := f.look(); err != nil {
			return Upcoming{}, err
		}
	}
	for _, s := range f.waiting {
		of := s.work(u.Now)
		if ahead && !s.due.After(u.Now) || !slices.Contains(queues[of], s.lane/4) {
			continue
		}
		switch of {
		case domain.WorkDue:
			sooner(&u.Schedule, s.due)
		case domain.WorkReady:
			sooner(&u.Ready, s.due)
		case domain.WorkLate:
			u.Older = true
		case domain.WorkOrdered:
			sooner(&u.Ordered, s.due)
		}
	}
	return u, nil
}

func sooner(of *time.Time, at time.Time) {
	if of.IsZero() || at.Before(*of) {
		*of = at
	}
}

func (f *fakeStore) Contenders(ctx context.Context, of domain.Work, queues []int16) ([]admit.Contender, error) {
	if f.peeking != nil {
		if err := f.peeking(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peeks++
	now := f.now()
	oldest := map[admit.Contender]time.Time{}
	for _, s := range f.waiting {
		if s.due.After(now) || s.work(now) != of || !slices.Contains(queues, s.lane/4) {
			continue
		}
		who := admit.Contender{Queue: s.lane / 4, Tenant: s.job.Tenant, Weight: 1}
		if t, ok := oldest[who]; !ok || s.due.Before(t) {
			oldest[who] = s.due
		}
	}
	var found []admit.Contender
	for who, at := range oldest {
		who.Oldest = at
		found = append(found, who)
	}
	return found, nil
}

func (f *fakeStore) ReadGiven(context.Context, *domain.Assignment) error { return nil }

func (f *fakeStore) ClaimReady(ctx context.Context, c Claim) (domain.Batch, error) {
	if c.Held != nil {
		return f.takeHeld(c), nil
	}
	return f.ClaimDue(ctx, c)
}

// ClaimDue claims whatever kind of work is asked for.
func (f *fakeStore) ClaimDue(ctx context.Context, c Claim) (domain.Batch, error) {
	if read(f, func() bool { return f.halted || f.frozen != nil }) {
		f.set(func() { f.claims = append(f.claims, fakeClaim{at: f.now(), work: c.Work}) })
		return domain.Batch{Halted: true}, nil
	}
	batch, committed := f.take(c)
	if committed != nil {
		if err := committed(ctx); err != nil {
			return domain.Batch{}, err
		}
	}
	return batch, nil
}

// takeHeld claims runs that are parked for one host.
func (f *fakeStore) takeHeld(c Claim) domain.Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	lease := &domain.Lease{ID: cmp.Or(c.Lease, uuid.New()), Work: c.Work, ClaimedAt: f.now()}
	var b domain.Batch
	f.held = slices.DeleteFunc(f.held, func(o domain.Outcome) bool {
		wanted := o.Held.By == c.Held.By && o.Job.Tenant == c.Held.Tenant && slices.Contains(c.Held.Lanes, o.Lane)
		if !wanted || len(b.Runs) == c.Held.Most || slices.Contains(c.Held.Not, o.Job.ID) {
			return false
		}
		a := o.Assignment
		a.Lease, a.Held = lease, &domain.Held{Since: o.Held.Since, Until: o.Held.Until, Fetched: true}
		b.Runs = append(b.Runs, a)
		return true
	})
	if b.Settled = len(b.Runs); b.Settled == c.Held.Most {
		b.Full = []int16{1}
	}
	if lease.Remaining = len(b.Runs); lease.Remaining > 0 {
		f.leases++
		f.fetched += lease.Remaining
	}
	return b
}

func (f *fakeStore) ReportHolds(_ context.Context, _ uuid.UUID, states []admit.HoldState) ([]admit.HoldOrder, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	orders := f.orders
	f.states, f.orders = states, nil
	f.reports++
	return orders, nil
}

func (f *fakeStore) take(c Claim) (domain.Batch, func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	call := fakeClaim{at: now, work: c.Work}
	lease := &domain.Lease{ID: cmp.Or(c.Lease, uuid.New()), Work: c.Work, ClaimedAt: now}
	var b domain.Batch
	for _, q := range c.Quotas {
		call.asked += q.Slots
		slices.SortStableFunc(f.waiting, func(a, b fakeSlot) int { return a.due.Compare(b.due) })
		left := f.waiting[:0:0]
		for _, s := range f.waiting {
			reached := s.work(now) == c.Work && !s.due.After(now.Add(-c.Behind)) &&
				(!c.Recent || !s.due.Before(now.Add(-RecentlyDue)))
			fresh := len(c.Except) == 0 || !slices.Contains(c.Except, s.job.Tenant) && s.due.After(now.Add(-c.Since))
			if f.locked || !reached || !fresh || s.lane/4 != q.Queue || q.Tenant != 0 && s.job.Tenant != q.Tenant ||
				q.Slots == 0 {
				left = append(left, s)
				continue
			}
			q.Slots--
			if q.Slots == 0 {
				b.Full = append(b.Full, q.Queue)
			}
			if !c.Grant.Take(s.job.Tenant, 1) {
				left = append(left, s)
				continue
			}
			b.Runs = append(b.Runs, domain.Assignment{
				RunID: uuid.New(), Job: s.job, Lane: s.lane, ScheduledFor: s.due, DueAt: s.due, Attempt: 1, Lease: lease,
			})
		}
		f.waiting = left
	}
	call.runs = len(b.Runs)
	f.claims = append(f.claims, call)
	lease.Remaining, b.Settled = len(b.Runs), len(b.Runs)
	if len(b.Runs) > 0 {
		f.leases++
		f.lease = lease.ID
	}
	return b, f.claiming
}

// Draw grants as much as the limits allow, because no other replica wants a share.
func (f *fakeStore) Draw(
	_ context.Context, _ uuid.UUID, wishes []admit.Wish,
) (allowances []admit.Allowance, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.draws++
	if f.drawing != nil {
		if err := f.drawing(); err != nil {
			return nil, err
		}
	}
	for _, w := range wishes {
		a := admit.Allowance{TenantLimits: admit.TenantLimits{Tenant: w.Tenant}}
		for _, l := range f.limits {
			if l.Tenant == w.Tenant {
				a.TenantLimits = l
			}
		}
		a.Slots = min(w.Slots, a.Concurrent)
		if a.Concurrent > 0 {
			a.Noted = max(a.Slots, w.Keep)
		}
		if a.PerSecond > 0 {
			a.Starts, a.Wait = f.start(w.Starts, time.Second/time.Duration(a.PerSecond))
		}
		allowances = append(allowances, a)
	}
	return allowances, nil
}

// start grants starts by the generic cell rate algorithm, with a burst of half a second's starts.
func (f *fakeStore) start(wanted int, each time.Duration) (starts int, wait time.Duration) {
	now := f.now()
	if oldest := now.Add(-max(each, time.Second/2)); f.drawn.Before(oldest) {
		f.drawn = oldest
	}
	starts = min(wanted, int(now.Sub(f.drawn)/each))
	f.drawn = f.drawn.Add(time.Duration(starts) * each)
	return starts, max(0, each-now.Sub(f.drawn))
}

func (f *fakeStore) Finish(
	ctx context.Context, outcomes []domain.Outcome, released []uuid.UUID, earlier ...uuid.UUID,
) (int, error) {
	f.mu.Lock()
	f.writes++
	finish := f.finish
	f.mu.Unlock()
	if finish != nil {
		if err := finish(ctx); err != nil {
			return 0, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finishes = append(f.finishes, len(outcomes))
	f.outcomes = append(f.outcomes, outcomes...)
	for _, o := range outcomes {
		if o.Verdict == domain.Hold {
			f.held = append(f.held, o)
		}
	}
	f.released = append(f.released, released...)
	f.earlier = append(f.earlier, earlier...)
	return 0, nil
}

func (f *fakeStore) Register(_ context.Context, r Replica) (map[string]int16, error) {
	numbers := map[string]int16{}
	for name := range r.Queues {
		numbers[name] = int16(len(numbers) + 1)
	}
	return numbers, nil
}

func (f *fakeStore) Renew(ctx context.Context, _ uuid.UUID, is Condition) (Pulse, error) {
	f.mu.Lock()
	f.draining, f.lacks = f.draining || is.Draining, is.Lacks
	renew, pulse := f.renew, Pulse{
		Known: true, Claims: slices.Clone(f.holding), Limits: slices.Clone(f.limits), Frozen: f.frozen,
		Others: f.beating(), Chores: slices.Clone(f.asks), Replaced: f.replaced,
	}
	f.replaced = false
	f.mu.Unlock()
	if renew != nil {
		return pulse, renew(ctx)
	}
	return pulse, nil
}

// beating returns the heartbeats of other replicas, each advanced by one beat.
func (f *fakeStore) beating() []Heartbeat {
	for i := range f.others {
		f.others[i].Beat++
	}
	return slices.Clone(f.others)
}

func (f *fakeStore) GiveBack(_ context.Context, claims []uuid.UUID) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.givenBack, f.holding = append(f.givenBack, claims...), nil
	return len(claims), nil
}

func (f *fakeStore) Lose(_ context.Context, claims, runs []uuid.UUID) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubted = append(f.doubted, runs...); runs == nil {
		f.lost, f.holding = append(f.lost, claims...), nil
	}
	return len(claims), nil
}

func (f *fakeStore) Deregister(context.Context, uuid.UUID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stoppedAt = f.now()
	return nil
}

func (f *fakeStore) Recover(context.Context, []Heartbeat) (int, error) { return 0, nil }
func (f *fakeStore) Wake() <-chan struct{}                             { return f.wake }
func (f *fakeStore) Asked(chore string) <-chan struct{}                { return f.asked[chore] }

func (f *fakeStore) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func read[T any](f *fakeStore, what func() T) T { f.mu.Lock(); defer f.mu.Unlock(); return what() }

func (f *fakeStore) ended() int { return read(f, func() int { return len(f.outcomes) }) }

func (f *fakeStore) runs() (n int) { return read(f, func() int { return sum(f.claims) }) }

// claimsAfter returns the claims that came later than at.
func (f *fakeStore) claimsAfter(at time.Time) []fakeClaim {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.claims), func(c fakeClaim) bool { return !c.at.After(at) })
}

// endedOf returns how many outcomes of a job were written.
func (f *fakeStore) endedOf(job *domain.Job) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.outcomes {
		if o.Job == job {
			n++
		}
	}
	return n
}

func sum(claims []fakeClaim) (n int) {
	for _, c := range claims {
		n += c.runs
	}
	return n
}

// verdicts counts the written outcomes by verdict.
func (f *fakeStore) verdicts() map[domain.Verdict]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := map[domain.Verdict]int{}
	for _, o := range f.outcomes {
		n[o.Verdict]++
	}
	return n
}

// once checks that every claimed run has exactly one outcome and that every lease was released exactly once.
func (f *fakeStore) once(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[uuid.UUID]int{}
	for _, o := range f.outcomes {
		seen[o.RunID]++
	}
	if claimed := sum(f.claims); len(f.outcomes) != claimed+f.fetched || len(seen) != claimed {
		t.Errorf("%d runs were claimed, and %d of them again; %d outcomes of %d runs were written", claimed, f.fetched,
			len(f.outcomes), len(seen))
	}
	slices.SortFunc(f.released, func(a, b uuid.UUID) int { return cmp.Compare(a.String(), b.String()) })
	if n := len(slices.Compact(slices.Clone(f.released))); n != f.leases || len(f.released) != f.leases {
		t.Errorf("%d leases were taken, %d of them released, %d times in all", f.leases, n, len(f.released))
	}
}

var errAway = errors.New("the database is away")

// away and hang are what a call to the database does that fails: it ends at once, or not before its caller gives up.
func away(context.Context) error { return errAway }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
