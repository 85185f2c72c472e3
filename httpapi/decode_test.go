package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
)

func record(t testing.TB, handler http.Handler, method, path, body string) *reply {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	handler.ServeHTTP(w, r)
	return &reply{t, method + " " + path, w.Code, w.Header(), w.Body.Bytes()}
}

// mostItems bounds the lists and maps of a body.
const mostItems = 1000

// judge decodes and validates like the handlers, and returns the job and what is wrong with the body.
func judge(data []byte) (JobInput, *problem.Problem) {
	b, p := body.Read[JobInput](data, false)
	if p != nil {
		return JobInput{}, p
	}
	if err := b.Check(api.Within("body", b.Value.Validate())...); err != nil {
		return b.Value, api.ProblemOf(context.Background(), err, "")
	}
	return b.Value, nil
}

// FuzzCreateJob proves that every body is either refused with a whole problem of bounded size, or makes a job that
// compiles and means the same to encoding/json.
func FuzzCreateJob(f *testing.F) {
	for _, seed := range []string{
		minimal("n"), string(exampleJobInput), string(exampleBatch),
		`{"name":"\ud83d\ude00","target":{"body":[1e400,{"a":{"b":null}}]}}`,
		`{"labels":{"a":"b","a":null},"schedule":{"every":90,"at":"x"},"retry":{"give_up_on":[ 1 , "2",[]]}}`,
		`{"a":"\\","b":"\"{[","c":[{}]}`, ` { "name" : null } `, `[`, `""`, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		job, p := judge(data)
		if p != nil {
			text, err := json.Marshal(p)
			if err != nil || len(text) > 100_000 || p.Status >= 500 || p.Detail == "" {
				t.Fatalf("%v: %.1000s", err, text)
			}
			return
		}
		var same JobInput
		if err := json.Unmarshal(data, &same); err != nil {
			t.Fatalf("encoding/json does not read it: %v", err)
		}
		a, errA := body.Render(job)
		b, errB := body.Render(same)
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Fatalf("read as %s, by encoding/json as %s (%v, %v)", a, b, errA, errB)
		}
		if _, err := domain.Compile([16]byte{}, 1, 1, job.Definition, 0); err != nil {
			t.Fatalf("a valid job does not compile: %v", err)
		}
	})
}

func BenchmarkDecodeJob(b *testing.B) {
	for b.Loop() {
		if _, p := judge([]byte(exampleJobInput)); p != nil {
			b.Fatal(p)
		}
	}
}

// What follows a value that does not fit is read all the same.
func TestReadingGoesOnAfterWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`500,`, mostItems) + `500`
	entries := make([]string, mostItems+1)
	for i := range entries {
		entries[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	for _, unfit := range []string{
		`"retry":{"give_up_on":[` + many + `],"max_attempts":"x"}`, `"labels":{` + strings.Join(entries, ",") + `}`,
		`"name":{"a":[{}]}`, `"name":[1,"]"]`, `"retry":[{"a":"}"}]`, `"labels":[[]]`, `"labels":{"a":{"b":["c"]}}`,
		`"labels":{"a":"b","a":{"b":1}}`, `"name":"a","name":{"b":[]}`, `"jitter":{"a":[1]}`, `"jitter":[[2]]`, `"jitter":7`,
		`"paused":{"a":1}`, `"max_failures":[3]`, `"unknown":{"a":[{"b":[]}]}`, `"schedule":"daily"`, `"schedule":[{}]`,
		`"target":{"auth":{"token":{"a":[]}}}`, `"target":{"body":{"\ud800":[{}]}}`,
	} {
		_, p := judge([]byte(`{` + unfit + `,"very_last":1}`))
		found := slices.ContainsFunc(p.Errors, func(e problem.FieldError) bool { return e.Location == "body.very_last" })
		if !found || len(p.Errors) < 2 {
			t.Errorf("%.60s: %+v", unfit, p.Errors)
		}
	}
}

// Reading a large body with many small values takes memory in proportion to the body, whether or not it fits.
func TestReadingTakesMemoryInProportionToTheBody(t *testing.T) {
	job := `{"notify":[` + strings.Repeat(`{"on":[]},`, mostItems-1) + `{"on":[]}]}`
	many := strings.Repeat(job+`,`, 49) + job
	for _, text := range []string{`{"jobs":[` + many + `]}`, `{"jobs":[` + many + `],"unknown":1}`} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		batch, _ := body.Read[BatchInput]([]byte(text), false)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if kept := float64(after.HeapAlloc-before.HeapAlloc) / float64(len(text)); kept > 15 {
			t.Errorf("%d bytes keep %.0f bytes for each", len(text), kept)
		}
		// An empty entry of notify takes hundreds of bytes.
		if all := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(text)); all > 70 {
			t.Errorf("%d bytes allocate %.0f bytes for each", len(text), all)
		}
		runtime.KeepAlive(batch)
	}
}
