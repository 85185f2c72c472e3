package httpapi

import (
	"context"
	"net/http"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/letters"
	"punctual/store/runs"
)

func (s *server) deadLetterRoutes() {
	api.Register(s.api, api.Operation{
		ID: "list-dead-letters", Route: "GET /v1/dead-letters", Role: auth.RoleViewer, Tag: tagDeadLetters,
		Summary: "List dead letters",
		Description: "Runs that exhausted their attempts, newest first by id. Only open dead letters are listed, unless " +
			"resolved says otherwise. All filters must match.",
	}, s.listDeadLetters)
	api.Register(s.api, api.Operation{
		ID: "list-dead-letter-groups", Route: "GET /v1/dead-letters/groups", Role: auth.RoleViewer, Tag: tagDeadLetters,
		Summary: "List dead letters by job and reason",
		Description: "The open dead letters, counted by job and reason. The group with the newest dead run comes first, by " +
			"the run's id. A group that gets a newer one while you read page after page moves to the front. All filters must " +
			"match. A replay or resolve with the group's job_id and reason in its filter is about the whole group.",
	}, s.listDeadLetterGroups)
	api.RegisterBody[NoteInput](s.api, api.Operation{
		ID: "replay-dead-letter", Route: "POST /v1/dead-letters/{run}/replay", Role: auth.RoleEditor, Tag: tagDeadLetters,
		Summary: "Replay a dead letter", Status: http.StatusAccepted,
		Responses: api.Rendered[runs.Run](s.api, http.StatusAccepted),
		Conflict:  stateConflict("Dead letter 019ad964-3b80-8b21-8f6e-1d2c3b4a5968 was resolved at 2026-12-01T15:01:12Z"),
		Asks:      `{"note":"the invoice service is back"}`,
		Answers: []string{
			examplePending, `{"trigger":"replay","replay_of":"019ad964-3b80-8b21-8f6e-1d2c3b4a5968"}`,
		},
		Description: "Creates a new run, due at once, with the trigger replay and with replay_of set to the dead run, " +
			"which stays dead. Its requests carry the webhook-id, Idempotency-Key and Punctual-Scheduled-For of the run that " +
			"died first, and the body and headers that were given to that run alone. Everything else follows the job's " +
			"current definition. expires_after does not apply to it. Unless the job's concurrency_policy is allow, it waits " +
			"until no run of the job is active. It replaces no run and is never skipped. The replay resolves the dead letter. " +
			"The response is 409 if the dead letter is resolved already, unless its replay was cancelled, and also if the job " +
			"is deleted. A replay that dies has its own dead letter.",
	}, api.Optional, s.replayDeadLetter)
	api.RegisterBody[NoteInput](s.api, api.Operation{
		ID: "resolve-dead-letter", Route: "POST /v1/dead-letters/{run}/resolve", Role: auth.RoleEditor, Tag: tagDeadLetters,
		Summary: "Resolve a dead letter",
		Answers: []string{`{"resolved_at":"2026-12-01T15:20:11.803Z","note":"sent manually"}`},
		Description: "Removes the dead letter from the list of open ones, with a note. A dead letter that is already " +
			"resolved or replayed stays as it is.",
	}, api.Optional, s.resolveDeadLetter)
}

// NoteInput is the optional body of a replay and of a resolve.
type NoteInput struct {
	Note string `json:"note,omitempty" maxLength:"1024" doc:"The reason, for people to read. Absent: none." example:"sent manually"`
}

// DeadLetterQuery are the filters of lists of dead letters.
type DeadLetterQuery struct {
	Job    string       `query:"job" maxLength:"128" doc:"Only dead letters of this job: its id or name. The job must not be deleted."`
	JobID  string       `query:"job_id" format:"uuid" doc:"Only dead letters of the job with this id. The job may be deleted."`
	Reason DeathReason  `query:"reason" doc:"Only dead letters whose last attempt failed for this reason."`
	Label  []string     `query:"label,explode" maxItems:"32" doc:"Only dead letters of jobs with this label, as name=value. Repeat the parameter for several labels." example:"[\"team=billing\"]"`
	From   instantParam `query:"from" doc:"Only slots at or after this instant." example:"2026-12-01T00:00:00Z"`
	To     instantParam `query:"to" doc:"Only slots before this instant." example:"2026-12-02T00:00:00Z"`
}

func (q DeadLetterQuery) filter() (letters.DeadLetterFilter, error) {
	labels, err := parseLabels(q.Label)
	if err != nil {
		return letters.DeadLetterFilter{}, err
	}
	id, err := optionalID("query.job_id", q.JobID, "must be the id of a job")
	return letters.DeadLetterFilter{
		Job: q.Job, JobID: id, Reason: domain.Reason(q.Reason), Labels: labels, From: q.From.at,
		To: q.To.at,
	}, err
}

type listDeadLettersInput struct {
	DeadLetterQuery
	Resolved string `query:"resolved" enum:"false,true,any" default:"false" doc:"false: open dead letters; true: dead letters that were resolved or replayed; any: both."`
	Paging
}

func (s *server) listDeadLetters(
	ctx context.Context, tenant int32, in *listDeadLettersInput,
) (*answer[List[letters.DeadLetter]], error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	filter.Page = in.page()
	if in.Resolved != "any" {
		filter.Resolved = new(in.Resolved == "true")
	}
	return pageOf(s.Store.Letters.ListDeadLetters(ctx, tenant, filter))
}

type listDeadLetterGroupsInput struct {
	DeadLetterQuery
	Paging
}

func (s *server) listDeadLetterGroups(
	ctx context.Context, tenant int32, in *listDeadLetterGroupsInput,
) (*answer[List[letters.DeadLetterGroup]], error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	filter.Page = in.page()
	return pageOf(s.Store.Letters.ListGroups(ctx, tenant, filter))
}

// DeadLetterRef is the input of operations on one dead letter.
type DeadLetterRef struct {
	Run pathID `path:"run" doc:"Id of the dead run." example:"019ad964-3b80-8b21-8f6e-1d2c3b4a5968"`
}

// Exists returns ErrNotFound for a malformed id.
func (d DeadLetterRef) Exists() error { return d.Run.exists() }

// NotFound implements api.Named.
func (DeadLetterRef) NotFound() string { return "There is no dead letter with that id." }

type replayDeadLetterInput struct {
	DeadLetterRef
	Keyed[NoteInput]
}

func (s *server) replayDeadLetter(ctx context.Context, tenant int32, in *replayDeadLetterInput) (*answered, error) {
	if err := in.Request.Check(note(in.Request.Value.Note)...); err != nil {
		return nil, err
	}
	return accept(ctx, s, tenant, in.by(), atRun, func(w store.Writer) (runs.Run, error) {
		return w.ReplayDeadLetter(ctx, in.Run.id, in.Request.Value.Note)
	})
}

type resolveDeadLetterInput struct {
	DeadLetterRef
	Request body.Body[NoteInput]
}

func (s *server) resolveDeadLetter(
	ctx context.Context, tenant int32, in *resolveDeadLetterInput,
) (*answer[letters.DeadLetter], error) {
	if err := in.Request.Check(note(in.Request.Value.Note)...); err != nil {
		return nil, err
	}
	return show(s.Store.Letters.ResolveDeadLetter(ctx, tenant, in.Run.id, in.Request.Value.Note))
}
