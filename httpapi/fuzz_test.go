package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
)

// Any merge patch is refused with a reason, or gives the valid job of RFC 7396.
//
// That job compiles, and applying the patch again changes nothing more.
//
//prove:api
func FuzzPatch(f *testing.F) {
	start, problem := judge([]byte(exampleJobInput))
	if problem != nil {
		f.Fatal(problem)
	}
	for _, seed := range []string{
		`{}`, `{"timeout":null}`, `{"schedule":{"cron":null,"every":"90s","timezone":null}}`,
		`{"labels":{"team":null,"a":"b"}}`, `{"target":{"body":{"a":null}}}`,
		`{"target":{"headers":null,"url":"http://example.com/"}}`, `{"notify":[{"on":["dead"],"url":"http://example.com/"}]}`,
		`{"paused":true}`, `{"target":null}`, `[]`, `null`, `{"retry":{"give_up_on":[]}}`, `{"name":"x","name":"y"}`,
		`{"schedule":{"at":"2026-12-01T09:00:00Z"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		patch, p := body.Read[JobPatch](data, true)
		if p != nil {
			return
		}
		job, err := applyPatch(&patch, start.Definition)
		if err != nil {
			if p := api.ProblemOf(context.Background(), err, ""); p.Status >= 500 || p.Detail == "" {
				t.Fatalf("%d %v: %s", p.Status, err, data)
			}
			return
		}
		if problems := job.Definition.Validate(); len(problems) > 0 {
			t.Fatalf("%s makes a job that is not valid: %v", data, problems)
		}
		if _, err := domain.Compile([16]byte{}, 1, 1, job.Definition, 0); err != nil {
			t.Fatalf("%s makes a job that does not compile: %v", data, err)
		}
		from := start.Definition
		from.Schedule = from.Schedule.Onto(patch.Value.Schedule) // otherwise it would have both kinds
		before, _ := body.Render(from)
		merged, err := jsonpatch.MergePatch(before, data)
		if err != nil {
			t.Fatal(err)
		}
		var want JobInput
		if err := json.Unmarshal(merged, &want); err != nil {
			t.Fatal(err)
		}
		if got, wanted := rendered(t, job), rendered(t, want.newJob()); !bytes.Equal(got, wanted) {
			t.Fatalf("%s makes\n%s, not\n%s", data, got, wanted)
		}
		again, err := applyPatch(&patch, job.Definition)
		if err != nil || !bytes.Equal(rendered(t, again), rendered(t, job)) {
			t.Fatalf("%s twice makes\n%s\n%s (%v)", data, rendered(t, job), rendered(t, again), err)
		}
	})
}

// rendered returns a job's definition with its body in a normal form, as merging reformats bodies.
func rendered(t *testing.T, job jobs.NewJob) []byte {
	t.Helper()
	text, err := body.Render(job.Definition)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Any body gets a reason or 201, and each accepted job can be read again.
//
// By the API and in psql.
//
//prove:api
func FuzzJobInTheDatabase(f *testing.F) {
	f.Add("n", "", "team", "billing", "0 3 * * *", "UTC", "http://example.com/", "X-Team", "v", `{"a":1}`)
	f.Add("n:1", "\u0001\u2028", "a/b", "\u0007", "@hourly", "Europe/Berlin", "https://[2001:db8::1]/?q", "x_y", "ü",
		`"\ud83d\ude00"`)
	f.Add("ä", "\x00", "-", "\x00", "60 * * * *", "Mars", "http://127.1/", "Host", "\r\n", `"\u0000"`)
	f.Add("n", "", "a", "b", "0 0 31W 2 1#6", "Local", "http://e.com/%00", "X", "\u0085", `[1e400,-0,1E+2]`)
	s := serve(f)
	f.Fuzz(func(t *testing.T, name, description, label, value, cron, zone, url, header, content, payload string) {
		target := map[string]any{"url": url}
		if header != "" {
			target["headers"] = map[string]string{header: content}
		}
		if payload != "" && json.Valid([]byte(payload)) {
			target["body"] = json.RawMessage(payload)
		}
		text, err := json.Marshal(map[string]any{
			"name": name, "description": description, "labels": map[string]string{label: value},
			"schedule": map[string]any{"cron": cron, "timezone": zone}, "target": target,
		})
		if err != nil {
			t.Fatal(err)
		}
		s := s.in(t)
		r := s.do("POST", "/v1/jobs", string(text))
		if r.status >= 400 && r.status < 500 {
			r.want(r.status)
			return
		}
		id := r.want(201).fields()["id"].(string)
		s.do("GET", "/v1/jobs/"+id, "").want(200)
		s.do("GET", "/v1/jobs/"+id+"/upcoming", "").want(200)
		var seen int
		if err := s.store.Pool().QueryRow(t.Context(), `
			SELECT count(*)
			FROM (SELECT * FROM punctual.job_status OFFSET 0) j
			WHERE j.id = $1::uuid`, id).Scan(&seen); err != nil || seen != 1 {
			t.Fatalf("%d rows of the view: %v: %s", seen, err, text)
		}
		s.do("DELETE", "/v1/jobs/"+id, "").want(204)
	})
}
