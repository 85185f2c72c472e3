package prove

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// requests compares what the witness saw with the attempts on record.
func (k *check) requests() {
	for run, requests := range k.seen {
		r := k.runs[run]
		if r == nil {
			k.fail(RequestsKnown, "job %s: %d requests for the unknown run %s", requests[0].Job, len(requests), run)
			continue
		}
		for _, q := range requests {
			k.request(r, q)
		}
		k.firsts(r, requests)
		if j := k.jobs[r.Job]; j != nil && len(requests) > 1 && j.atMostOnce() {
			k.failRun(AtMostOnce, r, "was sent %d times", len(requests))
		}
	}
	for i := range k.Runs {
		r := &k.Runs[i]
		if k.workflow(r) != nil || k.waitsForApproval(r) {
			continue // its steps send the requests, or a person ends it
		}
		if r.taken() {
			if n := len(k.seen[r.ID]); n > 0 {
				k.failRun(StepsInOrder, r, "was taken as succeeded, and sent %d times", n)
			}
			continue
		}
		if r.Status == "succeeded" && !slices.ContainsFunc(k.seen[r.ID], func(q *Request) bool { return k.succeeds(r, q) }) {
			k.failRun(SuccessSeen, r, "succeeded under token %d, which was not seen or not answered so", deref(r.Fence))
		}
		if k.SentOnce {
			k.once(r)
		}
	}
}

// succeeds reports whether a run's success may come from this request: from its 2xx answer, or from a callback. A
// target can call back even though its answer was lost with the replica.
func (k *check) succeeds(r *Run, q *Request) bool {
	if r.Fence == nil || q.Fence != *r.Fence {
		return false
	}
	j := k.jobs[r.Job]
	return q.Status/100 == 2 || q.Status == 0 && j != nil && j.callsBack()
}

// request checks one request against its run.
func (k *check) request(r *Run, q *Request) {
	if q.At.Before(r.DueAt) && !k.ClockSteps {
		k.failRun(NeverEarly, r, "arrived at %s, %s before it was due", clock(q.At), r.DueAt.Sub(q.At))
	}
	for _, a := range k.attempts[r.ID] {
		if a.Number < q.Attempt && a.Outcome != "interrupted" && q.At.Before(a.Finished.Add(-clockError)) && !k.ClockSteps {
			k.failRun(NeverEarly, r, "arrived for attempt %d %s before attempt %d had ended", q.Attempt, a.Finished.Sub(q.At),
				a.Number)
		}
	}
	recorded := r.Fence != nil && *r.Fence == q.Fence || slices.ContainsFunc(k.attempts[r.ID], func(a *Attempt) bool {
		return a.Fence == q.Fence
	})
	if !recorded {
		k.failRun(RequestsKnown, r, "was sent under token %d, which no attempt on record has", q.Fence)
	}
	origin := k.origin(r)
	key := origin.ID.String()
	if origin.ofSlot() || origin.backfilled() && origin.ofItsSlot() {
		key = origin.Job.String() + ":" + strconv.FormatInt(origin.ScheduledFor.Unix(), 10)
	}
	if q.Key != key || q.Trigger != r.Trigger || q.Late != r.Late || !q.ScheduledFor.Equal(r.ScheduledFor) {
		k.failRun(RequestsHeader, r, "(%s, late %t) was sent as of %s (%s, late %t), key %q", r.Trigger, r.Late,
			clock(q.ScheduledFor), q.Trigger, q.Late, q.Key)
	}
}

// origin returns the run that a replay repeats, following replays of replays back to the first; r itself if it is no
// replay.
func (k *check) origin(r *Run) *Run {
	for r.ReplayOf != nil && k.runs[*r.ReplayOf] != nil {
		r = k.runs[*r.ReplayOf]
	}
	return r
}

// firsts checks the number of requests that claim to be attempt 1. An interrupted attempt does not count, so the next
// attempt has the same number.
func (k *check) firsts(r *Run, requests []*Request) {
	allowed := 1 + count(k.attempts[r.ID], func(a *Attempt) bool { return a.Number == 1 && a.Outcome == "interrupted" })
	if n := count(requests, func(q *Request) bool { return q.Attempt == 1 }); n > allowed {
		k.failRun(OneFirst, r, "was sent %d times as attempt 1", n)
	}
}

// once checks that a run has as many requests as attempts on record. The request of an attempt that was cancelled may
// have been cut off before its target read it.
func (k *check) once(r *Run) {
	attempts := len(k.attempts[r.ID])
	cut := count(k.attempts[r.ID], func(a *Attempt) bool { return a.Outcome == "cancelled" })
	if r.Status == "succeeded" {
		attempts++
	}
	if n := len(k.seen[r.ID]); n > attempts || n < attempts-cut {
		k.failRun(ExactlyOnce, r, "(%s) has %d attempts on record and %d requests", r.Status, attempts, n)
	}
}

