package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/limits"
	"punctual/store/runs"
)

// recorder remembers what was answered, by method and path.
type recorder struct {
	http.RoundTripper
	mu      sync.Mutex
	answers map[string][]byte
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[request.Method+" "+request.URL.EscapedPath()] = body
	return response, err
}

// serve returns a client of the API on a database of its own, and what records its calls.
func serve(t *testing.T) (*Client, *recorder) {
	t.Helper()
	s, err := store.Open(t.Context(),
		store.Options{DatabaseURL: pgtest.DSN(t), Master: pgtest.Master(t), Replica: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	api, err := httpapi.New(httpapi.Config{Store: s, NoAuth: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	calls := &recorder{RoundTripper: server.Client().Transport, answers: map[string][]byte{}}
	return Through(server.URL, calls), calls
}

// definition is a job whose schedule, lengths and labels must survive the way to the API.
func definition(t *testing.T, name string) httpapi.JobInput {
	t.Helper()
	var job httpapi.JobInput
	if err := json.Unmarshal([]byte(`{"schedule":{"cron":"0 3 * * 1-5","timezone":"Europe/Berlin"},
		"target":{"url":"http://example.com/","body":{"a":1}},"labels":{"team":"billing"},"timeout":"20s",
		"retry":{"max_attempts":3}}`), &job); err != nil {
		t.Fatal(err)
	}
	job.Name = name
	return job
}

// must fails the test when a call fails.
func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestEveryMethodReachesItsOperation(t *testing.T) {
	t.Parallel()
	c, calls := serve(t)
	ctx := t.Context()
	const none = "019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11" // an id of nothing
	var bulk httpapi.BulkInput
	noJobs := httpapi.JobsInput{Filter: &httpapi.JobSelection{Name: "nothing-"}}
	must[httpapi.Job](t)(c.CreateJob(ctx, definition(t, "n")))
	must[httpapi.BatchAnswer](t)(c.CreateJobs(ctx, httpapi.BatchInput{Jobs: []httpapi.JobInput{definition(t, "m")}}))
	must[httpapi.Job](t)(c.PatchJob(ctx, "n", map[string]any{"description": "patched"}))
	must[httpapi.Job](t)(c.PauseJob(ctx, "n", httpapi.PauseInput{Note: "why"}))
	must[httpapi.Job](t)(c.ResumeJob(ctx, "n", httpapi.ResumeInput{}))
	must[httpapi.Job](t)(c.RestoreVersion(ctx, "n", 1))
	run := must[runs.Run](t)(c.TriggerJob(ctx, "n", httpapi.TriggerInput{})).ID.String()
	later := httpapi.TriggerInput{DatedInput: httpapi.DatedInput{Key: "a/b", Delay: domain.DurationOf(time.Hour)}}
	must[httpapi.Dated](t)(c.TriggerJobAt(ctx, "n", later))
	must[httpapi.TriggerBatchAnswer](t)(c.TriggerBatch(ctx, "n", httpapi.TriggerBatchInput{
		Items: []httpapi.TriggerInput{later, {}},
	}))
	emitted := must[httpapi.Emitted](t)(c.EmitEvent(ctx, "invoice.paid", httpapi.EmitInput{})).ID.String()
	must[httpapi.WouldEmit](t)(c.TryEvent(ctx, "invoice.paid", httpapi.EmitInput{}))
	must[httpapi.Preview](t)(c.PreviewSchedule(ctx, httpapi.PreviewInput{
		Schedule: domain.Schedule{Every: domain.DurationOf(time.Hour)},
	}))
	must[httpapi.NewKey](t)(c.CreateAPIKey(ctx, httpapi.KeyInput{Name: "k", Role: auth.RoleViewer}))
	must[int](t)(c.Do(ctx, http.MethodPut, "/v1/secrets/s", map[string]string{"value": "value"}, nil))
	must[int](t)(c.Do(ctx, http.MethodPatch, "/v1/tenants/default", map[string]string{"changes_kept": "24h"}, nil))
	must[limits.Limit](t)(c.PutLimit(ctx, "warehouse", httpapi.LimitInput{MaxRunning: new(1)}))
	must[httpapi.FreezeState](t)(c.Freeze(ctx, httpapi.FreezeInput{Scope: httpapi.ScopeTenant}))
	must[httpapi.FreezeState](t)(c.Unfreeze(ctx, httpapi.FreezeInput{Scope: httpapi.ScopeTenant}))
	must[httpapi.Matched](t)(c.CountReplays(ctx, httpapi.BulkInput{Filter: &httpapi.DeadLetterSelection{}}))
	must[letters.Operation](t)(c.PauseJobs(ctx, httpapi.PauseJobsInput{JobsInput: noJobs}))
	must[letters.Operation](t)(c.ResumeJobs(ctx, noJobs))
	must[letters.Operation](t)(c.DeleteJobs(ctx, noJobs))
	must[httpapi.Matched](t)(c.CountJobs(ctx, jobs.DeleteMany, httpapi.JobSelection{}))
	must[httpapi.BreakersReset](t)(c.ResetBreakers(ctx, "example.com:80"))
	must[httpapi.NotifyResults](t)(c.TestNotify(ctx, httpapi.NotifyTest{}))

	lossless(t, c, calls, run, emitted)
	must[httpapi.Dated](t)(c.MoveDated(ctx, "n", "a/b", httpapi.MoveInput{Delay: domain.DurationOf(time.Minute)}))
	if err := c.CancelDated(ctx, "n", "a/b"); err != nil {
		t.Error(err)
	}

	for _, err := range []error{ // what these ask for is not there, or not so
		failed(c.RerunRun(ctx, none, httpapi.RerunInput{})), failed(c.PlanRerun(ctx, none, httpapi.RerunInput{})),
		failed(c.ApproveRun(ctx, none, httpapi.NoteInput{})), failed(c.RejectRun(ctx, none, httpapi.NoteInput{})),
		failed(c.Approval(ctx, none, "t")),
		failed(c.DecideApproval(ctx, none, "t", httpapi.DecisionInput{Decision: "approve"})),
		failed(c.ReplayDeadLetter(ctx, none, httpapi.NoteInput{})),
		failed(c.ResolveDeadLetter(ctx, none, httpapi.NoteInput{})),
		failed(c.ReplayDeadLetters(ctx, bulk)), failed(c.ResolveDeadLetters(ctx, bulk)),
		failed(c.Operation(ctx, none)), failed(c.CancelOperation(ctx, none)),
		c.RevokeAPIKey(ctx, none), failed(c.Notice(ctx, none)), c.DeleteJob(ctx, "none", false),
	} {
		var answer *Error
		if !errors.As(err, &answer) || answer.Problem == nil || answer.Problem.Code == problem.CodeNoRoute {
			t.Errorf("%v", err)
		}
	}
	must[runs.Run](t)(c.CancelRun(ctx, run))
	if err := c.DeleteJob(ctx, "m", true); err != nil {
		t.Error(err)
	}
}

func failed[T any](_ T, err error) error { return err }

// lossless reads what there is. What the types make of an answer, written again, is the answer.
func lossless(t *testing.T, c *Client, calls *recorder, run, emitted string) {
	t.Helper()
	ctx := t.Context()
	for path, read := range map[string]func() (any, error){
		"/v1/jobs/n":          func() (any, error) { return c.Job(ctx, "n") },
		"/v1/jobs":            func() (any, error) { return c.Jobs(ctx, url.Values{"label": {"team=billing"}, "recent": {"5"}}) },
		"/v1/overview":        func() (any, error) { return c.Overview(ctx) },
		"/v1/jobs/n/stats":    func() (any, error) { return c.JobStats(ctx, "n") },
		"/v1/jobs/n/runs":     func() (any, error) { return c.JobRuns(ctx, "n", nil) },
		"/v1/jobs/n/upcoming": func() (any, error) { return c.Upcoming(ctx, "n", nil) },
		"/v1/jobs/n/explain":  func() (any, error) { return c.ExplainJob(ctx, "n", Instant(time.Now())) },
		"/v1/runs/changes":    func() (any, error) { return c.RunChanges(ctx, nil) },
		"/v1/runs":            func() (any, error) { return c.Runs(ctx, nil) },
		"/v1/runs/" + run:     func() (any, error) { return c.Run(ctx, run) },
		"/v1/dead-letters":    func() (any, error) { return c.DeadLetters(ctx, nil) },

		"/v1/dead-letters/groups": func() (any, error) { return c.DeadLetterGroups(ctx, nil) },
		"/v1/notices":             func() (any, error) { return c.Notices(ctx, nil) },
		"/v1/operations":          func() (any, error) { return c.Operations(ctx, nil) },
		"/v1/queues":              func() (any, error) { return c.Queues(ctx) },
		"/v1/replicas":            func() (any, error) { return c.Replicas(ctx) },
		"/v1/breakers":            func() (any, error) { return c.Breakers(ctx) },
		"/v1/freeze":              func() (any, error) { return c.Frozen(ctx, nil) },
		"/v1/caller":              func() (any, error) { return c.Caller(ctx) },
		"/v1/forecast":            func() (any, error) { return c.Forecast(ctx, nil) },
		"/v1/tenant":              func() (any, error) { return c.OwnTenant(ctx) },

		"/v1/api-keys":            func() (any, error) { return c.APIKeys(ctx, nil) },
		"/v1/usage":               func() (any, error) { return c.Usage(ctx, nil) },
		"/v1/limits":              func() (any, error) { return c.Limits(ctx) },
		"/v1/limits/warehouse":    func() (any, error) { return c.Limit(ctx, "warehouse") },
		"/v1/secrets":             func() (any, error) { return c.Secrets(ctx, nil) },
		"/v1/signing-secrets":     func() (any, error) { return c.SigningSecrets(ctx) },
		"/v1/audit-log":           func() (any, error) { return c.AuditLog(ctx, nil) },
		"/v1/jobs/n/changes":      func() (any, error) { return c.JobChanges(ctx, "n", nil) },
		"/v1/events":              func() (any, error) { return c.EventNames(ctx, nil) },
		"/v1/events/invoice.paid": func() (any, error) { return c.Events(ctx, "invoice.paid", nil) },
		"/v1/events/invoice.paid/" + emitted: func() (any, error) {
			return c.Event(ctx, "invoice.paid", emitted, nil)
		},
		"/v1/jobs/n/dated":       func() (any, error) { return c.DatedRuns(ctx, "n", nil) },
		"/v1/jobs/n/dated/a%2Fb": func() (any, error) { return c.DatedRun(ctx, "n", "a/b") },
		"/v1/jobs/n/versions":    func() (any, error) { return c.Versions(ctx, "n", nil) },
		"/v1/jobs/n/versions/2":  func() (any, error) { return c.Version(ctx, "n", 2, 1) },
	} {
		value, err := read()
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		again, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parsed(t, calls.answers["GET "+path]), parsed(t, again)); diff != "" {
			t.Errorf("%s is lost (-) or made up (+):\n%s", path, diff)
		}
	}
}

func parsed(t *testing.T, raw []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return value
}

func TestARefusalNamesTheFields(t *testing.T) {
	t.Parallel()
	c, _ := serve(t)
	job := definition(t, "n")
	job.Schedule.Cron = "61 * * * *"
	_, err := c.CreateJob(t.Context(), job)
	if !Is(err, problem.CodeInvalid) || !strings.Contains(err.Error(), "body.schedule.cron") {
		t.Errorf("%v", err)
	}
	var answer *Error
	if errors.As(err, &answer); answer.Status != 422 || len(answer.Problem.Errors) != 1 {
		t.Errorf("%+v", answer)
	}
}

func TestRawJSONIsSentByteForByte(t *testing.T) {
	t.Parallel()
	sent := make(chan string, 1)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent <- string(body)
	}))
	defer api.Close()
	const raw = "{ \"a\": \"<b>\" }\n"
	if _, err := New(api.URL).Do(t.Context(), http.MethodPut, "/", json.RawMessage(raw), nil); err != nil {
		t.Fatal(err)
	}
	if got := <-sent; got != raw {
		t.Errorf("%q was sent, want %q", got, raw)
	}
}

func TestAnAnswerOfSomebodyElseIsAnError(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
	}))
	defer proxy.Close()
	_, err := New(proxy.URL).Job(t.Context(), "n")
	var answer *Error
	if !errors.As(err, &answer) || answer.Problem != nil || !strings.Contains(err.Error(), "502 Bad Gateway") {
		t.Errorf("%v", err)
	}
}
