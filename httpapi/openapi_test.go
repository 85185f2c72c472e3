package httpapi

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/store"
)

var update = flag.Bool("update", false, "write testdata/openapi.json anew")

// documents serves what needs no database.
var documents = sync.OnceValues(func() (http.Handler, error) {
	return NewHandler(Config{Store: new(store.Store), Registerer: prometheus.NewRegistry()})
})

// static200 answers a request that needs no database.
func static200(t *testing.T, path string) *reply {
	t.Helper()
	handler, err := documents()
	must(t, err)
	return record(t, handler, "GET", path, "").want(200)
}

// dig returns what a document has at a path.
func dig(v any, path ...string) any {
	for _, name := range path {
		v = v.(map[string]any)[name]
	}
	return v
}

func TestTheOpenAPIDocumentIsCheckedIn(t *testing.T) {
	t.Parallel()
	const file = "../testdata/openapi.json"
	got := static200(t, "/openapi.json").body
	if *update {
		must(t, os.WriteFile(file, got, 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs; go test ./httpapi -run OpenAPI -update writes it anew: %s", file, diff)
	}
}

// The OpenAPI 3.0 document says the same as that of 3.1, in its own words: null is no type there, and a schema has
// one example.
func TestTheOlderOpenAPIDocumentSaysTheSame(t *testing.T) {
	t.Parallel()
	document, older := static200(t, "/openapi.json").fields(), static200(t, "/openapi-3.0.json").fields()
	if document["openapi"] != "3.1.0" || older["openapi"] != "3.0.3" {
		t.Errorf("they are of OpenAPI %v and %v", document["openapi"], older["openapi"])
	}
	older["openapi"] = document["openapi"]
	walk(older, "", func(_ string, v any) {
		schema, _ := v.(map[string]any)
		kind, ok := schema["type"].(string)
		if !ok {
			return
		}
		if schema["nullable"] == true {
			schema["type"] = []any{kind, "null"}
			delete(schema, "nullable")
		}
		if example, ok := schema["example"]; ok {
			schema["examples"] = []any{example}
			delete(schema, "example")
		}
	})
	if diff := cmp.Diff(document, older); diff != "" {
		t.Errorf("what 3.1 says (-) and 3.0 (+): %s", diff)
	}
}

func TestOpenAPIDocumentsAreSound(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/openapi.json", "/openapi-3.0.json"} {
		t.Run(path, func(t *testing.T) {
			document := static200(t, path).fields()
			schemas := dig(document, "components", "schemas").(map[string]any)
			walk(document, "", func(at string, v any) {
				object, ok := v.(map[string]any)
				if !ok {
					return
				}
				if ref, ok := object["$ref"].(string); ok {
					if _, known := schemas[strings.TrimPrefix(ref, "#/components/schemas/")]; !known {
						t.Errorf("%s: %s leads nowhere", at, ref)
					}
				}
				for _, word := range []string{"oneOf", "anyOf", "$schema", "patternDescription"} {
					if _, ok := object[word]; ok {
						t.Errorf("%s: has %s", at, word)
					}
				}
				if object["format"] == "duration" {
					t.Errorf("%s: format duration", at)
				}
				if _, list := object["type"].([]any); list && path == "/openapi-3.0.json" {
					t.Errorf("%s: a list of types in 3.0", at)
				}
			})
			ids := map[string]bool{}
			for path, item := range document["paths"].(map[string]any) {
				for method, v := range item.(map[string]any) {
					checkOperation(t, method+" "+path, v.(map[string]any), ids)
				}
			}
			if len(ids) != 98 {
				t.Errorf("%d operations", len(ids))
			}
		})
	}
}

// Each optional field of a body says what its absence means. In a merge patch, an absent field stays. No field has a
// default in its schema, for which openapi-typescript demands the field.
func TestEveryOptionalFieldSaysWhatItsAbsenceMeans(t *testing.T) {
	t.Parallel()
	document := static200(t, "/openapi.json").fields()
	schemas := dig(document, "components", "schemas").(map[string]any)
	checked := map[string]bool{}
	var check func(at string, schema map[string]any)
	check = func(at string, schema map[string]any) {
		if ref, ok := schema["$ref"].(string); ok {
			if at = ref[strings.LastIndexByte(ref, '/')+1:]; checked[at] {
				return
			}
			checked[at] = true
			schema = schemas[at].(map[string]any)
		}
		if items, ok := schema["items"].(map[string]any); ok {
			check(at, items)
		}
		required, _ := schema["required"].([]any)
		fields, _ := schema["properties"].(map[string]any)
		for name, v := range fields {
			field := v.(map[string]any)
			if field["default"] != nil {
				t.Errorf("the schema of %s.%s has a default", at, name)
			}
			words, _ := field["description"].(string)
			_, parts := field["$ref"] // each part says it
			if !slices.Contains(required, any(name)) && field["readOnly"] != true && !parts &&
				!absence.MatchString(words) {
				t.Errorf("%s.%s does not say what its absence means: %s", at, name, words)
			}
			check(at+"."+name, field)
		}
	}
	for path, item := range document["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			body, ok := op.(map[string]any)["requestBody"]
			if method == "patch" {
				if words := dig(op, "description").(string); !strings.Contains(words, "absent fields stay") {
					t.Errorf("%s %s does not say that absent fields stay: %s", method, path, words)
				}
			} else if ok {
				for _, content := range dig(body, "content").(map[string]any) {
					check(path, dig(content, "schema").(map[string]any))
				}
			}
		}
	}
	if len(checked) < 15 {
		t.Errorf("%d schemas", len(checked))
	}
}

