package dashboard

import (
	"html/template"
	"net/url"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/store/fleet"
	"punctual/store/notices"
	"punctual/store/overview"
	"punctual/store/tenants"
)

// overviewView is the first page: is anything wrong, and where.
type overviewView struct {
	httpapi.Overview
	queuesView
	Host     string
	Empty    bool              // there is no job
	Expiring []tenants.Key     // that expire soon, for admins
	Deaf     []notices.Waiting // recipients of notices that take none
}

// Late is how much should have begun.
func (o overviewView) Late() int { return o.Overdue.Slots + o.Overdue.Runs }

// Unserved are the queues of which nothing is sent.
func (o overviewView) Unserved() (queues []fleet.Queue) {
	for _, q := range o.Queues.Data {
		if q.WaitsFor != nil && q.DueSlots+q.DueRuns > 0 {
			queues = append(queues, q)
		}
	}
	return queues
}

// HeldBack reports whether anything waits for more than its time.
func (o overviewView) HeldBack() bool {
	return len(o.Breakers) > 0 || len(o.Unserved()) > 0 || o.Queues.HeldBack != nil
}

// Spark draws a figure of each of the last 24 hours.
func (o overviewView) Spark(figure string) template.HTML {
	values := make([]float64, len(o.Day.Hours))
	for i, h := range o.Day.Hours {
		values[i] = sparked[figure].of(h)
	}
	return spark(values, sparked[figure].words)
}

// sparked are the figures of an hour that are drawn.
var sparked = map[string]struct {
	words string
	of    func(overview.HourOfRuns) float64
}{
	"unended": {"runs that have not ended, by hour", func(h overview.HourOfRuns) float64 { return float64(h.Unended) }},
	"dead":    {"runs that died, by hour", func(h overview.HourOfRuns) float64 { return float64(h.Dead) }},
	"failed": {"share of runs that died, by hour", func(h overview.HourOfRuns) float64 {
		return 1 - or(h.SuccessRate, 1)
	}},
	"succeeded": {"share of runs that succeeded, by hour", func(h overview.HourOfRuns) float64 {
		return or(h.SuccessRate, 0)
	}},
	"lateness": {"p99 lateness by hour", func(h overview.HourOfRuns) float64 { return or(h.Lateness.P99, 0) }},
}

// or is a figure, or what stands for one that is not known.
func or(figure *float64, unknown float64) float64 {
	if figure == nil {
		return unknown
	}
	return *figure
}

// Since is the beginning of the first hour, for an address.
func (o overviewView) Since() string { return o.Day.From.UTC().Format(time.RFC3339) }

func (v *visit) overview() (err error) {
	view := overviewView{Host: v.r.Host}
	if view.Overview, err = call(v, client.Overview, nil); err != nil {
		return err
	}
	jobs, err := call(v, client.Jobs, url.Values{"limit": {"1"}, "view": {"summary"}})
	if err != nil {
		return err
	}
	view.Empty = len(jobs.Data) == 0
	if view.queuesView, err = v.readQueues(); err != nil {
		return err
	}
	if view.Deaf, err = v.deaf(); err != nil {
		return err
	}
	view.Expiring, err = v.expiringKeys()
	return v.shows(err, "overview", "Overview", view)
}
