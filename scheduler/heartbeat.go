package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// heartbeatEvery, give or take a tenth, is at most two seconds. A cancel arrives with a heartbeat, and has to arrive
	// within two seconds.
	heartbeatEvery = 1800 * time.Millisecond
	// renewTimeout bounds a renewal, so that a hanging database does not go unnoticed.
	renewTimeout = 3 * time.Second
	// actTimeout bounds what follows from a renewal, because no other renewal is made meanwhile.
	actTimeout = 5 * time.Second
	// selfCheckEvery is how often a replica checks whether its heartbeat has failed for too long.
	selfCheckEvery = 500 * time.Millisecond
)

// errNotRenewed is the cause when attempts of jobs that must not overlap are cut off: other replicas may have taken
// over.
var errNotRenewed = errors.New("this replica could not renew its heartbeat")

// heartbeat keeps this replica known as alive and takes over from replicas that are not. When this replica can no
// longer tell whether others have taken over, it stops the risky work here.
type heartbeat struct {
	s      *Scheduler
	watch  *watch
	leases *leases

	mu       sync.Mutex
	gated    context.Context // context of attempts whose jobs must not overlap
	cutGated context.CancelCauseFunc
}

func newHeartbeat(s *Scheduler) *heartbeat {
	return &heartbeat{s: s, watch: newWatch(time.Now()), leases: newLeases()}
}

// beat renews the heartbeat once, and acts on the answer. It reports whether there was one. draining tells the others
// that this replica is stopping.
func (h *heartbeat) beat(ctx context.Context, draining bool) bool {
	limited, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	sent := time.Now()
	pulse, err := h.s.store.Renew(limited, h.s.replica.ID, Condition{draining, h.s.config.Shortages.Lacks()})
	if err != nil {
		if ctx.Err() == nil {
			h.s.config.Vitals.Note(PathHeartbeats, err, time.Now())
			h.s.log.Warn("the heartbeat failed", "error", err)
		}
		return false
	}
	h.s.config.Vitals.Note(PathHeartbeats, nil, time.Now())
	h.s.config.Client.Guard().SetTenants(pulse.AllowedTargets)
	acting, stop := context.WithTimeout(ctx, actTimeout)
	defer stop()
	h.s.admission.Limits.Set(pulse.Limits)
	h.s.freezing.heed(pulse.Frozen, pulse.Limits)
	if err := h.act(acting, pulse, h.watch.observe(sent, time.Now(), pulse.Others)); err != nil && ctx.Err() == nil {
		h.s.log.Warn("taking over from lost replicas failed; the next heartbeat tries again", "error", err)
	}
	if err := h.s.settle(acting, draining); err != nil && ctx.Err() == nil {
		h.s.log.Warn("tenants' limits could not be shared out; the next heartbeat tries again", "error", err)
	}
	return true
}

// act does what a pulse asks for.
func (h *heartbeat) act(ctx context.Context, pulse Pulse, lost []Heartbeat) error {
	if !pulse.Known {
		h.s.log.Error("other replicas declared this replica lost; it joins again, and its attempts are fenced off")
		h.s.admission.Limits.Forget()
		numbers, err := h.s.store.Register(ctx, h.s.replica)
		if err != nil {
			return err
		}
		if !h.s.admission.Slots.Numbered(numbers) {
			h.s.log.Error(
				"the database has lost the numbers of this replica's queues and has given them others; restart this replica",
				"queues", numbers)
		}
	}
	if pulse.Replaced {
		h.s.doubtAll()
	}
	h.s.flights.cancel(pulse.Cancels)
	h.s.chores.ask(pulse.Chores...)
	if len(h.s.admission.Holds.States()) > 0 {
		h.s.chores.ask(ChoreHolds)
	}
	if len(h.s.flights.replaceable()) > 0 {
		h.s.chores.ask(choreReplace)
	}
	// Strays first: they are given back once, and a long recovery may take all the time there is.
	unsent, denied := h.leases.strays(pulse.Claims)
	return errors.Join(h.giveBack(ctx, unsent), h.s.lose(ctx, denied, nil), h.recover(ctx, pulse.Orphans, lost))
}

// recover takes over the runs of lost replicas, and of replicas that were removed before.
func (h *heartbeat) recover(ctx context.Context, orphans bool, lost []Heartbeat) error {
	if len(lost) > 0 {
		h.s.log.Warn("replicas are lost", "count", len(lost), "first", lost[0].Replica)
	}
	for orphans || len(lost) > 0 {
		n, err := h.s.store.Recover(ctx, lost)
		if err != nil || n == 0 {
			return err
		}
		orphans, lost = true, nil // they are removed
		h.s.metrics.recovered.Add(float64(n))
		h.s.log.Warn("runs of lost replicas recovered", "count", n)
	}
	return nil
}

// giveBack gives back claims of which nothing was sent.
func (h *heartbeat) giveBack(ctx context.Context, claims []uuid.UUID) error {
	if len(claims) == 0 {
		return nil
	}
	n, err := h.s.store.GiveBack(ctx, claims)
	if err != nil {
		return err
	}
	h.s.log.Warn("claims whose commit was in doubt are given back", "claims", len(claims), "runs", n)
	return nil
}

// exclusive returns the context of attempts whose jobs must not overlap. It ends early, with errNotRenewed, when this
// replica can no longer tell whether others have taken over.
func (h *heartbeat) exclusive() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gated == nil || (h.gated.Err() != nil && !h.watch.expired(time.Now())) {
		h.gated, h.cutGated = context.WithCancelCause(h.s.workCtx)
	}
	return h.gated
}

// check cuts the attempts of jobs that must not overlap off when the heartbeat has failed for too long. All other
// attempts may finish: they are fenced, and their jobs allow overlap.
func (h *heartbeat) check(context.Context) {
	if !h.watch.expired(time.Now()) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gated != nil && h.gated.Err() == nil {
		h.s.log.Error("the heartbeat has failed for too long: attempts of jobs that must not overlap are cut off")
		h.cutGated(errNotRenewed)
	}
}