var absence = regexp.MustCompile(`Absent[^.]*[:,] `)

// The defaults of the description are those that a job gets.
func TestTheDefaultsAreThoseOfAJob(t *testing.T) {
	t.Parallel()
	schemas := dig(static200(t, "/openapi.json").fields(), "components", "schemas")
	for field, want := range map[string]string{
		"JobInput/timeout": "30s", "JobInput/queue": "default", "Missed/policy": "fire_once", "Missed/tolerance": "60s",
		"Retry/max_attempts": "5", "Retry/give_up_on": "[410]", "Target/method": "POST", "Notify/format": "json",
		"BulkInput/dry_run": "false", "PreviewInput/n": strconv.Itoa(defaultSlots),
		"BackfillInput/max_per_second": strconv.Itoa(defaultRate),
		"JobInput/concurrency_policy":  "allow; forbid for a job with steps or completion async that has slots",
	} {
		schema, name, _ := strings.Cut(field, "/")
		words := dig(schemas, schema, "properties", name, "description").(string)
		if !strings.HasSuffix(words, " Absent: "+want+".") {
			t.Errorf("%s: %s", field, words)
		}
	}
}

// What a job always shows is required of its schema, so that generated clients need not check for it.
func TestWhatAJobAlwaysShowsIsRequired(t *testing.T) {
	t.Parallel()
	schemas := dig(static200(t, "/openapi.json").fields(), "components", "schemas")
	for _, field := range []string{"EffectiveRetry/max_attempts", "EffectiveMissed/policy", "Job/retry", "Job/timeout"} {
		schema, name, _ := strings.Cut(field, "/")
		if required := dig(schemas, schema, "required").([]any); !slices.Contains(required, any(name)) {
			t.Errorf("%s is not required", field)
		}
	}
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

func checkOperation(t *testing.T, at string, op map[string]any, ids map[string]bool) {
	t.Helper()
	id, _ := op["operationId"].(string)
	if id == "" || ids[id] {
		t.Errorf("%s: operationId %q", at, id)
	}
	ids[id] = true
	if op["summary"] == nil || op["tags"] == nil {
		t.Errorf("%s: no summary or no tags", at)
	}
	declared := map[string]bool{}
	parameters, _ := op["parameters"].([]any)
	for _, v := range parameters {
		p := v.(map[string]any)
		if p["in"] == "path" {
			declared[p["name"].(string)] = p["required"] == true
		}
		if p["description"] == nil {
			t.Errorf("%s: parameter %v is not described", at, p["name"])
		}
	}
	for _, match := range pathParameter.FindAllStringSubmatch(at, -1) {
		if !declared[match[1]] {
			t.Errorf("%s: path parameter %s is not declared as required", at, match[1])
		}
	}
	good := false
	for status, v := range op["responses"].(map[string]any) {
		response := v.(map[string]any)
		good = good || status[0] == '2'
		if response["description"] == nil || response["description"] == "" {
			t.Errorf("%s: answer %s is not described", at, status)
		}
		content, _ := response["content"].(map[string]any)
		for media, m := range content {
			if (media == "application/problem+json") != (status[0] >= '4') || m.(map[string]any)["schema"] == nil ||
				m.(map[string]any)["example"] == nil {
				t.Errorf("%s: answer %s as %s: %v", at, status, media, m)
			}
		}
	}
	if !good {
		t.Errorf("%s: no answer of success", at)
	}
	bodiless := []string{"retry-set-aside", "cancel-run", "complete-run", "create-signing-secret", "cancel-operation", "restore-version"}
	if strings.HasPrefix(at, "p") && !slices.Contains(bodiless, id) && op["requestBody"] == nil {
		t.Errorf("%s: no body", at)
	}
}

func TestProblemsAreThoseOfTheOperation(t *testing.T) {
	t.Parallel()
	paths := static200(t, "/openapi.json").fields()["paths"].(map[string]any)
	type problem struct {
		description string
		example     map[string]any
	}
	at := func(path, method, status string) problem {
		response := dig(paths, path, method, "responses", status)
		return problem{
			dig(response, "description").(string),
			dig(response, "content", "application/problem+json", "example").(map[string]any),
		}
	}
	for _, c := range []struct{ path, method, status, codes, code, detail string }{
		{"/v1/jobs", "post", "409", "limit name_taken", "name_taken", "taken"},
		{"/v1/jobs/{job}/trigger", "post", "409", "active_run key_pending limit state", "active_run", "has not ended"},
		{"/v1/jobs/{job}/pause", "post", "409", "state", "state", "completed"},
		{"/v1/runs/{run}/cancel", "post", "409", "state", "state", "Run "},
		{"/v1/operations/{operation}/cancel", "post", "409", "state", "state", "Operation "},
		{"/v1/runs/{run}/heartbeat", "post", "409", "superseded", "superseded", "has ended"},
		{"/v1/runs/{run}/progress", "get", "409", "superseded", "superseded", "has ended"},
		{"/v1/runs/{run}", "get", "404", "not_found", "not_found", "There is no run with that id."},
		{"/v1/runs", "get", "404", "not_found", "not_found", "There is no job with that id or name."},
		{"/v1/notices/{notice}", "get", "404", "not_found", "not_found", "There is no notice with that id."},
		{"/v1/limits/{limit}", "put", "409", "limit", "limit", "1000"},
		{"/v1/jobs", "post", "422", "idempotency_key_reused invalid", "invalid", "fields"},
		{"/v1/runs/{run}/fail", "post", "422", "invalid", "invalid", "fields"},
		{"/v1/runs/{run}/fail", "post", "413", "body_too_large", "body_too_large", "66560"},
		{"/v1/jobs/{job}", "patch", "415", "unsupported_media_type", "unsupported_media_type", "merge-patch"},
	} {
		got := at(c.path, c.method, c.status)
		var codes []string
		for meaning := range strings.SplitSeq(got.description, "; ") {
			code, _, _ := strings.Cut(meaning, ":")
			codes = append(codes, code)
		}
		if strings.Join(codes, " ") != c.codes || got.example["code"] != c.code ||
			!strings.Contains(got.example["detail"].(string), c.detail) {
			t.Errorf("%s %s, %s: %q, such as %v", c.method, c.path, c.status, got.description, got.example)
		}
	}
	for path, item := range paths {
		for method, op := range item.(map[string]any) {
			for status := range op.(map[string]any)["responses"].(map[string]any) {
				if status >= "4" && at(path, method, status).example["detail"] == "" {
					t.Errorf("%s %s: the example of %s does not say what is wrong", method, path, status)
				}
			}
		}
	}
	token := dig(paths, "/v1/runs/{run}/complete", "post", "parameters").([]any)[1].(map[string]any)
	if token["name"] != "Punctual-Run-Token" || token["required"] != true {
		t.Errorf("the token is described as %v", token)
	}
}

// Clients are generated from the schemas. They fail on a null or a field that the schema does not have.
func TestExamplesOfAnswersFitTheirSchemas(t *testing.T) {
	t.Parallel()
	document := static200(t, "/openapi.json").fields()
	schemas := dig(document, "components", "schemas").(map[string]any)
	walk(document["paths"], "", func(at string, v any) {
		content, ok := v.(map[string]any)
		if !ok || content["example"] == nil || content["schema"] == nil {
			return
		}
		for _, problem := range misfits(schemas, content["schema"].(map[string]any), content["example"], at) {
			t.Error(problem)
		}
	})
}

// misfits lists the nulls, the unknown fields and the absent fields of a value that its schema does not allow.
func misfits(schemas, schema map[string]any, v any, at string) (problems []string) {
	if ref, ok := schema["$ref"].(string); ok {
		schema = schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
	}
	switch v := v.(type) {
	case nil:
		if types, _ := schema["type"].([]any); schema["type"] != nil && !slices.Contains(types, any("null")) {
			problems = append(problems, at+" is null")
		}
	case []any:
		for _, element := range v {
			problems = append(problems, misfits(schemas, schema["items"].(map[string]any), element, at+"/-")...)
		}
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		for name, value := range v {
			if property, known := properties[name].(map[string]any); known {
				problems = append(problems, misfits(schemas, property, value, at+"/"+name)...)
			} else if schema["additionalProperties"] == false {
				problems = append(problems, at+"/"+name+" is not in the schema")
			}
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, there := v[name.(string)]; !there {
				problems = append(problems, at+"/"+name.(string)+" is missing")
			}
		}
	}
	return problems
}

func walk(v any, at string, visit func(at string, v any)) {
	visit(at, v)
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if key != "example" && key != "examples" {
				walk(inner, at+"/"+key, visit)
			}
		}
	case []any:
		for _, inner := range v {
			walk(inner, at+"/-", visit)
		}
	}
}

