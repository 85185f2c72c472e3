package breaker

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
)

const (
	// tripAfter is how many failures in a row open a breaker.
	tripAfter = 10
	// shortestCooldown and longestCooldown bound the cooldown before a probe, which doubles with each failed probe.
	shortestCooldown = 5 * time.Second
	longestCooldown  = time.Minute
	// fullSpeed is how many requests at a time a recovering host has to be allowed for its breaker to close.
	fullSpeed = 256
	// trickle is how often a recovering host gets one more request although its allowance is used up: work that takes
	// hours may be using it. No more often does an open breaker let a Last request through.
	trickle = time.Second
	// fetchTakes is the longest time until a fetched run asks to be sent.
	fetchTakes = 10 * time.Second
	// maxTried bounds the jobs that are remembered as probed.
	maxTried = 1000
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
	last     string        // error of the latest failure
	since    time.Time     // when the breaker opened after it was last closed
	touched  time.Time     // when a request last asked for the host, or the host last failed
	cooldown time.Duration // until the next probe, before jitter
	nextAt   time.Time     // when one more request may go out, whatever is under way
	askedAt  time.Time     // when the latest request was let out
	failedAt time.Time     // start of the latest request that failed, by the callers' clock; zero: none since an answer
	inFlight int           // requests let out in this round
	allowed  int           // while recovering: how many may be in flight
	answered bool          // while recovering: an answer came, and not only a connection

	fetching  int       // runs that were fetched, and have not asked to be sent yet
	fetchedAt time.Time // when the latest of them were fetched

	waiting bool        // runs are known to wait
	lookAt  time.Time   // when to look again for waiting runs, after none was found
	tried   []uuid.UUID // jobs that have had their turn as a probe
}

func (h *host) idle(now time.Time) bool { return now.Sub(h.touched) > forgetAfter }

// admit lets a request out if it may go, while the breaker is not closed.
func (h *host) admit(turn Turn, now time.Time) bool {
	due := !now.Before(h.nextAt)
	if turn == Waited {
		h.fetching = max(h.fetching-1, 0)
	}
	switch {
	case turn == Always:
	case h.state == open && (due && (turn != Fresh || !h.waiting) || turn == Last && h.rests(now)):
		h.nextAt = now.Add(longestCooldown) // if the probe hangs for that long, another one goes out
	case h.state == recovering && (due || h.inFlight < h.allowed):
		h.nextAt = now.Add(trickle)
	default:
		return false
	}
	h.inFlight++
	h.askedAt = now
	return true
}

// rests reports whether no probe is under way or was sent just now.
func (h *host) rests(now time.Time) bool { return h.inFlight == 0 && now.Sub(h.askedAt) >= trickle }

// wait describes why admit refused a request.
func (h *host) wait(k Key, now time.Time) *Wait {
	w := &Wait{By: k.By()}
	if h.state == recovering {
		w.Again = longestCooldown // at the latest: it is fetched when its turn comes
		w.Why = fmt.Sprintf("waiting: %s can be reached again; so far %d requests at a time are let through",
			k.Host, h.allowed)
		return w
	}
	// As long again as the latest probe has taken: a failure that takes long is not waited for with many claims.
	w.Failed, w.Again = h.failedAt, max(trickle, now.Sub(h.askedAt))
	next := "a probe is under way"
	if h.inFlight == 0 {
		next = fmt.Sprintf("the next probe is in %s", max(h.nextAt.Sub(now).Round(time.Second), time.Second))
	}
	w.Why = fmt.Sprintf("waiting: the circuit breaker of %s is open after %s (last: %s); %s",
		k.Host, inARow(h.failures), h.last, next)
	return w
}

// wants is how many of the waiting runs may be sent now.
func (h *host) wants(now time.Time) int {
	if now.Sub(h.fetchedAt) > fetchTakes {
		h.fetching = 0 // they never asked: their replica is stopping, or they had expired
	}
	due, busy := !now.Before(h.nextAt), h.inFlight+h.fetching
	switch {
	case now.Before(h.lookAt):
		return 0
	case h.state == open && due && h.fetching == 0:
		return 1
	case h.state == recovering && busy < h.allowed:
		return h.allowed - busy
	case h.state == recovering && due && h.fetching == 0:
		return 1
	}
	return 0
}

// fetched records what a fetch of waiting runs found. When it found none of a job that has not had its turn, all jobs
// get their turn again.
func (h *host) fetched(jobs []uuid.UUID, more bool, now time.Time) {
	if len(jobs) > 0 {
		h.touched, h.waiting = now, true
		h.fetching, h.fetchedAt = h.fetching+len(jobs), now
	}
	if h.state == open {
		again := len(jobs) == 0 && len(h.tried) > 0
		if again || len(h.tried) >= maxTried {
			h.tried = nil
		}
		if again {
			return
		}
		h.tried = append(h.tried[:len(h.tried):len(h.tried)], jobs...)
	}
	if more || len(jobs) > 0 && h.state == open {
		if len(jobs) == 0 {
			h.lookAt = now.Add(lookAgain) // others have locked them, or a limit of the tenant holds them back
		}
		return
	}
	h.waiting = false
	if h.state == recovering && h.answered {
		h.enter(closed, time.Time{})
		h.failures = 0
		return
	}
	h.lookAt = now.Add(max(h.cooldown, shortestCooldown)) // meanwhile the first run that comes is the probe
}

func (h *host) probeIn(now time.Time) time.Duration {
	if h.state != open || h.inFlight > 0 {
		return 0
	}
	return max(h.nextAt.Sub(now), 0)
}

// settle records how a request of this round ended that was sent at.
func (h *host) settle(a Answer, why string, at, now time.Time) {
	h.inFlight = max(h.inFlight-1, 0)
	switch {
	case a == Answered || a == Reached:
		h.reached(a == Answered, now)
	case a == Unreachable:
		if at.After(h.failedAt) {
			h.failedAt = at
		}
		h.failed(why, now)
	case h.state == open:
		h.nextAt = now // the probe told nothing: the next request is a probe again
	}
}

func (h *host) reached(answered bool, now time.Time) {
	h.failures, h.failedAt = 0, time.Time{}
	switch {
	case h.state == open:
		h.enter(recovering, now.Add(trickle))
		h.allowed, h.answered, h.lookAt = 1, answered, time.Time{}
	case h.state == recovering && answered && (h.allowed+1 >= fullSpeed || !h.waiting):
		h.enter(closed, time.Time{})
	case h.state == recovering && answered:
		h.allowed++
		h.answered = true
	}
}

func (h *host) failed(why string, now time.Time) {
	if h.state == closed && h.idle(now) {
		h.failures = 0 // those failures were of another outage
	}
	h.failures++
	h.last, h.touched = why, now
	switch h.state {
	case closed:
		if h.failures >= tripAfter {
			h.since, h.waiting, h.lookAt, h.tried = now, true, time.Time{}, nil
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

// cool opens the breaker for a cooldown. The jitter keeps the probes of several replicas apart.
func (h *host) cool(d time.Duration, now time.Time) {
	h.cooldown = min(d, longestCooldown)
	jitter := rand.N(h.cooldown / 5) //nolint:gosec // spreads load, guards nothing
	h.enter(open, now.Add(h.cooldown*4/5+jitter))
}

func (h *host) enter(s state, nextAt time.Time) {
	h.state, h.nextAt, h.inFlight, h.fetching = s, nextAt, 0, 0
	h.round++
}

func inARow(failures int) string {
	if failures == 1 {
		return "another failure"
	}
	return fmt.Sprintf("%d failures in a row", failures)
}
