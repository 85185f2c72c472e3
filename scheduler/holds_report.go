package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"punctual/scheduler/breaker"
	"punctual/scheduler/domain"
)

// HoldState is something that a replica holds runs back for, as other replicas see it.
type HoldState struct {
	Tenant     int32
	By         string // such as "breaker billing.internal:443"
	State      string // open, recovering, hanging
	Failures   int    // in a row
	LastError  string
	For        time.Duration // for how long it has been so
	ProbeIn    time.Duration // open: until the next probe; 0: the probe is under way
	Host, Path string
}

// The states of a hold.
const (
	HoldOpen       = "open"       // the host cannot be reached
	HoldRecovering = "recovering" // the host can be reached again, and gets more and more requests
	HoldHanging    = "hanging"    // requests time out
)

// HoldOrder tells a replica what to do about something that it holds runs back for.
type HoldOrder struct {
	Tenant     int32
	Host, Path string
	Hanging    bool
	Reset      bool // somebody asked for a reset; otherwise another replica has reached the host
}

// states returns what this replica holds back, for the database.
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

// obey carries out the orders that the database returned.
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

// tellHolds writes what this replica holds back.
func (s *Scheduler) tellHolds(ctx context.Context) (wait time.Duration, left bool, err error) {
	orders, err := s.store.ReportHolds(ctx, s.replica.ID, s.holds.states())
	s.holds.obey(orders) // after an error too: the database has forgotten them
	if err == nil && slices.ContainsFunc(orders, func(o HoldOrder) bool { return o.Reset }) {
		_, err = s.store.ReportHolds(ctx, s.replica.ID, s.holds.states())
	}
	return 0, false, err
}

// lendSlots lends the worker slots of requests that take very long to other runs.
func (s *Scheduler) lendSlots(context.Context) {
	lent := s.holds.hangs.Long()
	for _, l := range lent {
		s.slots.lend(l.Queue, domain.Work(l.Work), 1)
	}
	if len(lent) > 0 {
		s.slots.wake()
		s.log.Warn(
			"requests in flight for more than a minute occupy over a quarter of the worker slots; other runs get extra slots",
			"requests", len(lent))
	}
}
