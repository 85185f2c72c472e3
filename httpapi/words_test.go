package httpapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
)

// Generated clients get their types from the enums.
func TestTheDescriptionHasEveryWord(t *testing.T) {
	t.Parallel()
	document := static200(t, "/openapi.json").fields()
	property := func(schema, name string) any {
		return dig(document, "components", "schemas", schema, "properties", name, "enum")
	}
	parameter := func(path, name string) any {
		for _, p := range dig(document, "paths", path, "get", "parameters").([]any) {
			if dig(p, "name") == name {
				return dig(p, "schema", "enum")
			}
		}
		return nil
	}
	reasons, deaths := words(domain.Reasons()), words(domain.ReasonsOf(domain.StatusDead))
	for _, c := range []struct {
		of        string
		got, want any
	}{
		{"Run.status", property("Run", "status"), words(domain.Statuses())},
		{"Run.trigger", property("Run", "trigger"), words(domain.Triggers())},
		{"Run.reason", property("Run", "reason"), append(reasons, nil)},
		{"Attempt.outcome", property("Attempt", "outcome"), words(domain.AttemptOutcomes())},
		{"DeadLetter.trigger", property("DeadLetter", "trigger"), words(domain.Triggers())},
		{"DeadLetter.reason", property("DeadLetter", "reason"), append(reasons, nil)},
		{"DeadLetterSelection.reason", property("DeadLetterSelection", "reason"), deaths},
		{"the status of runs", parameter("/v1/runs", "status"), words(domain.Statuses())},
		{"the trigger of a job's runs", parameter("/v1/jobs/{job}/runs", "trigger"), words(domain.Triggers())},
		{"the reason of runs", parameter("/v1/runs", "reason"), reasons},
		{"the reason of dead letters", parameter("/v1/dead-letters", "reason"), deaths},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("the enum of %s (-want +got):\n%s", c.of, diff)
		}
	}
}

// Every field of one of these types has its enum, in future schemas too.
func TestNoFieldOfAWordIsWithoutItsEnum(t *testing.T) {
	t.Parallel()
	registry := body.NewSchemas(schemaName)
	for _, kind := range []reflect.Type{
		reflect.TypeFor[domain.Status](), reflect.TypeFor[domain.Trigger](), reflect.TypeFor[domain.Reason](),
		reflect.TypeFor[domain.AttemptOutcome](),
	} {
		if schema := registry.Schema(kind, true, ""); schema.Type != "string" || len(schema.Enum) < 3 {
			t.Errorf("%s is described as %s %v", kind, schema.Type, schema.Enum)
		}
	}
}

func TestAWordThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for query, field := range map[string]string{
		"/v1/runs?status=failed": "query.status", "/v1/runs?reason=upstream": "query.reason",
		"/v1/runs?trigger=steps": "query.trigger", "/v1/dead-letters?reason=missed": "query.reason",
	} {
		s.do("GET", query, "").wantMessage(field, " is not one of ")
	}
	s.do("GET", "/v1/runs?status=dead&reason=http_5xx&trigger=manual", "").want(200)
	for _, reason := range domain.ReasonsOf(domain.StatusDead) {
		s.do("GET", "/v1/dead-letters?reason="+string(reason), "").want(200)
		s.do("POST", "/v1/dead-letters/resolve", fmt.Sprintf(`{"filter":{"reason":%q},"dry_run":true}`, reason)).want(200)
	}
	s.do("POST", "/v1/dead-letters/resolve", `{"filter":{"reason":"missed"},"dry_run":true}`).code(problem.CodeInvalid)
}

// words returns a list in the form of a document.
func words[T any](values []T) (list []any) {
	text, err := json.Marshal(values)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		panic(err)
	}
	return list
}
