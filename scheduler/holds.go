package scheduler

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery"
)

// holds keeps back runs whose host cannot be reached or whose requests hang, and says which of them may be sent. The
// runs themselves wait in the database; a replica that stops takes nothing with it but what it knew of the hosts.
type holds struct {
	breakers *breaker.Breakers
	hangs    *breaker.Hangs
	sizes    map[int16]int // worker slots by queue
	changed  func()        // is told when something is held back that was not, or the reverse
}

// flight is a request that holds let out.
type flight struct {
	permit breaker.Permit
	hang   *breaker.Flight
}

// admit asks whether an attempt may be sent now.
func (h *holds) admit(a Assignment, to *url.URL) (f flight, wait *breaker.Wait) {
	key := breakerKey(a.Job.Tenant, to)
	turn := breaker.Fresh
	if a.Held != nil && a.Held.Fetched {
		turn = breaker.Waited
	}
	byHand := turn
	if a.Trigger == TriggerManual {
		byHand = breaker.Always
	}
	reach := byHand
	if a.Job.Retry.MaxAttempts == 1 {
		reach = breaker.Always // it has no backoff in which it could wait
	}
	if f.permit, wait = h.breakers.Admit(key, reach); wait != nil {
		return f, wait
	}
	queue := a.Lane / 4
	f.hang, wait = h.hangs.Admit(breaker.Request{
		Queue: queue, Slots: h.sizes[queue], Older: a.older(), To: breaker.Place{Key: key, Path: to.EscapedPath()}, Turn: byHand,
	})
	if wait != nil {
		f.permit.Done(breaker.Unknown, "")
	}
	return f, wait
}

// done tells how the request ended. lent is true when its worker slot was given to others meanwhile.
func (h *holds) done(f flight, r delivery.Result) (lent bool) {
	opened := f.permit.Done(hostAnswer(r), r.Error)
	lent, hang := h.hangs.End(f.hang, r.Status != 0, r.Reason == delivery.ReasonTimeout && r.Sent)
	if opened || hang {
		h.changed()
	}
	return lent
}

// holdBack is what it means for a run that it must not be sent now: it waits, unless it has waited for as long as it may.
func (a Assignment) holdBack(wait *breaker.Wait, now time.Time) Outcome {
	held := Held{By: wait.By, Since: now, Until: now.Add(a.patience(wait))}
	if a.Held != nil {
		held.Since, held.Until = a.Held.Since, a.Held.Until
	}
	o := Outcome{Assignment: a, FinishedAt: now}
	if !now.Before(held.Until) {
		o.Verdict, o.Reason = Abandon, ReasonUnreachable
		if wait.Hanging {
			o.Reason = ReasonTimeout
		}
		most := a.Job.Retry.MaxAttempts
		o.Error = fmt.Sprintf("%d of %d attempts made, %d not made; waited %s: %s",
			a.Attempt-1, most, most-a.Attempt+1, now.Sub(held.Since).Round(time.Second), strings.TrimPrefix(wait.Why, "waiting: "))
		return o
	}
	until := held.Until
	if expiry := a.DueAt.Add(a.Job.ExpiresAfter.Value()); a.expires() && expiry.Before(until) {
		until = expiry
	}
	o.Verdict, o.Held, o.Error, o.RetryIn = Hold, &held, wait.Why, max(until.Sub(now), time.Millisecond)
	return o
}

// patience is how long a run may wait for its host before this attempt: for an unreachable one as long as its remaining
// backoffs could have taken, for one that hangs as long as these and the timeouts of its remaining attempts. So it dies
// when it would have died had it been sent.
func (a Assignment) patience(wait *breaker.Wait) time.Duration {
	d := a.Job.Retry.Remaining(a.Attempt)
	if wait.Hanging {
		d += time.Duration(max(1, a.Job.Retry.MaxAttempts-a.Attempt+1)) * a.Job.Timeout.Value()
	}
	return d
}

// HeldClaim asks for runs that wait for a host that may be sent some now: the longest unsent first.
type HeldClaim struct {
	Tenant int32
	By     string // what holds them back
	Queues []int16
	Most   int
	Not    []uuid.UUID // jobs that had their turn already
}

// mostFetched is how many hosts' runs one tick fetches.
const mostFetched = 16

// fetchHeld claims runs that wait for their hosts and may be sent now.
func (t *ticker) fetchHeld(ctx context.Context) error {
	h := t.s.holds
	for _, w := range h.breakers.Wanted(mostFetched) {
		claim := HeldClaim{Tenant: w.Tenant, By: w.By(), Queues: t.s.slots.free(), Most: min(w.Most, BatchSize), Not: w.Not}
		if len(claim.Queues) == 0 {
			return nil
		}
		batch, err := t.claimBatch(ctx, ready, Claim{Held: &claim})
		if err != nil {
			return err
		}
		if h.breakers.Fetched(w, jobsOf(batch.Runs), batch.Full || batch.Halted || len(batch.Frozen) > 0) {
			h.changed()
		}
	}
	for _, w := range h.hangs.Wanted(t.s.slots.room(), mostFetched) {
		claim := HeldClaim{Tenant: w.Tenant, By: w.By(), Queues: []int16{w.Queue}, Most: min(w.Most, BatchSize)}
		batch, err := t.claimBatch(ctx, ready, Claim{Held: &claim})
		if err != nil {
			return err
		}
		h.hangs.Fetched(w, len(batch.Runs))
	}
	return nil
}

