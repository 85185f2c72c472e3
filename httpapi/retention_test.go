package httpapi

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/problem"
)

func TestWindowLongerThanTheRetentionNamesItsFieldAndTheLimit(t *testing.T) {
	t.Parallel()
	s := serve(t)
	long := func(name string) string {
		return with(`"missed":{"window":"721h"}`, minimal(name))
	}
	wrong := `"721h" reaches further back than runs are kept: at most 720h0m0s`
	for _, c := range []struct{ method, path, body, field string }{
		{"POST", "/v1/jobs", long("n"), "body.missed.window"},
		{"PUT", "/v1/jobs/n", long("n"), "body.missed.window"},
		{"POST", "/v1/jobs/batch", `{"jobs":[` + minimal("a") + `,` + long("b") + `]}`, "body.jobs[1].missed.window"},
	} {
		p := s.do(c.method, c.path, c.body).code(problem.CodeInvalid)
		if diff := cmp.Diff([]problem.FieldError{problem.At(c.field, wrong)}, p.Errors); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.method, c.path, diff)
		}
	}
}
