package breaker

import (
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// tripAfter is how many failures in a row open a breaker.
	tripAfter = 10
	// The cooldown before a probe doubles with each probe that fails.
	shortestCooldown = 5 * time.Second
	longestCooldown  = time.Minute
	// fullSpeed is how many requests a host answers at a time that has recovered.
	fullSpeed = 256
	// calm is how long none must have had to wait for a host to have recovered, however few it is allowed.
	calm = time.Minute
	// trickle is how often a recovering host gets one more request though its allowance is taken: it may
	// be taken by work that lasts for hours.
	trickle = time.Second
)

type state int

const (
	closed state = iota
	open
	recovering
)

// host is what is remembered of a host that has failed.
type host struct {
	state    state
	round    int           // grows with every change of state, and with every cooldown
	failures int           // in a row
	last     string        // error of the latest one
	since    time.Time     // when the breaker opened, for the first time since it was closed
	touched  time.Time     // when somebody last asked for it, or it last failed
	cooldown time.Duration // until the next probe, up to its jitter
	nextAt   time.Time     // from then one more request may go out, whatever is under way
	inFlight int           // of those let out in this round
	allowed  int           // while recovering: how many may be in flight
	latency  time.Duration // of the latest answer while recovering
	heldBack time.Time     // when a request last had to wait, or the recovery began
}

func (h *host) idle(now time.Time) bool { return now.Sub(h.touched) > forgetAfter }

// admit lets a request out if it may go, while the breaker is not closed.
func (h *host) admit(now time.Time) bool {
	due := !now.Before(h.nextAt)
	switch {
	case h.state == open && due:
		h.nextAt = now.Add(longestCooldown) // should the probe hang for so long, another one goes out
	case h.state == recovering && (due || h.inFlight < h.allowed):
		h.nextAt = now.Add(trickle)
	default:
		h.heldBack = now
		return false
	}
	h.inFlight++
	return true
}

// wait is for a request that admit refused.
func (h *host) wait(name string, now time.Time) *Wait {
	if h.state == recovering {
		return &Wait{
			For: between(h.latency/2, h.latency*3/2),
			Why: fmt.Sprintf("waiting: %s answers again after failures; so far %d at a time are let through", name, h.allowed),
		}
	}
	left := h.nextAt.Sub(now)
	next := fmt.Sprintf("the next probe is in %s", max(left.Round(time.Second), time.Second))
	if h.inFlight > 0 {
		left, next = h.cooldown, "a probe is under way"
	}
	return &Wait{
		For: between(left, left+h.cooldown/2),
		Why: fmt.Sprintf("waiting: the circuit breaker of %s is open after %s (last: %s); %s", name, inARow(h.failures), h.last, next),
	}
}

// settle enters how a request of this round ended, and how long it took.
func (h *host) settle(a Answer, why string, now time.Time, took time.Duration) {
	h.inFlight = max(h.inFlight-1, 0)
	switch {
	case a == Answered:
		h.answered(now, took)
	case a == Failed:
		h.failed(why, now)
	case h.state == open:
		h.nextAt = now // the probe told nothing: the next request is one
	}
}

func (h *host) answered(now time.Time, took time.Duration) {
	h.failures = 0
	h.latency = min(max(took, trickle), longestCooldown)
	switch {
	case h.state == open:
		h.enter(recovering, now.Add(trickle))
		h.allowed, h.heldBack = 1, now
	case h.state == recovering && (h.allowed+1 >= fullSpeed || now.Sub(h.heldBack) > calm):
		h.enter(closed, time.Time{})
	case h.state == recovering:
		h.allowed++
	}
}

func (h *host) failed(why string, now time.Time) {
	if h.state == closed && h.idle(now) {
		h.failures = 0 // those were of another outage
	}
	h.failures++
	h.last, h.touched = why, now
	switch h.state {
	case closed:
		if h.failures >= tripAfter {
			h.since = now
			h.cool(shortestCooldown, now)
		}
	case open:
		h.cool(2*h.cooldown, now)
	case recovering:
		if h.allowed--; h.allowed == 0 || h.failures >= tripAfter {
			h.cool(2*h.cooldown, now)
		}
	}
}

// cool opens the breaker for a cooldown; the jitter keeps the probes of several replicas apart.
func (h *host) cool(d time.Duration, now time.Time) {
	h.cooldown = min(d, longestCooldown)
	h.enter(open, now.Add(between(h.cooldown*4/5, h.cooldown)))
}

func (h *host) enter(s state, nextAt time.Time) {
	h.state, h.nextAt, h.inFlight = s, nextAt, 0
	h.round++
}

func inARow(failures int) string {
	if failures == 1 {
		return "another failure"
	}
	return fmt.Sprintf("%d failures in a row", failures)
}

// between returns a random duration from a up to b.
func between(a, b time.Duration) time.Duration {
	return a + time.Duration(rand.Float64()*float64(b-a)) //nolint:gosec // spreads load, guards nothing
}
