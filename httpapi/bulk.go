package httpapi

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/letters"
)

func operationPath(id uuid.UUID) string { return "/v1/operations/" + id.String() }

func atOperation(o letters.Operation) string { return operationPath(o.ID) }

func (s *server) bulkRoutes() {
	for _, kind := range []struct {
		of                 letters.OperationKind
		summary, does, max string
	}{
		{
			letters.OperationReplay, "Replay many dead letters", "replays them one by one, oldest slots first",
			"at 50 a second unless max_per_second sets another limit. For a job whose concurrency_policy is not allow, " +
				"each replay starts when the one before has ended",
		},
		{
			letters.OperationResolve, "Resolve many dead letters", "resolves them",
			"as fast as possible unless max_per_second sets a limit",
		},
	} {
		api.RegisterBody[BulkInput](s.api, api.Operation{
			ID: string(kind.of) + "-dead-letters", Route: "POST /v1/dead-letters/" + string(kind.of), Role: auth.RoleEditor,
			Tag: tagDeadLetters, Summary: kind.summary, Status: http.StatusAccepted, Responses: started[Matched](s.api),
			Asks: exampleLetters, Answers: []string{`{"kind":"` + string(kind.of) + `"}`},
			Description: "Selects the open dead letters that match at this moment, and starts an operation that " +
				kind.does + " in the background, " + kind.max + ". " +
				"It leaves out dead letters that another running operation has selected. With dry_run, the response is 200 with " +
				"the number of dead letters, and nothing is changed.",
		}, api.Required, s.startOperation(kind.of))
	}
	api.Register(s.api, api.Operation{
		ID: "get-operation", Route: "GET /v1/operations/{operation}", Role: auth.RoleViewer, Tag: tagOperations,
		Summary: "Get an operation",
		Answers: []string{
			`{"outcomes":{"runs":350,"succeeded":290,"dead":48,"unended":12,"success_rate":0.858}}`,
		},
		Description: "With its progress and, of a replay or backfill, with what became of the runs that it has created so " +
			"far.",
	}, s.getOperation)
	api.Register(s.api, api.Operation{
		ID: "list-operations", Route: "GET /v1/operations", Role: auth.RoleViewer, Tag: tagOperations,
		Summary: "List operations", Description: "Newest first.",
	}, s.listOperations)
	api.Register(s.api, api.Operation{
		ID: "cancel-operation", Route: "POST /v1/operations/{operation}/cancel", Role: auth.RoleEditor, Tag: tagOperations,
		Summary:  "Cancel an operation",
		Conflict: stateConflict("Operation 019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42 has ended as done"),
		Answers:  []string{`{"state":"cancelled","finished_at":"2026-12-01T15:23:31.02Z"}`},
		Description: "The operation stops where it is. Finished work stays done. The rest stays as it is: dead " +
			"letters stay open, slots stay without a run, and jobs stay as they are. Repeating the request changes nothing.",
	}, s.cancelOperation)
}

// started describes the answer that starts an operation, and the answer to a dry run in its place.
func started[Count any](a *api.API) map[string]*huma.Response {
	return orDry[Count, letters.Operation](a, "The number that a dry run found")
}

// orDry describes the answer of what is accepted, and the answer to a dry run in its place.
func orDry[Dry, Made any](a *api.API, found string) map[string]*huma.Response {
	responses := api.Rendered[Dry](a, http.StatusOK)
	responses["200"].Description = found
	maps.Copy(responses, api.Rendered[Made](a, http.StatusAccepted))
	return responses
}

// BulkInput is the body that asks for work on many dead letters.
type BulkInput struct {
	Filter       *DeadLetterSelection `json:"filter" nullable:"false" doc:"Selects open dead letters. An empty object selects all of them."`
	LatestPerJob bool                 `json:"latest_per_job,omitempty" doc:"For each job, take only the selected dead letter with the newest slot. The others stay open." example:"true"`
	MaxPerSecond *int                 `json:"max_per_second,omitempty" minimum:"1" maximum:"1000" doc:"The most dead letters that it processes in a second. Absent: 50 for a replay, no limit for a resolve." example:"10"`
	DryRun       bool                 `json:"dry_run,omitempty" doc:"Only count the dead letters; change nothing." example:"false"`
	Note         string               `json:"note,omitempty" maxLength:"1024" doc:"The reason, for people to read; kept with each dead letter. Absent: none." example:"the invoice service was down"`
}

// DeadLetterSelection selects open dead letters. All conditions that are given must match.
type DeadLetterSelection struct {
	Job    string            `json:"job,omitempty" minLength:"1" maxLength:"128" doc:"Only dead letters of this job: its id or name. The job must not be deleted. Absent: of all jobs." example:"daily-invoice-gen"`
	JobID  string            `json:"job_id,omitempty" minLength:"1" format:"uuid" doc:"Only dead letters of the job with this id. The job may be deleted. Absent: of all jobs."`
	Reason DeathReason       `json:"reason,omitempty" minLength:"1" doc:"Only dead letters whose last attempt failed for this reason. Absent: for any reason." example:"http_5xx"`
	From   jobspec.Instant   `json:"from,omitzero" doc:"Only slots at or after this instant. Absent: all earlier ones too." example:"2026-12-01T00:00:00Z"`
	To     jobspec.Instant   `json:"to,omitzero" doc:"Only slots before this instant. Absent: all later ones too." example:"2026-12-02T00:00:00Z"`
	Label  map[string]string `json:"label,omitempty" doc:"Only dead letters of jobs with all of these labels. Absent: with any labels."`
}

