package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/problem"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	batch := func(on string, jobs ...string) string {
		return fmt.Sprintf(`{"on_conflict":%q,"jobs":[%s]}`, on, strings.Join(jobs, ","))
	}
	data := s.do("POST", "/v1/jobs/batch",
		`{"jobs":[`+minimal("a")+","+minimal("b")+`]}`).want(201).fields()["data"].([]any)
	if len(data) != 2 || data[1].(map[string]any)["name"] != "b" {
		t.Fatalf("%v", data)
	}
	p := s.do("POST", "/v1/jobs/batch", batch("error", minimal("c"), minimal("a"), minimal("b"))).code(problem.CodeNameTaken)
	if diff := cmp.Diff([]string{"body.jobs[1].name", "body.jobs[2].name"}, locations(p)); diff != "" {
		t.Error(diff)
	}
	s.do("GET", "/v1/jobs/c", "").want(404)
	slow := strings.Replace(minimal("d"), `{"name"`, `{"queue":"slow","name"`, 1)
	p = s.do("POST", "/v1/jobs/batch", batch("error", minimal("c"), slow)).code(problem.CodeInvalid)
	if diff := cmp.Diff([]string{"body.jobs[1].queue"}, locations(p)); diff != "" {
		t.Error(diff)
	}
	p = s.do("POST", "/v1/jobs/batch", `{"on_conflict":"maybe","jobs":[{"name":5},`+minimal("x")+`,`+minimal("x")+`,`+
		`{"name":"y","target":{"url":"x"},"nme":1}]}`).code(problem.CodeInvalid)
	want := []string{
		"body.jobs[0].name", "body.jobs[3].nme", "body.on_conflict", "body.jobs[0].target.url", "body.jobs[2].name",
		"body.jobs[3].target.url",
	}
	if diff := cmp.Diff(want, locations(p)); diff != "" {
		t.Error(diff)
	}
	for _, on := range []string{"skip", "replace"} {
		s.do("POST", "/v1/jobs/batch",
			batch(on, `{"name":"a","target":{"url":"http://example.com/`+on+`"}}`, minimal("new-"+on))).want(201)
		url := s.do("GET", "/v1/jobs/a", "").want(200).fields()["target"].(map[string]any)["url"].(string)
		if replaced := strings.HasSuffix(url, on); replaced != (on == "replace") {
			t.Errorf("%s: url %s", on, url)
		}
		s.do("GET", "/v1/jobs/new-"+on, "").want(200)
	}
	for _, body := range []string{`{}`, `{"jobs":[]}`, `{"jobs":null}`, `{"jobs":{}}`} {
		s.do("POST", "/v1/jobs/batch", body).code(problem.CodeInvalid)
	}
	many := make([]string, 1001)
	for i := range many {
		many[i] = minimal(fmt.Sprint("m", i))
	}
	p = s.do("POST", "/v1/jobs/batch", batch("error", many...)).code(problem.CodeInvalid)
	if diff := cmp.Diff([]string{"body.jobs"}, locations(p)); diff != "" {
		t.Error(diff)
	}
	s.do("POST", "/v1/jobs/batch", batch("error", many[:1000]...)).want(201)
}

func TestErrorsHaveABound(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&body, `"f%d":1,`, i)
	}
	p := serve(t).do("POST", "/v1/jobs", "{"+body.String()+`"x":1}`).code(problem.CodeInvalid)
	if len(p.Errors) != problem.MostErrors+1 {
		t.Errorf("%d errors", len(p.Errors))
	}
}
