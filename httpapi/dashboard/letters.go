package dashboard

import (
	"net/http"
	"net/url"

	"punctual/httpapi"
	"punctual/store/letters"
)

// lettersView is the list of dead letters.
type lettersView struct {
	Letters []letters.DeadLetter
	Next    string
	Filter  url.Values
}

func (v *visit) letters() error {
	query := filtered(v.r.URL.Query(), "job", "job_id", "trigger", "reason", "label", "from", "to", "resolved", "cursor")
	list, err := v.api.DeadLetters(v.ctx(), query)
	if err != nil {
		return err
	}
	return v.show("letters", "Dead letters", lettersView{list.Data, text(list.NextCursor), query})
}

// bulkView asks before many dead letters are replayed or resolved.
type bulkView struct {
	Verb  string // replay or resolve
	Count int
	Note  string
	Form  url.Values
}

func (v *visit) replayLetters() error { return v.bulk("replay") }

func (v *visit) resolveLetters() error { return v.bulk("resolve") }

// bulk counts the selected dead letters, and starts the operation once the visitor has seen the number.
func (v *visit) bulk(verb string) error {
	if err := v.form(); err != nil {
		return err
	}
	if run := v.field("run"); run != "" {
		return v.one(verb, run)
	}
	in := httpapi.BulkInput{Filter: &httpapi.DeadLetterSelection{
		Job: v.field("job"), JobID: v.field("job_id"), Reason: httpapi.DeathReason(v.field("reason")),
	}, Note: v.field("note"), LatestPerJob: v.field("latest_per_job") != ""}
	calls := map[string]func() (letters.Operation, error){
		"replay":  func() (letters.Operation, error) { return v.api.ReplayDeadLetters(v.ctx(), in) },
		"resolve": func() (letters.Operation, error) { return v.api.ResolveDeadLetters(v.ctx(), in) },
	}
	if v.field("sure") == "" {
		n, err := v.api.CountReplays(v.ctx(), in)
		if err != nil {
			return err
		}
		return v.render(http.StatusOK, "sure", "Dead letters", bulkView{verb, n.Matched, in.Note, v.r.PostForm})
	}
	operation, err := calls[verb]()
	if err != nil {
		return err
	}
	return v.to("/operations/"+operation.ID.String(), "The operation has started.")
}

// one replays or resolves a single dead letter.
func (v *visit) one(verb, run string) error {
	note := httpapi.NoteInput{Note: v.field("note")}
	if verb == "resolve" {
		if _, err := v.api.ResolveDeadLetter(v.ctx(), run, note); err != nil {
			return err
		}
		return v.to("/runs/"+url.PathEscape(run), "The dead letter is resolved.")
	}
	made, err := v.api.ReplayDeadLetter(v.ctx(), run, note)
	if err != nil {
		return err
	}
	return v.to("/runs/"+made.ID.String(), "This run replays the dead one.")
}

// operationsView is the list of operations.
type operationsView struct {
	Operations []letters.Operation
	Next       string
}

func (v *visit) operations() error {
	list, err := v.api.Operations(v.ctx(), filtered(v.r.URL.Query(), "state", "cursor"))
	if err != nil {
		return err
	}
	return v.show("operations", "Operations", operationsView{list.Data, text(list.NextCursor)})
}

func (v *visit) operation() error {
	operation, err := v.api.Operation(v.ctx(), v.part("operation"))
	if err != nil {
		return err
	}
	return v.show("operation", "Operation", operation)
}

func (v *visit) cancelOperation() error {
	id := v.part("operation")
	if _, err := v.api.CancelOperation(v.ctx(), id); err != nil {
		return err
	}
	return v.to("/operations/"+url.PathEscape(id), "The operation is cancelled. What it has done stays done.")
}