// DeathReason is a reason for which runs die.
type DeathReason domain.Reason

// Schema lists the reasons for which runs die.
func (DeathReason) Schema(huma.Registry) *huma.Schema {
	return body.OneOf(domain.ReasonsOf(domain.StatusDead))
}

// known reports whether runs die for this reason.
func (r DeathReason) known() bool {
	return slices.Contains(domain.ReasonsOf(domain.StatusDead), domain.Reason(r))
}

const mostPerSecond = 1000

// defaultRate is in runs per second. It keeps a large replay or backfill from crowding out the retries that wait in
// the same line.
const defaultRate = 50

func (b BulkInput) validate() []problem.FieldError {
	errors := append(note(b.Note), upTo("body.max_per_second", b.MaxPerSecond, mostPerSecond)...)
	f := b.Filter
	if f == nil {
		return append(errors, problem.At("body.filter", "is required; {} selects all open dead letters"))
	}
	if f.Job != "" && !jobspec.NameForm.MatchString(f.Job) {
		errors = append(errors, problem.At("body.filter.job", "is neither the id nor the name of a job"))
	}
	if f.JobID != "" && !uuidForm.MatchString(f.JobID) {
		errors = append(errors, problem.At("body.filter.job_id", "must be the id of a job"))
	}
	if f.Reason != "" && !f.Reason.known() {
		errors = append(errors, problem.At("body.filter.reason",
			api.NotOneOf(string(f.Reason), domain.ReasonsOf(domain.StatusDead))+"; runs die for these reasons"))
	}
	return slices.Concat(errors, soughtLabels("body.filter.label", f.Label),
		instant("body.filter.from", f.From), instant("body.filter.to", f.To))
}

// request returns the store's request for a valid input.
func (b BulkInput) request(kind letters.OperationKind) letters.BulkRequest {
	perSecond := 0 // without a limit
	if kind == letters.OperationReplay {
		perSecond = defaultRate
	}
	f := b.Filter
	r := letters.BulkRequest{
		Kind: kind, LatestPerJob: b.LatestPerJob, Note: b.Note, MaxPerSecond: or(b.MaxPerSecond, perSecond),
		Filter: letters.DeadLetterFilter{
			Job: f.Job, Reason: domain.Reason(f.Reason), Labels: f.Label, From: orNil(f.From),
			To: orNil(f.To),
		},
	}
	if f.JobID != "" {
		r.Filter.JobID = new(uuid.MustParse(f.JobID))
	}
	return r
}

// Matched is the answer to a dry run of an operation on many dead letters or jobs.
type Matched struct {
	Matched int `json:"matched" doc:"How many open dead letters or jobs were selected." example:"1204"`
}

func (s *server) startOperation(
	kind letters.OperationKind,
) func(context.Context, int32, *Keyed[BulkInput]) (*answered, error) {
	return func(ctx context.Context, tenant int32, in *Keyed[BulkInput]) (*answered, error) {
		bulk := in.Request.Value
		if err := in.Request.Check(bulk.validate()...); err != nil {
			return nil, err
		}
		request := bulk.request(kind)
		if bulk.DryRun {
			n, err := s.Store.Letters.CountDeadLetters(ctx, tenant, request)
			return counted(Matched{n}, err)
		}
		return accept(ctx, s, tenant, in.by(), atOperation, func(w store.Writer) (letters.Operation, error) {
			return w.StartOperation(ctx, request)
		})
	}
}

// counted is the answer to a dry run, unless counting failed.
func counted(v any, err error) (*answered, error) {
	if err != nil {
		return nil, err
	}
	raw, err := body.Render(v)
	return &answered{Status: http.StatusOK, ContentType: body.MediaJSON, Body: raw}, err
}

type listOperationsInput struct {
	State    string `query:"state" enum:"running,done,cancelled,failed" doc:"Only operations in this state."`
	Outcomes string `query:"outcomes" enum:"true" doc:"true: with what became of the runs that each replay and backfill made, in the field outcomes."`
	Paging
}

func (s *server) listOperations(
	ctx context.Context, tenant int32, in *listOperationsInput,
) (*answer[List[letters.Operation]], error) {
	return pageOf(s.Store.Letters.ListOperations(ctx, tenant,
		letters.OperationFilter{State: letters.OperationState(in.State), Outcomes: in.Outcomes != "", Page: in.page()}))
}

type operationRef struct {
	Operation pathID `path:"operation" doc:"Id of the operation." example:"019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42"`
}

func (o operationRef) Exists() error { return o.Operation.exists() }

// NotFound implements api.Named.
func (operationRef) NotFound() string { return "There is no operation with that id." }

func (s *server) getOperation(ctx context.Context, tenant int32, in *operationRef) (*answer[letters.Operation], error) {
	return show(s.Store.Letters.GetOperation(ctx, tenant, in.Operation.id))
}

func (s *server) cancelOperation(
	ctx context.Context, tenant int32, in *operationRef,
) (*answer[letters.Operation], error) {
	return show(s.Store.Letters.CancelOperation(ctx, tenant, in.Operation.id))
}
