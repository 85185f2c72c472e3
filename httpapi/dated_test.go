package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/store/jobs"
)

// date writes a dated run of the job n, and returns what the answer says.
func (s *service) date(fields string) jobs.Dated {
	s.t.Helper()
	return into[jobs.Dated](s.do("POST", "/v1/jobs/n/trigger", "{"+fields+"}").want(202))
}

// pending returns the keys of the pending dated runs of the job n.
func (s *service) pending(query string) (keys []string) {
	s.t.Helper()
	for _, d := range get[List[jobs.DatedRun]](s, "/v1/jobs/n/dated"+query).Data {
		keys = append(keys, d.Key)
	}
	return keys
}

func TestATriggerWithATimeOrAKeyIsPending(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	for _, c := range []struct {
		fields string
		ahead  time.Duration
	}{
		{`"delay":"1h","body":{"order":42},"headers":{"X-A":"b"}`, time.Hour},
		{`"delay":"0s"`, 0},
		{`"key":"k"`, 0},
		{`"expires_after":"1m"`, 0},
		{`"at":"2199-12-01T09:00:00+01:00"`, -1},
		{`"at":"` + time.Now().Add(-5*time.Second).Format(time.RFC3339) + `"`, -1},
	} {
		r := s.do("POST", "/v1/jobs/n/trigger", "{"+c.fields+"}").want(202)
		got := into[jobs.Dated](r)
		if ahead := time.Until(got.DueAt); c.ahead >= 0 && (ahead > c.ahead || ahead < c.ahead-time.Minute) {
			t.Errorf("%s is due in %s", c.fields, ahead)
		}
		if !got.Created || got.Replaced || got.Key == "" || r.header.Get("Location") != "/v1/jobs/n/dated/"+got.Key {
			t.Errorf("%s: %s, at %s", c.fields, r.body, r.header.Get("Location"))
		}
		if d := get[jobs.DatedRun](s, r.header.Get("Location")); d.Run != got.Run || !d.DueAt.Equal(got.DueAt) {
			t.Errorf("%+v is shown as %+v", got, d)
		}
	}
	s.do("POST", "/v1/jobs/n/trigger", `{"delay":null}`).want(202).shows(`"status":"pending"`) // null is absence
}

func TestAKeyIsKeptReplacedOrRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	first := s.date(`"key":"k","delay":"1h"`)
	if kept := s.date(`"key":"k","delay":"2h"`); kept.Created || kept.Replaced || !kept.DueAt.Equal(first.DueAt) {
		t.Errorf("kept: %+v", kept)
	}
	s.do("POST", "/v1/jobs/n/trigger", `{"key":"k","on_conflict":"error"}`).
		blamesAs(problem.CodeKeyPending, "body.key")
	moved := s.date(`"key":"k","delay":"2h","on_conflict":"replace","sequence":9007199254740993,"not_after":"3h","expires_after":"90m"`)
	if moved.Created || !moved.Replaced || moved.Run == first.Run {
		t.Errorf("replaced: %+v", moved)
	}
	if old := s.date(`"key":"k","on_conflict":"replace","sequence":9007199254740993`); old.Replaced {
		t.Errorf("a replacement with the same sequence: %+v", old)
	}
	d := get[jobs.DatedRun](s, "/v1/jobs/n/dated/k")
	if *d.Sequence != 9007199254740993 || d.LatestAt == nil || d.LatestAt.Sub(d.CreatedAt) != 3*time.Hour ||
		d.ExpiresAfter.Value() != 90*time.Minute || d.TriggeredBy == "" {
		t.Errorf("%+v", d)
	}
}

