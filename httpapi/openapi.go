package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// humaConfig leaves out everything that huma adds by itself: its documentation page loads from other hosts, and its
// schema links put a $schema into every body. The version of the API is that of the binary.
func humaConfig(version string) huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "Punctual",
				Version: cmp.Or(version, "dev"),
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
	types := s.api.OpenAPI().Components.Schemas
	schemas := types.Map()
	for _, schema := range schemas {
		for _, property := range schema.Properties {
			property.Nullable = property.Nullable && property.Type != huma.TypeArray
			if property.Nullable && len(property.Enum) > 0 { // as JSON Schema demands
				property.Enum = append(slices.Clip(property.Enum), nil)
			}
		}
	}
	describeReplacement(schemas)
	for _, name := range []string{"Job", "ListedJob", "JobInput", "JobPatch", "JobReplacement"} {
		named := schemas[name].Properties["name"]
		named.Pattern = jobspec.NameForm.String()
		// The same in all, so that the page shows it once.
		named.Description += " Absent: only in a PUT, for the name in the path, or that of the job with the id in the path."
	}
	schemas["Problem"].Properties["code"].Enum = pg.Column(sortedCodes(), func(c problem.Code) any { return c })
	describeNulls(schemas, types)
	summarized(schemas)
	describePatch(schemas) // first, because an absent field of a patch has no default
	describeDefaults(schemas, s.api.Operations)
	describeActions(schemas, s.api.Operations)
	for _, op := range s.api.Operations {
		describeRole(op)
		describeAnswers(op)
		describePosition(op)
		for _, p := range op.Doc.Parameters {
			p.Schema.Nullable = false
		}
		for status, response := range op.Doc.Responses {
			describeProblem(op, status, response)
		}
	}
}

// describeNulls says which fields may be null: objects that are always written, and the settings of a tenant, which a
// patch removes.
func describeNulls(schemas map[string]*huma.Schema, types huma.Registry) {
	for name, schema := range schemas {
		for _, field := range reflect.VisibleFields(types.TypeFromRef(body.SchemaPrefix + name)) {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			always := field.Type.Kind() == reflect.Pointer && options == "" && field.Tag.Get("nullable") != "false"
			if p := schema.Properties[name]; always && p != nil && p.Ref != "" {
				schema.Properties[name] = nullable(schemas, p)
			}
		}
	}
	for name, limit := range schemas["TenantSettings"].Properties {
		limit.Nullable = name != "notify"
	}
}

// describePatch says that a patch requires no field, at any depth.
func describePatch(schemas map[string]*huma.Schema) {
	patch := schemas["JobPatch"]
	patch.Required = nil
	target, auth := copied(schemas["Target"]), copied(schemas["Auth"])
	target.Required, target.Description = nil, patch.Properties["target"].Description
	auth.Required, auth.Description = nil, target.Properties["auth"].Description
	target.Properties["auth"] = auth
	patch.Properties["target"] = target
}

// copied returns a copy of a schema whose fields can be changed by themselves.
func copied(of *huma.Schema) *huma.Schema {
	c := *of
	c.Properties = make(map[string]*huma.Schema, len(of.Properties))
	for name, field := range of.Properties {
		f := *field
		c.Properties[name] = &f
	}
	return &c
}

// describeActions names the constants of actions, which generators would otherwise name like types: RunTrigger.
func describeActions(schemas map[string]*huma.Schema, operations []*api.Operation) {
	name := func(of *huma.Schema) {
		of.Extensions = map[string]any{"x-enum-varnames": pg.Column(of.Enum, func(action any) string {
			words := strings.FieldsFunc(fmt.Sprint(action), func(r rune) bool { return r == '.' || r == '_' })
			for i, w := range words {
				words[i] = strings.ToUpper(w[:1]) + w[1:]
			}
			return "Action" + strings.Join(words, "")
		})}
	}
	for _, op := range operations {
		for _, p := range op.Doc.Parameters {
			if p.Name == "action" {
				name(p.Schema)
			}
		}
	}
	for _, s := range schemas {
		if p := s.Properties["action"]; p != nil && len(p.Enum) > 0 {
			name(p)
		}
	}
}

// describeAnswers tells apart answers that have one type.
func describeAnswers(op *api.Operation) {
	responses := op.Doc.Responses
	if op.Doc.Method == http.MethodPut {
		created := *responses["200"]
		created.Description = "Created"
		responses["201"] = &created
	}
	if accepted := responses["202"]; accepted != nil {
		delete(accepted.Headers, "ETag") // it shows a run or an operation, not a job
	}
	for _, header := range op.Lacks {
		delete(responses[strconv.Itoa(op.Status)].Headers, header)
	}
}

// describeReplacement adds the fields of a job that a PUT ignores to its body, and says that it needs no name.
func describeReplacement(schemas map[string]*huma.Schema) {
	replacement := schemas["JobReplacement"]
	replacement.Required = slices.DeleteFunc(slices.Clone(replacement.Required), func(field string) bool {
		return field == "name"
	})
	replacement.Properties["name"].MinLength = new(1)
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

// nullable returns a schema of an object that accepts null. A reference cannot say that in every dialect of OpenAPI, so
// the schema is a copy.
func nullable(schemas map[string]*huma.Schema, of *huma.Schema) *huma.Schema {
	inline := *schemas[refName(of)]
	inline.Nullable, inline.Description = true, of.Description
	return &inline
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

// indented indents a JSON document.
func indented(document []byte, err error) ([]byte, error) {
	var b bytes.Buffer
	if err == nil {
		err = json.Indent(&b, document, "", "  ")
	}
	b.WriteByte('\n')
	return b.Bytes(), err
}
