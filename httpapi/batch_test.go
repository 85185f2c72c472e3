package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"punctual/httpapi/problem"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	batch := func(on string, jobs ...string) string {
		return fmt.Sprintf(`{"on_conflict":%q,"jobs":[%s]}`, on, strings.Join(jobs, ","))
	}
	data := into[BatchAnswer](s.do("POST", "/v1/jobs/batch",
		`{"jobs":[`+minimal("a")+","+minimal("b")+`]}`).want(201)).Data
	if len(data) != 2 || data[1].Name != "b" {
		t.Fatalf("%v", data)
	}
	s.do("POST", "/v1/jobs/batch", batch("error", minimal("c"), minimal("a"), minimal("b"))).
		blamesAs(problem.CodeNameTaken, "body.jobs[1].name", "body.jobs[2].name")
	s.do("GET", "/v1/jobs/c", "").want(404)
	slow := with(`"queue":"slow"`, minimal("d"))
	s.do("POST", "/v1/jobs/batch", batch("error", minimal("c"), slow)).blames("body.jobs[1].queue")
	s.do("POST", "/v1/jobs/batch", `{"on_conflict":"maybe","jobs":[{"name":5},`+minimal("x")+`,`+minimal("x")+`,`+
		`{"name":"y","target":{"url":"x"},"nme":1}]}`).
		blames("body.jobs[0].name", "body.jobs[3].nme", "body.on_conflict", "body.jobs[0].target.url", "body.jobs[2].name",
			"body.jobs[3].target.url")
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
	s.do("POST", "/v1/jobs/batch", batch("error", many...)).blames("body.jobs")
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