func TestExamplesOfBodiesAreValid(t *testing.T) {
	t.Parallel()
	checks := map[string]func(json.RawMessage) []problem.FieldError{
		"create-job": wrongIn[JobInput], "put-job": wrongIn[JobInput], "create-jobs": wrongIn[BatchInput],
		"patch-job": wrongIn[JobPatch], "pause-job": wrongIn[PauseInput], "resume-job": wrongIn[ResumeInput],
		"trigger-job": wrongIn[TriggerInput], "trigger-batch": wrongIn[TriggerBatchInput],
		"move-dated-run": wrongIn[MoveInput], "backfill-job": wrongIn[BackfillInput], "pause-jobs": wrongIn[PauseJobsInput],
		"resume-jobs": wrongIn[JobsInput], "delete-jobs": wrongIn[JobsInput], "rerun-run": wrongIn[RerunInput],
		"heartbeat-run": wrongIn[HeartbeatInput], "complete-run": wrongIn[CompletionInput], "fail-run": wrongIn[FailureInput],
		"approve-run": wrongIn[NoteInput], "reject-run": wrongIn[NoteInput], "decide-approval": wrongIn[DecisionInput],
		"replay-dead-letter": wrongIn[NoteInput], "resolve-dead-letter": wrongIn[NoteInput],
		"replay-dead-letters": wrongIn[BulkInput], "resolve-dead-letters": wrongIn[BulkInput],
		"emit-event": wrongIn[EmitInput], "preview-schedule": wrongIn[PreviewInput], "create-api-key": wrongIn[KeyInput],
		"create-tenant": wrongIn[TenantInput], "patch-tenant": wrongIn[TenantSettings],
		"patch-own-tenant": wrongIn[TenantNotify], "put-grant": wrongIn[GrantInput], "put-secret": wrongIn[SecretInput],
		"test-notify": wrongIn[NotifyTest], "put-limit": wrongIn[LimitInput], "freeze": wrongIn[FreezeInput],
		"unfreeze": wrongIn[FreezeInput], "reset-breakers": func(json.RawMessage) []problem.FieldError { return nil },
	}
	for _, item := range static200(t, "/openapi.json").fields()["paths"].(map[string]any) {
		for _, op := range item.(map[string]any) {
			body, ok := op.(map[string]any)["requestBody"]
			if !ok {
				continue
			}
			id := dig(op, "operationId").(string)
			if checks[id] == nil {
				t.Errorf("%s: a body that is not checked", id)
				continue
			}
			for media, content := range dig(body, "content").(map[string]any) {
				example, err := json.Marshal(dig(content, "example"))
				must(t, err)
				if errs := checks[id](example); len(errs) > 0 {
					t.Errorf("%s, %s: %v: %s", id, media, errs, example)
				}
			}
		}
	}
}

