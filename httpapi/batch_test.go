package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/body"
	"punctual/httpapi/problem"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	s := serve(t)
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
	until(t, "the most jobs at once, which the API puts off while the machine is too slow for it", func() bool {
		return s.do("POST", "/v1/jobs/batch", batch("skip", many[:1000]...)).status == 201
	})
}

func TestErrorsHaveABound(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `"f%d":1,`, i)
	}
	p := serve(t).do("POST", "/v1/jobs", "{"+many.String()+`"x":1}`).code(problem.CodeInvalid)
	if len(p.Errors) != problem.MostErrors+1 {
		t.Errorf("%d errors", len(p.Errors))
	}
	events := `{"on":[` + strings.Repeat("1,", mostItems-1) + `1]}`
	lists := `[` + strings.Repeat(events+",", mostItems-1) + events + `]`
	for _, unfit := range []string{
		`"notify":` + lists, `"labels":{` + strings.Repeat(`"k":1,`, 100_000) + `"k":1}`, strings.Repeat(`"x":1,`, 100_000) + `"x":1`,
	} {
		read, _ := body.Read[BatchInput]([]byte(`{"jobs":[{`+unfit+`}]}`), false)
		if len(read.Errors) != 10*problem.MostErrors {
			t.Errorf("%.20s: %d errors", unfit, len(read.Errors))
		}
	}
}

func TestABatchSaysWhatBecameOfEachJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	write := func(on string, jobs ...string) (results []string) {
		t.Helper()
		answer := into[BatchAnswer](s.do("POST", "/v1/jobs/batch", batch(on, jobs...)).want(201))
		for i, item := range answer.Data {
			results = append(results, fmt.Sprint(item.Name, " ", item.Result))
			if got := get[Job](s, "/v1/jobs/"+item.Name); got.ID != item.ID {
				t.Errorf("item %d has the id %s, the job %s", i, item.ID, got.ID)
			}
		}
		return results
	}
	changed := with(`"timeout":"5s"`, minimal("b"))
	for _, c := range []struct {
		on   string
		jobs []string
		want []string
	}{
		{"error", []string{minimal("a"), minimal("b")}, []string{"a created", "b created"}},
		{"skip", []string{minimal("c"), changed, minimal("a")}, []string{"c created", "b skipped", "a skipped"}},
		{"replace", []string{minimal("d"), changed, minimal("a")}, []string{"d created", "b replaced", "a unchanged"}},
		{"replace", []string{changed, minimal("d")}, []string{"b unchanged", "d unchanged"}},
	} {
		if diff := cmp.Diff(c.want, write(c.on, c.jobs...)); diff != "" {
			t.Errorf("%s: %s", c.on, diff)
		}
	}
	// The same batch does not fire a one-shot again.
	once := `{"name":"once","schedule":{"delay":"0s"},"target":{"url":"http://example.com/"}}`
	if got := write("skip", once); got[0] != "once created" {
		t.Error(got)
	}
	if got := write("skip", once); got[0] != "once skipped" {
		t.Error(got)
	}
	// A repeated request returns what the first one did.
	body := `{"jobs":[` + minimal("e") + `]}`
	for range 2 {
		r := s.do("POST", "/v1/jobs/batch", body, "Idempotency-Key: k").want(201)
		if into[BatchAnswer](r).Data[0].Result != "created" {
			t.Errorf("%s", r.body)
		}
	}
}