// fences checks that tokens grow from attempt to attempt of a run. They must also grow from slot to slot of a job,
// because its slots are claimed one after the other.
func (k *check) fences() {
	holder := make(map[int64]uuid.UUID, len(k.Requests))
	for i := range k.Requests {
		q := &k.Requests[i]
		if q.Trigger == "notify" { // no attempt of a run
			continue
		}
		if other, taken := holder[q.Fence]; taken {
			k.fail(FencesGrow, "token %d was sent with run %s and again with run %s", q.Fence, other, q.Run)
		}
		holder[q.Fence] = q.Run
	}
	for _, runs := range k.byJob {
		var last *Request // the first request of the previous slot
		for _, r := range runs {
			requests := k.inOrder(r.ID)
			for i := 1; i < len(requests); i++ {
				if requests[i].Fence <= requests[i-1].Fence && !k.frozenAt(requests[i].At) {
					k.failRun(FencesGrow, r, "was sent under token %d after %d", requests[i].Fence, requests[i-1].Fence)
				}
			}
			if len(requests) == 0 || !r.ofSlot() {
				continue
			}
			// A run that waited, or was given back unsent, may arrive after the next slot's run, and then has the greater token.
			// If two runs were claimed at the same time, either may arrive first.
			after := last != nil && !last.Ended.IsZero() && k.claimed(r, requests[0]).After(last.Ended)
			if after && requests[0].Attempt == 1 && requests[0].Fence < last.Fence && !k.frozenAt(requests[0].At) {
				k.failRun(FencesGrow, r, "has token %d, and the slot before has %d", requests[0].Fence, last.Fence)
			}
			last = requests[0]
		}
	}
}

// mostUnderWay is the longest that a request takes from its claim to its arrival, on a slow machine.
const mostUnderWay = 15 * time.Second

// claimed returns when the first request of a run was claimed, or an earlier instant if that is unknown: the run
// records only its latest claim.
func (k *check) claimed(r *Run, first *Request) time.Time {
	if r.ClaimedAt != nil && len(k.attempts[r.ID]) == 0 && r.ClaimedAt.Before(first.At) {
		return *r.ClaimedAt
	}
	return first.At.Add(-mostUnderWay)
}

// inOrder returns the requests of a run whose time of arrival is known.
func (k *check) inOrder(run uuid.UUID) []*Request {
	return slices.DeleteFunc(slices.Clone(k.seen[run]), func(q *Request) bool { return q.Unread })
}

// overlaps checks that the requests of a job that must not overlap came one after the other, and those of all jobs that
// share a limit of one.
func (k *check) overlaps() {
	alone := map[string][]*Job{}
	for i := range k.Jobs {
		j := &k.Jobs[i]
		if j.exclusive() {
			alone["job "+j.Name] = []*Job{j}
		}
		for _, limit := range k.LimitsOfOne {
			if j.names(limit) {
				alone["limit "+limit] = append(alone["limit "+limit], j)
			}
		}
	}
	for what, jobs := range alone {
		var requests []*Request
		of := map[*Request]*Job{}
		for _, j := range jobs {
			for _, r := range k.byJob[j.ID] {
				for _, q := range k.inOrder(r.ID) {
					requests, of[q] = append(requests, q), j
				}
			}
		}
		slices.SortFunc(requests, func(a, b *Request) int {
			return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Fence, b.Fence))
		})
		for n := 1; n < len(requests); n++ {
			before, after := requests[n-1], requests[n]
			if k.frozenAt(after.At) {
				continue
			}
			if until := k.until(of[before], before); until.IsZero() || after.At.Before(until) {
				k.fail(NoOverlap, "%s: run %s arrived at %s while run %s was open until %s", what, after.Run, clock(after.At),
					before.Run, clock(until))
			}
			if after.Fence <= before.Fence {
				k.fail(FencesGrow, "%s: run %s was sent under token %d after run %s under %d", what, after.Run, after.Fence,
					before.Run, before.Fence)
			}
		}
	}
}

// until returns when a request was over; zero: never. If it was answered 202, its work was over when its attempt ended
// on record.
func (k *check) until(j *Job, q *Request) time.Time {
	if q.Status != http.StatusAccepted || !j.callsBack() || k.ClockSteps {
		return q.Ended
	}
	for _, a := range k.attempts[q.Run] {
		if a.Fence == q.Fence {
			return a.Finished
		}
	}
	if r := k.runs[q.Run]; r != nil && r.FinishedAt != nil && deref(r.Fence) == q.Fence {
		return *r.FinishedAt
	}
	return q.Ended
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
