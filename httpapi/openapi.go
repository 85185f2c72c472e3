package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// apiVersion is the version of the API, not of the binary.
const apiVersion = "1.0.0"

// humaConfig leaves out everything that huma adds by itself: its documentation page loads from other hosts, and its
// schema links put a $schema into every body.
func humaConfig() huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "Punctual",
				Version: apiVersion,
				Description: "Fires HTTP jobs from Postgres, on time. Instants are RFC 3339 in UTC. Durations are Go duration " +
					"strings such as 90s or 24h, returned as they were written. In a request, null and absence are the same. " +
					"Unknown fields are errors. Errors are application/problem+json (RFC 9457) with a stable code, and name every " +
					"field at fault. While the deployment or the tenant is frozen, nothing is sent, and every response to its " +
					"callers has the header Punctual-Frozen: deployment or tenant, since when, and why. While a key is in its last " +
					"30 days (see expires_soon), answers to it have the header Punctual-Key-Expires with the instant.",
				License: &huma.License{Name: "Apache-2.0"},
			},
			Tags: []*huma.Tag{
				{Name: tagJobs, Description: "Requests to send, with their targets and schedules."},
				{Name: tagRuns, Description: "Sent and skipped runs, with their results."},
				{
					Name: tagCallbacks,
					Description: "Reports from the targets of jobs with completion async. They carry the token that came with the " +
						"request.",
				},
				{Name: tagDeadLetters, Description: "Runs that exhausted their attempts, until they are replayed or resolved."},
				{Name: tagOperations, Description: "Work on many dead letters, past slots or jobs, in the background."},
				{Name: tagSchedules, Description: "When jobs fire."},
				{Name: tagEvents, Description: "Events, at which jobs run that have subscribed."},
				{Name: tagTenants, Description: "Who may do what, and how much of it."},
				{Name: tagAudit, Description: "Who changed what, and when."},
				{
					Name:        tagSecrets,
					Description: "Secrets that authenticate and sign requests to targets. No value is ever shown again.",
				},
				{Name: tagOverview, Description: "The trouble of now, and the runs of the last day."},
				{Name: tagFleet, Description: "Waiting work, and the replicas that send it."},
			},
			Components: &huma.Components{
				Schemas:         body.NewSchemas(schemaName),
				SecuritySchemes: securitySchemes(),
			},
		},
		Formats:       map[string]huma.Format{body.MediaJSON: huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: body.MediaJSON,
		Transformers:  []huma.Transformer{api.NameRequest},
	}
}

// describe completes the description with what the types cannot say.
func (s *server) describe() {
	api := s.api.OpenAPI()
	schemas := api.Components.Schemas.Map()
	for _, schema := range schemas {
		for _, property := range schema.Properties {
			property.Nullable = property.Nullable && property.Type != huma.TypeArray
			if property.Nullable && len(property.Enum) > 0 { // as JSON Schema demands
				property.Enum = append(slices.Clip(property.Enum), nil)
			}
		}
	}
	describeReplacement(schemas)
	describeChoices(schemas)
	describeNulls(schemas)
	summarized(schemas)
	describeDefaults(api)
	describePatch(schemas)
	for op := range operations(api) {
		describeRole(op)
		describeAnswers(op)
		describePosition(op)
		for _, p := range op.Parameters {
			p.Schema.Nullable = false
		}
		for status, response := range op.Responses {
			describeProblem(op, status, response)
		}
	}
}

// describeChoices names the values of fields that take few.
func describeChoices(schemas map[string]*huma.Schema) {
	for _, name := range []string{"Job", "ListedJob", "JobInput", "JobPatch", "JobReplacement"} {
		p := schemas[name].Properties
		p["concurrency_policy"].Enum = []any{
			domain.PolicyAllow, domain.PolicyForbid, domain.PolicyReplace, domain.PolicyWait,
			domain.PolicyQueue,
		}
		p["priority"].Enum = []any{domain.PriorityHigh, domain.PriorityNormal, domain.PriorityLow}
		p["delivery"].Enum = []any{domain.DeliverAtLeastOnce, domain.DeliverAtMostOnce}
		p["completion"].Enum = []any{domain.CompleteOnResponse, domain.CompleteAsync}
		p["name"].Pattern = domain.NameForm.String()
	}
	schemas["Auth"].Properties["type"].Enum = []any{
		domain.AuthNone, domain.AuthBearer, domain.AuthBasic, domain.AuthHeader, domain.AuthOAuth2,
		domain.AuthOIDC,
	}
	schemas["Link"].Properties["when"].Enum = []any{domain.WhenSucceeded, domain.WhenFailed, domain.WhenEnded}
	schemas["Missed"].Properties["policy"].Enum = []any{
		domain.MissedSkip, domain.MissedFireOnce, domain.MissedFireAll,
	}
	schemas["Missed"].Properties["concurrency"].Enum = []any{domain.MissedOneAtATime, domain.MissedAllow}
	schemas["Notify"].Properties["on"].Items.Enum = enum(domain.AskedEvents)
	schemas["Notify"].Properties["format"].Enum = enum(domain.Formats)
	schemas["Problem"].Properties["code"].Enum = enum(sortedCodes())
}