func TestWhatIsWrongWithADatedRunIsNamed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	ago := time.Now().Add(-2 * time.Minute).UTC().Format(time.RFC3339)
	for _, c := range []struct {
		fields, at string
		says       []string
	}{
		{`"at":"2199-12-01T09:00:00Z","delay":"1h"`, "delay", []string{`"1h"`, "leave one of the two out"}},
		{`"delay":"-1s"`, "delay", []string{`"-1s" is outside 0s to 8784h`}},
		{`"delay":"8785h"`, "delay", []string{`"8785h" is outside 0s to 8784h`}},
		{`"delay":"1d"`, "delay", []string{`"1d" is not a duration; use "24h"`}},
		{`"delay":90`, "delay", []string{`"90s" with its unit`}},
		{`"at":"` + ago + `"`, "at", []string{ago, "in the past", "at most 1m", "leave it out"}},
		{`"at":"2199-12-01"`, "at", []string{`"2199-12-01" is a day without a time; write one such as`}},
		{`"at":"2199-12-01T09:00"`, "at", []string{"has no offset from UTC"}},
		{`"at":4796115600`, "at", []string{`such as "2026-12-01T09:00:00Z"`}},
		{`"key":""`, "key", []string{"must not be empty; leave it out"}},
		{`"key":"` + strings.Repeat("ä", 128) + `"`, "key", []string{"256 bytes; write at most 255"}},
		{`"key":"a\nb"`, "key", []string{`"a\nb" has control characters`}},
		{`"key":"a\u0000"`, "key", []string{"control characters"}},
		{`"key":".."`, "key", []string{`".." is a step of a path`}},
		{`"key":"k","on_conflict":"replaced"`, "on_conflict", []string{`"replaced" is not one of keep, replace, error; did you mean replace?`}},
		{`"on_conflict":"keep"`, "on_conflict", []string{`"keep" needs a key`}},
		{`"sequence":0`, "sequence", []string{"0 needs a key"}},
		{`"key":"k","sequence":1e3`, "sequence", []string{"whole number", "18 digits"}},
		{`"key":"k","sequence":9223372036854775808`, "sequence", []string{"whole number", "18 digits"}},
		{`"not_after":"1h"`, "not_after", []string{`"1h" needs a key`}},
		{`"key":"k","not_after":"0s"`, "not_after", []string{`"0s" is outside 1s to 8784h`}},
		{`"key":"k","delay":"2h","not_after":"1h"`, "not_after", []string{`"1h" is shorter than delay "2h"`}},
		{
			`"key":"k","at":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `","not_after":"1m"`, "not_after",
			[]string{`"1m" ends before the run is due: in `},
		},
		{`"expires_after":"0s"`, "expires_after", []string{`"0s" is outside 1ms to 8784h`}},
		{`"dealy":"1h"`, "dealy", []string{"did you mean delay?"}},
	} {
		t.Run(c.fields, func(t *testing.T) {
			s := s.in(t)
			s.do("POST", "/v1/jobs/n/trigger", "{"+c.fields+"}").wantMessage("body."+c.at, c.says...)
			s.do("POST", "/v1/jobs/n/trigger/batch", `{"items":[{},{},{},{`+c.fields+`}]}`).
				wantMessage("body.items[3]."+c.at, c.says...)
		})
	}
	if left := s.pending(""); len(left) > 0 {
		t.Errorf("refused requests wrote %v", left)
	}
	s.do("POST", "/v1/jobs/n/trigger", `{"delay":"x","key":".","sequence":"x","headers":{"Host":"x"}}`).
		blames("body.sequence", "body.headers.Host", "body.delay", "body.key")
}

func TestABatchOfDatedRunsIsWrittenWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	batch := func(items ...string) *reply {
		return s.do("POST", "/v1/jobs/n/trigger/batch", `{"items":[{`+strings.Join(items, "},{")+`}]}`)
	}
	got := into[TriggerBatchAnswer](batch(`"key":"z","delay":"3h"`, ``, `"key":"a","delay":"1h"`).want(202)).Data
	if len(got) != 3 || got[0].Key != "z" || got[2].Key != "a" || time.Until(got[1].DueAt) > 0 || !got[1].Created {
		t.Errorf("%+v", got)
	}
	batch(`"key":"new"`, `"key":"z","on_conflict":"error"`, ``, `"key":"a","on_conflict":"error"`).
		blamesAs(problem.CodeKeyPending, "body.items[1].key", "body.items[3].key")
	batch(`"key":"new"`, `"key":"z","on_conflict":"error"`).code(problem.CodeKeyPending, `"z"`)
	batch(`"key":"new"`, `"key":"b"`, `"key":"new"`).wantMessage("body.items[2].key", `"new" is also the key of items[0]`)
	if diff := cmp.Diff([]string{got[1].Key, "a", "z"}, s.pending("")); diff != "" {
		t.Errorf("after batches that were refused: %s", diff)
	}
	for _, body := range []string{`{}`, `{"items":[]}`, `{"items":{}}`} {
		s.do("POST", "/v1/jobs/n/trigger/batch", body).blames("body.items")
	}
	s.do("POST", "/v1/jobs/n/trigger/batch", "").code(problem.CodeMalformed)
	s.do("POST", "/v1/jobs/none/trigger/batch", `{"items":[{}]}`).code(problem.CodeNotFound)
	many := strings.Split(strings.Repeat(` `, 1000), "")
	if data := into[TriggerBatchAnswer](batch(many...).want(202)).Data; len(data) != 1000 {
		t.Errorf("%d results", len(data))
	}
	batch(append(many, ``)...).blames("body.items")
}

