package admit

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
)

// Holds keeps back runs whose host cannot be reached or whose requests hang, and says which of them may be sent. The
// runs themselves wait in the database. A replica that stops takes nothing with it except what it knew of the hosts.
type Holds struct {
	Breakers *breaker.Breakers
	Hangs    *breaker.Hangs
	sizes    map[int16]int // worker slots by queue
	Changed  func()        // is called when something is newly held back, or no longer is
}

// Flight is a request that holds has admitted.
type Flight struct {
	permit breaker.Permit
	hang   *breaker.Flight
}

// Admit asks whether an attempt may be sent now. One that has waited for as long as it may, but not in vain, asks again
// as the last one.
func (h *Holds) Admit(a domain.Assignment, to *url.URL, now time.Time) (f Flight, wait *breaker.Wait) {
	turn := breaker.Fresh
	if a.Held != nil && a.Held.Fetched {
		turn = breaker.Waited
	}
	if f, wait = h.ask(a, to, turn, now); wait == nil {
		return f, nil
	}
	if held := heldBy(a, wait, now); !now.Before(held.Until) && !inVain(a, held, wait) {
		return h.ask(a, to, breaker.Last, now)
	}
	return f, wait
}

// ask asks for one turn.
func (h *Holds) ask(
	a domain.Assignment, to *url.URL, turn breaker.Turn, now time.Time,
) (f Flight, wait *breaker.Wait) {
	place := placeOf(a.Job.Tenant, to)
	byHand := turn
	if a.Trigger == domain.TriggerManual {
		byHand = breaker.Always
	}
	reach := byHand
	if a.Job.Retry.MaxAttempts == 1 {
		reach = breaker.Always // with a single attempt there is no backoff in which it could wait
	}
	if f.permit, wait = h.Breakers.Admit(place.Key, reach, now); wait != nil {
		return f, wait
	}
	queue := a.Lane / 4
	f.hang, wait = h.Hangs.Admit(breaker.Request{
		Queue: queue, Slots: h.sizes[queue], Work: int(workOf(a)),
		To: place, Turn: byHand, At: now,
	})
	if wait != nil {
		f.permit.Done(breaker.Unknown, "")
	}
	return f, wait
}

// Done reports how the request ended. lent is true when its worker slot was lent to others meanwhile.
func (h *Holds) Done(f Flight, r wire.Result) (lent bool) {
	opened := f.permit.Done(hostAnswer(r), r.Error)
	lent, hang := h.Hangs.End(f.hang, r.Status != 0, r.Reason == wire.ReasonTimeout && r.Sent)
	if opened || hang {
		h.Changed()
	}
	return lent
}

// HoldBack decides what becomes of a run that must not be sent now: it waits. If it has waited for as long as it may,
// and in vain, it is dead. If not in vain, a probe is under way, or the host recovers, and it waits for that.
func HoldBack(o *domain.Outcome, wait *breaker.Wait, now time.Time) {
	held, over := heldBy(o.Assignment, wait, now), false
	o.FinishedAt = now
	if !now.Before(held.Until) {
		over, held.Until = inVain(o.Assignment, held, wait), now.Add(wait.Again)
	}
	if over {
		o.Verdict, o.Reason = domain.Abandon, domain.ReasonUnreachable
		if wait.Hanging {
			o.Reason = domain.ReasonTimeout
		}
		most := o.Job.Retry.MaxAttempts
		o.Error = fmt.Sprintf("%d of %d attempts made, %d not made; waited %s: %s",
			o.Attempt-1, most, most-o.Attempt+1, now.Sub(held.Since).Round(time.Second),
			strings.TrimPrefix(wait.Why, "waiting: "))
		return
	}
	until := held.Until
	if expiry, expires := o.Expiry(); expires && expiry.Before(until) {
		until = expiry
	}
	o.Verdict, o.Held, o.Error, o.RetryIn = domain.Hold, &held, wait.Why, max(until.Sub(now), time.Millisecond)
}

