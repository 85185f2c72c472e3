package dashboard

import (
	"net/url"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/store/letters"
)

// lettersView is the list of dead letters: by job and reason, or each one.
type lettersView struct {
	Groups  []letters.DeadLetterGroup
	Letters []letters.DeadLetter
	Each    bool
	Next    string
	Filter  url.Values
	Problem *problem.Problem // with the filter
}

// Chosen are the parameters of the filter that say which dead letters are meant, without the page.
func (l lettersView) Chosen() string {
	query := filtered(l.Filter, letterFilters...)
	return query.Encode()
}

// Of are the parameters that say which of the chosen dead letters a group has.
func (l lettersView) Of(group letters.DeadLetterGroup) url.Values {
	query := filtered(l.Filter, letterFilters...)
	query.Del("job")
	query.Set("job_id", group.JobID.String())
	query.Set("reason", text(group.Reason))
	return query
}

var letterFilters = []string{"job", "job_id", "reason", "label", "from", "to"}

func (v *visit) letters() error {
	query := v.filters([]string{"each"}, append([]string{"cursor"}, letterFilters...)...)
	view := lettersView{Filter: query, Each: v.param("each") != ""}
	var err error
	if view.Each {
		var list httpapi.List[letters.DeadLetter]
		list, err = call(v, client.DeadLetters, query)
		view.Letters, view.Next = list.Data, text(list.NextCursor)
	} else {
		var list httpapi.List[letters.DeadLetterGroup]
		list, err = call(v, client.DeadLetterGroups, query)
		view.Groups, view.Next = list.Data, text(list.NextCursor)
	}
	view.Problem, err = refused(err)
	return v.shows(err, "letters", "Dead letters", view)
}

func ofLetters(verb string) func(*visit) error { return func(v *visit) error { return v.bulk(verb) } }

// bulk counts the selected dead letters, and starts the operation once the visitor has seen the number.
func (v *visit) bulk(verb string) error {
	if run := v.field("run"); run != "" {
		return v.one(verb, run)
	}
	in := httpapi.BulkInput{Filter: &httpapi.DeadLetterSelection{
		Job: v.field("job"), JobID: v.field("job_id"), Reason: httpapi.DeathReason(v.field("reason")),
		From: v.instant("from"), To: v.instant("to"),
		Label: labelsOf(v.r.PostForm["label"]),
	}, Note: v.field("note"), LatestPerJob: v.field("latest_per_job") != ""}
	if v.field("sure") == "" {
		in.DryRun = true
		n, err := call(v, client.CountReplays, in)
		if err != nil {
			return err
		}
		return v.ask(sureView{
			Verb: verb, Count: n.Matched, Thing: "dead letter", Path: "/dead-letters/" + verb, Back: "/dead-letters",
			Latest: true,
		})
	}
	var err error
	if in.MaxPerSecond, err = v.rate(); err != nil {
		return err
	}
	start := client.ReplayDeadLetters
	if verb == "resolve" {
		start = client.ResolveDeadLetters
	}
	operation, err := call(v, start, in)
	return v.done(err, "/operations/"+operation.ID.String(), "The operation has started.")
}

// one replays or resolves a single dead letter.
func (v *visit) one(verb, run string) error {
	note := httpapi.NoteInput{Note: v.field("note")}
	if verb == "resolve" {
		_, err := call(v, client.ResolveDeadLetter, note, run)
		return v.done(err, "/runs/"+url.PathEscape(run), "The dead letter is resolved.")
	}
	made, err := call(v, client.ReplayDeadLetter, note, run)
	return v.done(err, "/runs/"+made.ID.String(), "This run replays the dead one.")
}
