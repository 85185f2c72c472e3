package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/runs"
)

// The examples of the documentation are made of the examples in the tags of fields. Where that is not enough,
// examples_shown.go says how they differ.

const exampleRequestID = "7UBLQ5SRJ2ZTNBQFRQTMLNPKJE"

var (
	exampleJobID = uuid.MustParse("019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11")
	exampleRunID = uuid.MustParse("019ad964-3b80-8b21-8f6e-1d2c3b4a5968")
)

// showExamples adds the examples to a description.
func showExamples(described *huma.OpenAPI) {
	answers, bodies := examples{described.Components.Schemas, false}, examples{described.Components.Schemas, true}
	ofJobs := exampleJobs(answers.run())
	for op := range operations(described) {
		if op.RequestBody != nil {
			for _, content := range op.RequestBody.Content {
				if example, ok := bodyExamples[op.OperationID]; ok {
					content.Example = example
				} else {
					content.Example = bodies.of(content.Schema)
				}
			}
		}
		for status, response := range op.Responses {
			content := response.Content[body.MediaJSON]
			if status[0] != '2' || content == nil {
				continue
			}
			if content.Example = ofJobs[op.OperationID]; content.Example == nil {
				content.Example = answers.of(content.Schema, answersDiffer[op.OperationID+" "+status]...)
			}
		}
	}
}

// examples derives examples from schemas.
type examples struct {
	huma.Registry
	bodies bool // of requests: with optional fields too, if they have an example that is not their default
}

// of returns an example of a schema, changed by merge patches.
func (e examples) of(s *huma.Schema, differs ...string) any {
	if s.Ref == "" {
		return e.inline(s)
	}
	name := refName(s)
	ref := strings.TrimSuffix(s.Ref, name)
	if as, several := shownAs[name]; several {
		name = as
	}
	ref += name
	raw, err := json.Marshal(e.inline(e.SchemaFromRef(ref)))
	for _, patch := range append([]string{typical[name]}, differs...) {
		if err == nil && patch != "" {
			raw, err = jsonpatch.MergePatch(raw, []byte(patch))
		}
	}
	if err == nil {
		raw, err = inOrder(raw)
	}
	example := reflect.New(e.TypeFromRef(ref)).Interface() // a struct keeps the order of its fields
	if err == nil {
		err = json.Unmarshal(raw, example)
	}
	if err != nil {
		panic(fmt.Sprintf("the example of %s: %v", name, err)) // tests render every document
	}
	return example
}

// inOrder sorts the fields of objects, which merging has put in any order.
func inOrder(raw []byte) ([]byte, error) {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

func (e examples) inline(s *huma.Schema) any {
	switch {
	case len(s.Examples) > 0:
		return s.Examples[0]
	case s.Nullable, s.Type == "":
		return nil
	case len(s.Enum) > 0:
		return s.Enum[0]
	}
	switch s.Type {
	case huma.TypeObject:
		return e.fields(s)
	case huma.TypeArray:
		if s.Items.Ref == "" && len(s.Items.Examples) == 0 {
			return []any{}
		}
		return []any{e.of(s.Items)}
	case huma.TypeBoolean:
		return false
	case huma.TypeInteger, huma.TypeNumber:
		return 0
	}
	switch s.Format {
	case body.FormatInstant:
		return "2026-12-01T11:00:00Z"
	case "uuid":
		return exampleJobID
	}
	return ""
}

func (e examples) fields(s *huma.Schema) map[string]any {
	fields := map[string]any{}
	for name, p := range s.Properties {
		optional := e.bodies && (p.Ref != "" || len(p.Examples) > 0 && !reflect.DeepEqual(p.Examples[0], p.Default))
		if optional || slices.Contains(s.Required, name) {
			fields[name] = e.of(p)
		}
	}
	return fields
}

// run returns the run that the examples are about.
func (e examples) run() *runs.Run {
	return e.of(e.Schema(reflect.TypeFor[runs.Run](), true, "")).(*runs.Run)
}

// exampleJobs are the answers that show jobs, by operation: with the defaults that the code fills in.
func exampleJobs(last *runs.Run) map[string]any {
	job := showOne(exampleRecord(exampleJobInput, last), domain.DefaultJitter)
	paused := exampleRecord(exampleJobInput, nil)
	paused.State, paused.PauseNote = domain.JobPaused, "the warehouse moves"
	paused.PausedAt, paused.PausedUntil = new(moment("2026-11-28T18:00:00.5Z")), new(moment("2026-12-01T09:00:00Z"))
	paused.PausedBy = "key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)"
	paused.NextScheduledFor, paused.NextRunAt = nil, nil
	recent := &runs.RecentRuns{DurationP95: new(4.208), Runs: []runs.RecentRun{
		{ID: exampleRunID, Status: domain.StatusSucceeded, ScheduledFor: last.ScheduledFor},
	}}
	return map[string]any{
		"create-job": job, "get-job": job, "patch-job": job, "resume-job": job, "restore-version": job,
		"put-job":   showOne(exampleRecord(exampleWorkflow, last), domain.DefaultJitter),
		"pause-job": showJob(paused, domain.DefaultJitter),
		"list-jobs": List[ListedJob]{Data: []ListedJob{{Job: job, Recent: recent}}},
	}
}

func exampleRecord(of json.RawMessage, last *runs.Run) jobs.Record {
	var input JobInput
	if err := body.Fill(&input, of); err != nil {
		panic(err)
	}
	return jobs.Record{
		ID: exampleJobID, Tenant: "default", Version: 7, State: domain.JobActive, Definition: input.Definition,
		NextScheduledFor: new(moment("2026-12-02T11:00:00Z")), NextRunAt: new(moment("2026-12-02T11:00:00.421Z")),
		LastRun: last, CreatedAt: moment("2026-11-02T09:14:03.120441Z"), UpdatedAt: moment("2026-11-20T16:40:55.002318Z"),
	}
}

func moment(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

// problemExamples are, by status, the answers that are the same for all operations. problemExample has the others.
var problemExamples = map[string]*problem.Problem{
	"400": problem.New(problem.CodeMalformed,
		"The body is not JSON at byte 17 (line 2, column 5): invalid character '}' looking for beginning of value."),
	"401": exampleOf(domain.ErrRunToken),
	"429": problem.New(problem.CodeRateLimited, "Your tenant may send 200 requests a second, on all replicas together."),
	"410": problem.New(problem.CodeCursorGone, "Changes after the cursor were removed, because they are older than the "+
		"tenant's changes_kept; leave after out to start again from the oldest change that is kept."),
	"412": problem.New(problem.CodeVersion, "The job has been changed since."),
	"422": problem.New(problem.CodeInvalid, "2 fields are not valid.",
		problem.At("body.shedule", "unknown field; did you mean schedule?"),
		problem.At("body.timeout", `"soon" is not a duration; write one such as "90s", "5m" or "24h"`)),
	"503": problem.New(problem.CodeBusy,
		"This replica is computing another forecast, and this one has waited for 8s; try again."),
	"500": api.Internal(exampleRequestID),
}

// exampleOf returns the answer to an error.
func exampleOf(err error) *problem.Problem { return api.ProblemOf(context.Background(), err, "") }