// describeNulls says which fields may be null, or absent.
func describeNulls(schemas map[string]*huma.Schema) {
	schemas["Retry"].Required = nil
	for name, limit := range schemas["TenantSettings"].Properties { // in a patch, null lifts a limit
		limit.Nullable = name != "notify"
	}
	for _, field := range []string{
		"Run.skipped", "ListedRun.skipped", "Triggered.skipped", "Job.last_run", "ListedJob.last_run", "Explanation.run",
		"Explanation.pause", "Explanation.archive", "Overview.archive", "Overview.frozen", "Overdue.oldest",
		"QueueList.held_back", "QueueList.frozen", "ReplicaList.frozen", "FreezeState.deployment", "FreezeState.tenant",
	} {
		owner, property, _ := strings.Cut(field, ".")
		nullable(schemas, owner, property)
	}
}

// describePatch says that a patch requires no field, at any depth.
func describePatch(schemas map[string]*huma.Schema) {
	patch := schemas["JobPatch"]
	patch.Required = nil
	target := *schemas["Target"]
	target.Required, target.Description = nil, patch.Properties["target"].Description
	auth := *schemas["Auth"]
	auth.Required, auth.Description = nil, target.Properties["auth"].Description
	target.Properties = maps.Clone(target.Properties)
	target.Properties["auth"] = &auth
	patch.Properties["target"] = &target
}

// describeAnswers tells apart answers that have one type.
func describeAnswers(op *huma.Operation) {
	if op.Method == http.MethodPut {
		created := *op.Responses["200"]
		created.Description = "Created"
		op.Responses["201"] = &created
	}
	if accepted := op.Responses["202"]; accepted != nil {
		delete(accepted.Headers, "ETag") // it shows a run or an operation, not a job
	}
	if op.OperationID == "create-jobs" { // each of the jobs has its own
		delete(op.Responses["201"].Headers, "Location")
		delete(op.Responses["201"].Headers, "ETag")
	}
}

// describeReplacement adds the fields of a job that a PUT ignores to its body.
func describeReplacement(schemas map[string]*huma.Schema) {
	for _, name := range onlyInJob() {
		field := *schemas["Job"].Properties[name]
		field.ReadOnly, field.Nullable = true, true
		field.Description = "Set by the server and ignored in requests, so that the response of a GET can be sent back."
		if field.Ref != "" {
			field = huma.Schema{
				Type: huma.TypeObject, AdditionalProperties: true, ReadOnly: true, Nullable: true, Description: field.Description,
			}
		}
		schemas["JobReplacement"].Properties[name] = &field
	}
}

// nullable makes a property that holds an object accept null. A reference cannot say that in every dialect of
// OpenAPI, so the schema is copied to its place.
func nullable(schemas map[string]*huma.Schema, owner, property string) {
	place := schemas[owner].Properties
	inline := *schemas[refName(place[property])]
	inline.Nullable, inline.Description = true, place[property].Description
	place[property] = &inline
}

func enum[T any](values []T) []any {
	return pg.Column(values, func(v T) any { return v })
}

// sortedCodes returns the codes by status and then by name, without CodeClientCancelled, which no client ever reads.
// They are sorted once, as every answer of every operation asks for them.
var sortedCodes = sync.OnceValue(func() []problem.Code {
	var list []problem.Code
	for code := range problem.Codes {
		if code != problem.CodeClientCancelled {
			list = append(list, code)
		}
	}
	slices.SortFunc(list, func(a, b problem.Code) int {
		return cmp.Or(problem.Codes[a].Status-problem.Codes[b].Status, cmp.Compare(a, b))
	})
	return list
})

// operations yields all operations, by path and method.
func operations(api *huma.OpenAPI) iter.Seq[*huma.Operation] {
	return func(yield func(*huma.Operation) bool) {
		for _, path := range slices.Sorted(maps.Keys(api.Paths)) {
			item := api.Paths[path]
			for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
				if op != nil && !yield(op) {
					return
				}
			}
		}
	}
}

// indented indents a JSON document.
func indented(document []byte, err error) ([]byte, error) {
	var b bytes.Buffer
	if err == nil {
		err = json.Indent(&b, document, "", "  ")
	}
	b.WriteByte('\n')
	return b.Bytes(), err
}
