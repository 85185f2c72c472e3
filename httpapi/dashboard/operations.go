package dashboard

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"

	"punctual/httpapi/client"
	"punctual/scheduler/domain"
	"punctual/store/letters"
)

// operationView is work on many dead letters, slots or jobs.
type operationView struct {
	letters.Operation
	Job string // the name of the only job that it is about; empty: unknown, or of several
}

// requested is the request of an operation: of dead letters, a backfill, or jobs.
type requested struct {
	Job, Queue, Name, Q, State string
	JobID                      string `json:"job_id"`
	Reason                     *domain.Reason
	From, To, Until            time.Time // the range of slots, and the end of a pause; zero: there is none
	Label, Labels              map[string]string
	LatestPerJob               bool   `json:"latest_per_job"`
	PausedBy                   string `json:"paused_by_operation"`
}

// Asked reads the request.
func (o operationView) Asked() (r requested) {
	_ = json.Unmarshal(o.Request, &r) // written by the store
	return r
}

// OfJobs reports whether the operation is about jobs and their slots, not about dead letters.
func (o operationView) OfJobs() bool {
	return o.Kind != letters.OperationReplay && o.Kind != letters.OperationResolve
}

// Title says what the operation does, with how many of which.
func (o operationView) Title() string {
	verb, things := string(o.Kind), "job"
	switch o.Kind {
	case letters.OperationReplay, letters.OperationResolve:
		things = "dead letter"
	case letters.OperationBackfill:
		verb, things = "fill in", "slot"
	}
	words := strings.ToUpper(verb[:1]) + verb[1:] + " " + plural(o.Matched, things)
	r := o.Asked()
	if job := cmp.Or(o.Job, r.Job); job != "" {
		words += " of " + job
	}
	var which []string
	for name, value := range map[string]string{
		"state": r.State, "queue": r.Queue, "names that begin with": r.Name, "text": r.Q,
		"dead because": reasonWords(r.Reason),
	} {
		if value != "" {
			which = append(which, name+" "+value)
		}
	}
	for _, labels := range []map[string]string{r.Label, r.Labels} {
		for name, value := range labels {
			which = append(which, name+"="+value)
		}
	}
	if r.LatestPerJob {
		which = append(which, "the newest of each job")
	}
	if r.PausedBy != "" {
		which = append(which, "that an operation paused")
	}
	if len(which) == 0 {
		return words
	}
	slices.Sort(which)
	return words + " (" + strings.Join(which, ", ") + ")"
}

// Undo reports whether there is something to undo: jobs that it has paused.
func (o operationView) Undo() bool { return o.Kind == letters.OperationPause && o.Done > 0 }

// Left says how long the rest takes at the rate so far; nothing while that is unknown.
func (o operationView) Left() string {
	rest, made := o.Matched-o.Done-o.Failed, o.Done+o.Failed
	if o.State != letters.OperationRunning || made == 0 || rest == 0 {
		return ""
	}
	return "about " + length(time.Since(o.CreatedAt)/time.Duration(made)*time.Duration(rest)) + " left"
}

// Became says what became of the runs that the operation made; nothing where it has made none, or makes none.
func (o operationView) Became() string {
	made := o.Outcomes
	if made == nil || made.Runs == 0 {
		return ""
	}
	died := "died"
	if o.Kind == letters.OperationReplay {
		died = "died again"
	}
	words := count(int(made.Succeeded)) + " succeeded, " + count(int(made.Dead)) + " " + died
	for _, rest := range []struct {
		n    int64
		what string
	}{{made.Cancelled, "were cancelled"}, {made.Unended, "have not ended"}} {
		if rest.n > 0 {
			words += ", " + count(int(rest.n)) + " " + rest.what
		}
	}
	if int(made.Runs) < o.Done {
		words += ", of " + count(int(made.Runs)) + " that were counted"
	}
	return words
}

// Made is the address of the runs that the operation made, among others of the same jobs, or of those with a status.
func (o operationView) Made(status string) string {
	r, query := o.Asked(), url.Values{"trigger": {"replay"}}
	given := map[string]string{"job": r.Job, "job_id": r.JobID, "status": status}
	if o.Kind == letters.OperationBackfill {
		query.Set("trigger", "backfill")
		given["from"], given["to"] = client.Instant(r.From), client.Instant(r.To)
	}
	for name, value := range given {
		if value != "" {
			query.Set(name, value)
		}
	}
	return "/runs?" + query.Encode()
}

// operationsView is the list of operations.
type operationsView struct {
	Operations []operationView
	Next       string
}

func (v *visit) operations() error {
	query := v.filters(nil, "state", "cursor")
	query.Set("outcomes", "true")
	query.Set("limit", "20") // of each, up to 100 runs are looked up
	list, err := call(v, client.Operations, query)
	if err != nil {
		return err
	}
	view := operationsView{Next: text(list.NextCursor)}
	for _, o := range list.Data {
		view.Operations = append(view.Operations, operationView{Operation: o})
	}
	return v.show("operations", "Operations", view)
}

func (v *visit) operation() error {
	operation, err := call(v, client.Operation, nil, v.part("operation"))
	if err != nil {
		return err
	}
	view := operationView{Operation: operation}
	if id := view.Asked().JobID; id != "" {
		if job, err := call(v, client.Job, nil, id); err == nil {
			view.Job = job.Name
		}
	}
	return v.show("operation", view.Title(), view)
}

func (v *visit) cancelOperation() error {
	id := v.part("operation")
	_, err := call(v, client.CancelOperation, nil, id)
	return v.done(err, "/operations/"+url.PathEscape(id), "The operation is cancelled. Finished work stays done.")
}