func jobsOf(runs []Assignment) []uuid.UUID {
	jobs := make([]uuid.UUID, len(runs))
	for i, a := range runs {
		jobs[i] = a.Job.ID
	}
	return jobs
}

// HoldState is what a replica holds runs back for, as others see it.
type HoldState struct {
	Tenant     int32
	By         string // such as "breaker billing.internal:443"
	State      string // open, recovering, hanging
	Failures   int    // in a row
	LastError  string
	For        time.Duration // since when
	ProbeIn    time.Duration // open: until the next probe; 0: it is under way
	Host, Path string
}

// The states of a hold.
const (
	HoldOpen       = "open"       // the host cannot be reached
	HoldRecovering = "recovering" // it can be reached again, and is sent more and more
	HoldHanging    = "hanging"    // requests time out
)

// HoldOrder is what a replica is told to do about something that it holds runs back for.
type HoldOrder struct {
	Tenant     int32
	Host, Path string
	Hanging    bool
	Reset      bool // somebody asked for a reset; otherwise another replica has reached the host
}

// states returns what is held back, for the database.
func (h *holds) states() (all []HoldState) {
	for _, b := range h.breakers.All() {
		s := HoldState{
			Tenant: b.Tenant, By: b.By(), State: HoldOpen, Failures: b.Failures, LastError: b.LastError,
			For: b.OpenFor, ProbeIn: b.ProbeIn, Host: b.Host,
		}
		if b.Recovering {
			s.State = HoldRecovering
		}
		all = append(all, s)
	}
	for _, g := range h.hangs.All() {
		all = append(all, HoldState{
			Tenant: g.Tenant, By: g.By(), State: HoldHanging, Failures: g.Timeouts, For: g.For, Host: g.Host, Path: g.Path,
			LastError: fmt.Sprintf("%d timeouts in a row", g.Timeouts),
		})
	}
	return all
}

// obey does what the database says about what is held back.
func (h *holds) obey(orders []HoldOrder) {
	for _, o := range orders {
		key := breaker.Key{Tenant: o.Tenant, Host: o.Host}
		switch {
		case o.Reset && o.Hanging:
			h.hangs.Reset(breaker.Place{Key: key, Path: o.Path})
		case o.Reset:
			h.breakers.Reset(key)
		default:
			h.breakers.Probe(key)
		}
	}
}

// tellHolds writes what this replica holds back, and releases runs that nothing holds back any more.
func (s *Scheduler) tellHolds(ctx context.Context) (wait time.Duration, left bool, err error) {
	orders, err := s.reportHolds(ctx)
	if err != nil {
		return 0, false, err
	}
	s.holds.obey(orders)
	if slices.ContainsFunc(orders, func(o HoldOrder) bool { return o.Reset }) {
		if _, err := s.reportHolds(ctx); err != nil {
			return 0, false, err
		}
	}
	left, err = s.store.ReleaseHeld(ctx)
	return 0, left, err
}

func (s *Scheduler) reportHolds(ctx context.Context) (orders []HoldOrder, err error) {
	states := s.holds.states()
	if len(states) == 0 && !s.toldHolds {
		return nil, nil
	}
	orders, err = s.store.ReportHolds(ctx, s.replica.ID, states)
	s.toldHolds = len(states) > 0 || err != nil
	return orders, err
}

// lendSlots gives the worker slots of requests that take very long to others.
func (s *Scheduler) lendSlots(context.Context) {
	lent := s.holds.hangs.Long()
	for _, l := range lent {
		s.slots.lend(l.Queue, l.Older, 1)
	}
	if len(lent) > 0 {
		s.slots.wake()
		s.log.Warn("requests in flight for more than a minute take more than a quarter of the worker slots; others get their slots", "requests", len(lent))
	}
}

// untilFetch returns how long to sleep until a run that waits may be sent, at most so long; never so short that the
// loop spins. Without a free worker slot there is no use in it.
func (t *ticker) untilFetch(most time.Duration) time.Duration {
	wait := t.s.holds.breakers.Until(most)
	if wait < most && len(t.s.slots.free()) > 0 {
		return max(wait, shortestPause)
	}
	return most
}

// any reports whether an answer may let more runs go that wait.
func (h *holds) any() bool { return h.breakers.Recovering() || h.hangs.Any() }