// Two batches that write the same keys in opposite orders must not lock each other out.
func TestBatchesWithTheSameKeysDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	items := make([]string, 300)
	for i := range items {
		items[i] = fmt.Sprintf(`{"key":"k%d","delay":"1h","on_conflict":"replace"}`, i)
	}
	deadlocks := func() (n int) {
		must(t, s.store.Pool().QueryRow(t.Context(),
			`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&n))
		return n
	}
	answers, before := make(chan int), deadlocks()
	for i := range 8 {
		mine := slices.Clone(items)
		if i%2 == 0 {
			slices.Reverse(mine)
		}
		go func() {
			for {
				status := s.do("POST", "/v1/jobs/n/trigger/batch", `{"items":[`+strings.Join(mine, ",")+`]}`).status
				if status != 503 { // it has waited for the others for as long as a request may
					answers <- status
					return
				}
			}
		}()
	}
	for range 8 {
		if status := <-answers; status != 202 {
			t.Errorf("status %d", status)
		}
	}
	if n := deadlocks() - before; n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

func TestADatedRunIsFoundAndCancelledByItsKey(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	for _, key := range []string{"plain", "a/b", "/", "a b", "100%", "a%2Fb", "ä?#&", "...", "a+b", `\"`} {
		s.date(fmt.Sprintf(`"delay":"1h","key":%q`, key))
		path := "/v1/jobs/n/dated/" + url.PathEscape(key)
		if d := get[jobs.DatedRun](s, path); d.Key != key {
			t.Errorf("%s finds %q, want %q", path, d.Key, key)
		}
		s.do("DELETE", path, "").want(204)
		s.do("DELETE", path, "").code(problem.CodeNotFound, "it may have been claimed")
		s.do("GET", path, "").code(problem.CodeNotFound, "it may have been claimed")
	}
	for _, key := range []string{"%00", "a%0Ab", "%FF", strings.Repeat("x", 256)} {
		s.do("GET", "/v1/jobs/n/dated/"+key, "").code(problem.CodeNotFound)
		s.do("DELETE", "/v1/jobs/n/dated/"+key, "").code(problem.CodeNotFound)
	}
	s.do("DELETE", "/v1/jobs/none/dated/k", "").code(problem.CodeNotFound)
	s.do("GET", "/v1/jobs/none/dated", "").code(problem.CodeNotFound)
	cancels := get[map[string]any](s, "/v1/jobs/n/changes?limit=1")["data"].([]any)
	if action := cancels[0].(map[string]any)["action"]; action != "run.cancel" {
		t.Errorf("the newest change is %v", action)
	}
}

func TestADatedRunIsFoundAndCancelledByItsID(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	d := s.date(`"key":"k","delay":"1h","body":{"order":42},"headers":{"X-A":"b"}`)
	path := "/v1/runs/" + d.Run.String()
	s.do("GET", path, "").want(200).shows(`"status":"pending"`, `"key":"k"`, `"trigger":"manual"`, `"body":{"order":42}`, `"X-A":"b"`)
	s.do("POST", path+"/rerun", "").code(problem.CodeState, "pending")
	s.do("POST", path+"/cancel", "").want(202).shows(`"status":"cancelled"`, `"reason":"cancelled_by_user"`)
	s.do("POST", path+"/cancel", "").code(problem.CodeNotFound)
	s.do("GET", path, "").code(problem.CodeNotFound)
	if left := s.pending(""); len(left) > 0 {
		t.Errorf("pending after the cancel: %v", left)
	}
}

func TestADatedRunIsMoved(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	first := s.date(`"key":"a/b","delay":"1h","not_after":"90m","sequence":7`)
	const path = "/v1/jobs/n/dated/a%2Fb"
	moved := into[jobs.Dated](s.do("PATCH", path, `{"delay":"10m","sequence":8}`).want(200))
	if ahead := time.Until(moved.DueAt); !moved.Replaced || moved.Run == first.Run || ahead > 10*time.Minute {
		t.Errorf("%+v", moved)
	}
	if kept := into[jobs.Dated](s.do("PATCH", path, `{"delay":"20m","sequence":8}`).want(200)); kept.Replaced || kept.Run != moved.Run {
		t.Errorf("with the same sequence: %+v", kept)
	}
	if bound := into[jobs.Dated](s.do("PATCH", path, `{"at":"2199-01-01T00:00:00Z"}`).want(200)); time.Until(bound.DueAt) > 90*time.Minute {
		t.Errorf("beyond its bound: %+v", bound)
	}
	for body, at := range map[string]string{
		`{}`: "body.at", `{"at":"2199-01-01T00:00:00Z","delay":"1h"}`: "body.delay", `{"delay":"-1s"}`: "body.delay",
		`{"at":"2020-01-01T00:00:00Z"}`: "body.at", `{"key":"x","delay":"1h"}`: "body.key",
	} {
		s.do("PATCH", path, body).blames(at)
	}
	s.do("PATCH", "/v1/jobs/n/dated/none", `{"delay":"1h"}`).code(problem.CodeNotFound, "it may have been claimed")
	if d := get[jobs.DatedRun](s, path); *d.Sequence != 8 {
		t.Errorf("%+v", d)
	}
}

func TestDatedRunsAreListedSoonestFirst(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	for _, hour := range []int{3, 1, 2} {
		s.date(fmt.Sprintf(`"key":"%dh","delay":"%dh"`, hour, hour))
	}
	page := get[List[jobs.DatedRun]](s, "/v1/jobs/n/dated?limit=2")
	rest := s.pending("?limit=2&cursor=" + *page.NextCursor)
	if page.Data[0].Key != "1h" || page.Data[1].Key != "2h" || !slices.Equal(rest, []string{"3h"}) {
		t.Errorf("%v, then %v", page.Data, rest)
	}
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	if got := s.pending("?from=" + at(90*time.Minute) + "&to=" + at(150*time.Minute)); !slices.Equal(got, []string{"2h"}) {
		t.Errorf("in between: %v", got)
	}
	for query, at := range map[string]string{"?from=x": "query.from", "?to=x": "query.to", "?cursor=x": "query.cursor"} {
		s.do("GET", "/v1/jobs/n/dated"+query, "").blames(at)
	}
}

// What a request said was right when it was first sent, so its repetition must not be refused.
func TestARepeatedTriggerIsAnsweredAsTheFirstOne(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	for path, body := range map[string]string{
		"/v1/jobs/n/trigger":       `{"key":"k","delay":"1h","on_conflict":"error"}`,
		"/v1/jobs/n/trigger/batch": `{"items":[{"key":"b","delay":"1h","on_conflict":"error"}]}`,
	} {
		key := "Idempotency-Key: of" + strings.ReplaceAll(path, "/", "-")
		first := s.do("POST", path, body, key).want(202)
		again := s.do("POST", path, body, key).want(202)
		if string(first.body) != string(again.body) || again.header.Get("Idempotent-Replayed") != "true" ||
			first.header.Get("Location") != again.header.Get("Location") {
			t.Errorf("%s at %s, then %s at %s", first.body, first.header, again.body, again.header)
		}
		s.do("POST", path, body).code(problem.CodeKeyPending)
	}
	// An instant passes between the two.
	past := `{"at":"2020-01-01T00:00:00Z"}`
	s.do("POST", "/v1/jobs/n/trigger", past, "Idempotency-Key: past").blames("body.at")
	s.do("POST", "/v1/jobs/n/trigger", `{"at":"2199-01-01T00:00:00Z"}`, "Idempotency-Key: past").want(202)
}

func TestADatedRunIsWrittenWhileNothingMayRun(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(with(`"concurrency_policy":"forbid"`, minimal("n")))
	s.do("POST", "/v1/jobs/n/trigger", "").want(202)
	s.do("POST", "/v1/jobs/n/pause", "").want(200)
	s.do("POST", "/v1/freeze", `{"scope":"tenant"}`).want(200)
	s.date(`"key":"k"`)
	s.do("POST", "/v1/jobs/n/trigger/batch", `{"items":[{"delay":"1h"}]}`).want(202)
	if got := s.pending(""); len(got) != 2 {
		t.Errorf("pending: %v", got)
	}
}

func TestSubmittersDateRunsOfJobsThatAllowIt(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	editor, submitter, viewer := s.as("default", auth.RoleEditor), s.as("default", auth.RoleSubmitter), s.as("default", auth.RoleViewer)
	editor.create(jobOf("open", `,"submitters_may_trigger":true`))
	editor.create(jobOf("shut", ""))
	for _, name := range []string{"open", "shut"} {
		editor.do("POST", "/v1/jobs/"+name+"/trigger", `{"key":"k","delay":"1h"}`).want(202)
		for _, c := range []struct{ method, path, body string }{
			{"POST", "/trigger", `{"key":"own","delay":"1h"}`},
			{"POST", "/trigger/batch", `{"items":[{}]}`},
			{"PATCH", "/dated/k", `{"delay":"2h"}`},
			{"DELETE", "/dated/k", ""},
		} {
			path := "/v1/jobs/" + name + c.path
			viewer.do(c.method, path, c.body).code(problem.CodeForbidden)
			if got := submitter.do(c.method, path, c.body); name == "shut" {
				got.code(problem.CodeForbidden, "submitters_may_trigger")
			} else if got.status/100 != 2 {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
		viewer.do("GET", "/v1/jobs/"+name+"/dated", "").want(200)
	}
}