// heldBy describes the wait of a run that is held back now. It may have begun earlier.
func heldBy(a domain.Assignment, wait *breaker.Wait, now time.Time) domain.Held {
	held := domain.Held{By: wait.By, Since: now, Until: now.Add(patience(a, wait))}
	if a.Held != nil {
		held.Since, held.Until = a.Held.Since, a.Held.Until
	}
	return held
}

// inVain reports whether a request has failed that was sent in the last tenth of what a run may wait, or later. So a
// run is given up for how its host is, and not for how it was.
func inVain(a domain.Assignment, held domain.Held, wait *breaker.Wait) bool {
	d := patience(a, wait)
	return wait.Failed.After(held.Since.Add(d - d/10))
}

// patience is how long a run may wait for its host before this attempt. For an unreachable host that is as long as
// its remaining backoffs could take; for a hanging one, the timeouts of its remaining attempts are added. So the run
// dies at the time at which it would have died had it been sent.
func patience(a domain.Assignment, wait *breaker.Wait) time.Duration {
	d := a.Job.Retry.Remaining(a.Attempt)
	if wait.Hanging {
		d += time.Duration(max(1, a.Job.Retry.MaxAttempts-a.Attempt+1)) * a.Job.Timeout.Value()
	}
	return d
}

// Any reports whether the next answer may let more waiting runs go.
func (h *Holds) Any() bool { return h.Breakers.Recovering() || h.Hangs.Any() }

// placeOf names the place that a URL leads to. Spellings that mean the same to every server are one place.
func placeOf(tenant int32, u *url.URL) breaker.Place {
	path := u.EscapedPath()
	if u.RawPath != "" && !strings.Contains(strings.ToLower(path), "%2f") { // /%61 is /a, but a%2Fb is not a/b
		path = (&url.URL{Path: u.Path}).EscapedPath()
	}
	return breaker.Place{Key: breaker.Key{Tenant: tenant, Host: HostOf(u)}, Path: cmp.Or(path, "/")}
}

// HostOf names the host that a URL leads to, with its port, as breakers do. The scheme, the path and the spelling do
// not matter; the port does.
func HostOf(u *url.URL) string {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if strings.Contains(host, ":") {
		if a, err := netip.ParseAddr(host); err == nil {
			host = a.Unmap().String()
		}
	}
	return net.JoinHostPort(host, strings.TrimLeft(wire.PortOf(u), "0"))
}

// hostAnswer is what a result says about its host. Any status proves that the host is there, and so does a connection
// on which the request was sent.
func hostAnswer(r wire.Result) breaker.Answer {
	switch {
	case r.Status != 0:
		return breaker.Answered
	case r.Lacks != "", r.Proxy && !r.Sent:
		return breaker.Unknown // it failed on this side of the target
	case r.Cancelled, r.Reason == wire.ReasonBlockedAddress, r.Reason == wire.Reason(domain.ReasonAuth):
		return breaker.Unknown
	case r.Reason == wire.ReasonTLS, !r.Sent:
		return breaker.Unreachable
	}
	return breaker.Reached
}

// HoldState is something that a replica holds runs back for, as other replicas see it.
type HoldState = breaker.Hold

// HoldOrder tells a replica what to do about something that it holds runs back for.
type HoldOrder struct {
	Tenant     int32
	Host, Path string
	Hanging    bool
	Reset      bool // somebody asked for a reset; otherwise another replica has reached the host
}

// States returns what this replica holds back, for the database.
func (h *Holds) States() []HoldState { return append(h.Breakers.All(), h.Hangs.All()...) }

// Obey carries out the orders that the database returned.
func (h *Holds) Obey(orders []HoldOrder) {
	for _, o := range orders {
		key := breaker.Key{Tenant: o.Tenant, Host: o.Host}
		switch {
		case o.Reset && o.Hanging:
			h.Hangs.Reset(breaker.Place{Key: key, Path: o.Path})
		case o.Reset:
			h.Breakers.Reset(key)
		default:
			h.Breakers.Probe(key)
		}
	}
}
