package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
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

// showExamples adds the examples to the descriptions of operations.
func showExamples(schemas huma.Registry, operations []*api.Operation) {
	for _, op := range operations {
		if op.Doc.RequestBody != nil {
			for _, content := range op.Doc.RequestBody.Content {
				if op.Asks != "" {
					content.Example = json.RawMessage(op.Asks)
				} else {
					content.Example = examples{Registry: schemas, bodies: true}.of(content.Schema)
				}
			}
		}
		answers := examples{Registry: schemas, job: exampleJobInput}
		if op.Doc.Method == http.MethodPut { // the answer shows what was put
			answers.job = op.Asks
		}
		for status, response := range op.Doc.Responses {
			content, dry := response.Content[body.MediaJSON], op.Status == http.StatusAccepted && status == "200"
			switch {
			case status[0] != '2' || content == nil:
			case dry:
				content.Example = answers.of(content.Schema)
			default:
				content.Example = answers.of(content.Schema, op.Answers...)
			}
		}
	}
}

// examples derives examples from schemas.
type examples struct {
	huma.Registry
	bodies bool   // of requests: with optional fields too, if they have an example that is not their default
	job    string // what the jobs in them are made of
}

// of returns an example of a schema, changed by merge patches.
func (e examples) of(s *huma.Schema, differs ...string) any {
	if s.Ref == "" {
		return e.inline(s)
	}
	name := refName(s)
	name = cmp.Or(shownAs[name], name)
	raw, err := json.Marshal(e.plain(name))
	for _, patch := range append([]string{typical[name]}, differs...) {
		if err == nil && patch != "" {
			raw, err = jsonpatch.MergePatch(raw, []byte(patch))
		}
	}
	if err == nil {
		raw, err = inOrder(raw)
	}
	example := reflect.New(e.TypeFromRef(body.SchemaPrefix + name)).Interface() // a struct keeps the order of its fields
	if err == nil {
		err = json.Unmarshal(raw, example)
	}
	if err != nil {
		panic(fmt.Sprintf("the example of %s: %v", name, err)) // tests render every document
	}
	return example
}

// plain returns an example of a schema as the tags of its fields say. A job has the defaults that the code fills in.
func (e examples) plain(schema string) any {
	if schema != "Job" && schema != "ListedJob" {
		return e.inline(e.SchemaFromRef(body.SchemaPrefix + schema))
	}
	last := e.of(e.Schema(reflect.TypeFor[runs.Run](), true, "")).(*runs.Run)
	return showOne(exampleRecord(e.job, last), jobspec.DefaultJitter)
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

func exampleRecord(of string, last *runs.Run) jobs.Record {
	var input JobInput
	if err := body.Fill(&input, []byte(of)); err != nil {
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
