package dashboard

import (
	"net/url"

	"punctual/httpapi"
	"punctual/store/fleet"
	"punctual/store/letters"
	"punctual/store/runs"
)

// overviewView is the first page: is anything wrong, and where.
type overviewView struct {
	Jobs     []httpapi.ListedJob // at most one: is there any
	Queues   httpapi.QueueList
	Breakers []fleet.Breaker
	Letters  []letters.DeadLetter
	Failing  []runs.Run // that try again
	Recent   []runs.Run
	Host     string
}

// Due is how much is due now and not sent.
func (o overviewView) Due() (n int) {
	for _, q := range o.Queues.Data {
		n += q.DueSlots + q.DueRuns
	}
	return n
}

// InFlight is how many runs are being sent.
func (o overviewView) InFlight() (n int) {
	for _, q := range o.Queues.Data {
		n += q.InFlight
	}
	return n
}

// Held is how many runs wait for a host that does not answer.
func (o overviewView) Held() (n int) {
	for _, q := range o.Queues.Data {
		n += q.HeldRuns
	}
	return n
}

func (v *visit) overview() (err error) {
	view := overviewView{Host: v.r.Host}
	jobs, err := v.api.Jobs(v.ctx(), url.Values{"limit": {"1"}, "view": {"summary"}})
	if err != nil {
		return err
	}
	view.Jobs = jobs.Data
	if view.Queues, err = v.api.Queues(v.ctx()); err != nil {
		return err
	}
	breakers, err := v.api.Breakers(v.ctx())
	if err != nil {
		return err
	}
	view.Breakers = breakers.Data
	dead, err := v.api.DeadLetters(v.ctx(), url.Values{"limit": {"20"}})
	if err != nil {
		return err
	}
	view.Letters = dead.Data
	retrying, err := v.api.Runs(v.ctx(), url.Values{"limit": {"20"}, "status": {"retrying"}, "view": {"summary"}})
	if err != nil {
		return err
	}
	view.Failing = retrying.Data
	recent, err := v.api.Runs(v.ctx(), url.Values{"limit": {shownRuns}, "view": {"summary"}})
	if err != nil {
		return err
	}
	view.Recent = recent.Data
	return v.show("overview", "Overview", view)
}
