package prove

import (
	"net/url"
	"slices"
	"time"
)

// hostOf names the host that a run is sent to: of one tenant, as a breaker is. A job's host may change with its
// versions; then it is that of the latest one.
type hostOf struct {
	tenant int32
	host   string
}

func (k *check) host(r *Run) (h hostOf, ok bool) {
	j := k.jobs[r.Job]
	if j == nil {
		return h, false
	}
	u, err := url.Parse(j.Versions[len(j.Versions)-1].Definition.Target.URL)
	return hostOf{r.Tenant, u.Host}, err == nil
}

// unreachable checks that no run was given up as unreachable unless a request to its host began since it was due: an
// attempt on record, of whichever run.
func (k *check) unreachable() {
	asked := map[hostOf][]time.Time{}
	for i := range k.Attempts {
		if r := k.runs[k.Attempts[i].Run]; r != nil {
			if h, ok := k.host(r); ok {
				asked[h] = append(asked[h], k.Attempts[i].StartedAt)
			}
		}
	}
	for i := range k.Runs {
		r := &k.Runs[i]
		h, ok := k.host(r)
		if !ok || r.Status != "dead" || r.Reason != "unreachable" || r.FinishedAt == nil || k.ClockSteps {
			continue
		}
		if !slices.ContainsFunc(asked[h], func(at time.Time) bool {
			return at.After(r.DueAt.Add(-clockError)) && at.Before(r.FinishedAt.Add(clockError))
		}) {
			k.failRun(DeadWereAsked, r, "is dead, and no request to %s began between %s and %s", h.host, clock(r.DueAt),
				clock(*r.FinishedAt))
		}
	}
}