// wrongIn returns what is wrong with a body.
func wrongIn[T any](example json.RawMessage) []problem.FieldError {
	_, patch := any(*new(T)).(JobPatch)
	read, unread := body.Read[T](example, patch)
	if unread != nil {
		return []problem.FieldError{problem.At("body", unread.Detail)}
	}
	switch v := any(&read.Value).(type) {
	case *JobInput:
		return append(read.Errors, api.Within("body", v.Validate())...)
	case interface{ validate() []problem.FieldError }:
		return append(read.Errors, v.validate()...)
	}
	return read.Errors
}

// Where a text may be absent, an empty one would pass for an absent one. Only texts for people may be empty.
func TestOptionalTextsOfBodiesMustNotBeEmpty(t *testing.T) {
	t.Parallel()
	document := static200(t, "/openapi.json").fields()
	schemas := dig(document, "components", "schemas").(map[string]any)
	judgedByDomain := []any{body.FormatDuration, body.FormatInstant, body.FormatLocal, body.FormatBound}
	var check func(at string, schema map[string]any)
	check = func(at string, schema map[string]any) {
		if ref, ok := schema["$ref"].(string); ok {
			schema = schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
		}
		if items, ok := schema["items"].(map[string]any); ok {
			check(at+"/-", items)
		}
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		for name, v := range properties {
			property, at := v.(map[string]any), at+"/"+name
			check(at, property)
			if property["type"] == "string" && property["minLength"] == nil && !slices.Contains(required, any(name)) &&
				!slices.Contains(judgedByDomain, property["format"]) && !slices.Contains([]string{"description", "note"}, name) {
				t.Errorf("%s has no minLength", at)
			}
		}
	}
	walk(document["paths"], "", func(at string, v any) {
		schema, ok := v.(map[string]any)
		if !ok || !strings.HasSuffix(at, "/requestBody/content/application/json/schema") {
			return
		}
		switch schema["$ref"] {
		case "#/components/schemas/ResetBreakersInputBody": // which decode does not read
		case "#/components/schemas/JobPatch": // where nothing is required; the domain refuses an empty name or url
		default:
			check(at, schema)
		}
	})
}

func TestDocsNeedNoOtherHost(t *testing.T) {
	t.Parallel()
	r := static200(t, "/docs")
	page := string(r.body)
	if policy := r.header.Get("Content-Security-Policy"); policy != docsPolicy {
		t.Errorf("policy %q", policy)
	}
	for _, match := range regexp.MustCompile(`(?i)(src|href|action|url)\s*[=(]\s*["']?([^"'\s>]+)`).
		FindAllStringSubmatch(page+string(docsStyle), -1) {
		if target := match[2]; !strings.HasPrefix(target, "#") && target != "docs.css" && target != "openapi.json" &&
			target != "openapi-3.0.json" {
			t.Errorf("the page refers to %s", match[0])
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "style=") || strings.Contains(page, "@import") {
		t.Error("the page has what its policy forbids")
	}
	for _, match := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+match[1]+`"`) {
			t.Errorf("#%s leads nowhere", match[1])
		}
	}
	for _, want := range []string{
		`id="create-job"`, `id="schema-Job"`, `id="idempotency_key_reused"`, "0 3 * * *", "/v1/jobs/{job}/trigger",
		"America/Los_Angeles",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not show %s", want)
		}
	}
}
