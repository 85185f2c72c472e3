package dashboard

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/notices"
	"punctual/store/runs"
)

// noticesView is what recipients were told about a job, and what waits for them.
type noticesView struct {
	Job     httpapi.Job
	Notices httpapi.Notices
}

func (v *visit) notices(job httpapi.Job) error {
	query := filtered(v.r.URL.Query(), "cursor")
	query.Set("job_id", job.ID.String())
	query.Set("limit", shownRuns)
	list, err := call(v, client.Notices, query)
	return v.shows(err, "notices", job.Name, noticesView{job, list})
}

// notice is the page of a notice, with all jobs that it told of.
func (v *visit) notice() error {
	n, err := call(v, client.Notice, nil, v.part("notice"))
	return v.shows(err, "notice", "Notice", n)
}

// deaf returns the recipients that take no notices now.
func (v *visit) deaf() ([]notices.Waiting, error) {
	list, err := call(v, client.Notices, url.Values{"limit": {"1"}})
	return slices.DeleteFunc(list.Waiting, func(w notices.Waiting) bool { return w.FailingSince == nil }), err
}

// told are the moments at which people were told that a run died, was late, was dropped or missed its slot. Each
// recipient is told in the first of its messages about the job that comes after that.
func (v *visit) told(run runs.Run) (all []entry, err error) {
	if run.Step != "" { // its workflow's run is what people are told of
		return nil, nil
	}
	for event, at := range map[jobspec.Event]*time.Time{
		jobspec.EventDead:   ifSo(run.Status == domain.StatusDead, run.FinishedAt),
		jobspec.EventLate:   ifSo(run.Late, &run.CreatedAt),
		jobspec.EventMissed: ifSo(run.Reason != nil && *run.Reason == domain.ReasonMissed, &run.CreatedAt),
		jobspec.EventDropped: ifSo(run.Reason != nil && run.Trigger != domain.TriggerSchedule &&
			(*run.Reason == domain.ReasonOverlap || *run.Reason == domain.ReasonLimit), run.FinishedAt),
	} {
		if at == nil {
			continue
		}
		list, err := call(v, client.Notices, url.Values{
			"job_id": {run.JobID.String()}, "limit": {"100"},
			"from": {at.Format(time.RFC3339Nano)}, "to": {at.Add(time.Hour).Format(time.RFC3339Nano)},
		})
		if err != nil {
			return nil, err
		}
		all = append(all, tellings(list.Data, event)...)
	}
	return all, nil
}

func ifSo(is bool, at *time.Time) *time.Time {
	if is {
		return at
	}
	return nil
}

// tellings returns the first message to each recipient that tells of an event, of messages with the newest first.
// Messages within a second are one entry.
func tellings(list []notices.Notice, event jobspec.Event) (all []entry) {
	known := map[string]bool{}
	for _, n := range slices.Backward(list) {
		if known[n.URL] || !slices.Contains(n.Events, string(event)) {
			continue
		}
		known[n.URL] = true
		if k := len(all) - 1; k >= 0 && n.DeliveredAt.Sub(all[k].At) < time.Second {
			all[k].Text += ", " + n.Recipient()
			continue
		}
		all = append(all, entry{At: n.DeliveredAt, Label: "people were notified", Text: strings.TrimSpace(n.Recipient())})
	}
	return all
}
