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
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/events"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/limits"
	"punctual/store/overview"
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
	api, err := httpapi.NewHandler(httpapi.Config{Store: s, NoAuth: true, Log: slog.New(slog.DiscardHandler)})
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
	must[httpapi.Job](t)(CreateJob.Do(ctx, c, definition(t, "n")))
	must[httpapi.Job](t)(CreateJob.Do(ctx, c, definition(t, "m")))
	must[httpapi.Job](t)(PatchJob.Do(ctx, c, map[string]any{"description": "patched"}, "n"))
	must[httpapi.Job](t)(PauseJob.Do(ctx, c, httpapi.PauseInput{Note: "why"}, "n"))
	must[httpapi.Job](t)(ResumeJob.Do(ctx, c, httpapi.ResumeInput{}, "n"))
	must[httpapi.Job](t)(RestoreVersion.Do(ctx, c, nil, "n", "1"))
	run := must[runs.Run](t)(TriggerJob.Do(ctx, c, httpapi.TriggerInput{}, "n")).ID.String()
	later := httpapi.TriggerInput{DatedInput: httpapi.DatedInput{Key: "a/b", Delay: jobspec.DurationOf(time.Hour)}}
	must[jobs.Dated](t)(TriggerJobAt.Do(ctx, c, later, "n"))
	emitted := must[events.Emitted](t)(EmitEvent.Do(ctx, c, httpapi.EmitInput{}, "invoice.paid")).ID.String()
	must[events.WouldEmit](t)(TryEvent.Do(ctx, c, httpapi.EmitInput{DryRun: true}, "invoice.paid"))
	must[httpapi.Preview](t)(PreviewSchedule.Do(ctx, c, httpapi.PreviewInput{
		Schedule: jobspec.Schedule{Every: jobspec.DurationOf(time.Hour)},
	}))
	must[httpapi.NewKey](t)(CreateAPIKey.Do(ctx, c, httpapi.KeyInput{Name: "k", Role: auth.RoleViewer}))
	must[int](t)(c.Do(ctx, http.MethodPut, "/v1/secrets/s", map[string]string{"value": "value"}, nil))
	must[int](t)(c.Do(ctx, http.MethodPatch, "/v1/tenants/default", map[string]string{"changes_kept": "24h"}, nil))
	must[limits.Limit](t)(PutLimit.Do(ctx, c, httpapi.LimitInput{MaxRunning: new(1)}, "warehouse"))
	must[httpapi.FreezeState](t)(Freeze.Do(ctx, c, httpapi.FreezeInput{Scope: httpapi.ScopeTenant}))
	must[httpapi.FreezeState](t)(Unfreeze.Do(ctx, c, httpapi.FreezeInput{Scope: httpapi.ScopeTenant}))
	all := httpapi.BulkInput{Filter: &httpapi.DeadLetterSelection{}, DryRun: true}
	must[httpapi.Matched](t)(CountReplays.Do(ctx, c, all))
	for _, action := range []jobs.Action{jobs.PauseMany, jobs.ResumeMany, jobs.DeleteMany} {
		must[letters.Operation](t)(ChangeJobs.Do(ctx, c, httpapi.PauseJobsInput{JobsInput: noJobs}, string(action)))
	}
	noJobs.DryRun = true
	must[httpapi.Matched](t)(CountJobs.Do(ctx, c, noJobs, string(jobs.DeleteMany)))
	must[httpapi.BreakersReset](t)(ResetBreakers.Do(ctx, c, map[string]string{"host": "example.com:80"}))
	must[httpapi.BreakersReset](t)(ResetBreakers.Do(ctx, c, map[string]string{}))
	past := time.Now().Add(-time.Minute)
	must[httpapi.BackfillCount](t)(CountBackfill.Do(ctx, c, httpapi.BackfillInput{
		From: Instant(past.Add(-time.Hour)), To: Instant(past), DryRun: true,
	}, "n"))
	must[httpapi.NotifyResults](t)(TestNotify.Do(ctx, c, httpapi.NotifyTest{}))

	lossless(t, c, calls, run, emitted)
	must[jobs.Dated](t)(MoveDated.Do(ctx, c, httpapi.MoveInput{Delay: jobspec.DurationOf(time.Minute)}, "n", "a/b"))
	if err := failed(CancelDated.Do(ctx, c, nil, "n", "a/b")); err != nil {
		t.Error(err)
	}

	for _, err := range []error{ // what these ask for is not there, or not so
		failed(RerunRun.Do(ctx, c, httpapi.RerunInput{}, none)),
		failed(PlanRerun.Do(ctx, c, httpapi.RerunInput{DryRun: true}, none)),
		failed(ApproveRun.Do(ctx, c, httpapi.NoteInput{}, none)), failed(RejectRun.Do(ctx, c, httpapi.NoteInput{}, none)),
		failed(Approval.Do(ctx, c, url.Values{"token": {"t"}}, none)),
		failed(Backfill.Do(ctx, c, httpapi.BackfillInput{}, "n")),
		failed(ReplayDeadLetter.Do(ctx, c, httpapi.NoteInput{}, none)),
		failed(ResolveDeadLetter.Do(ctx, c, httpapi.NoteInput{}, none)),
		failed(ReplayDeadLetters.Do(ctx, c, bulk)), failed(ResolveDeadLetters.Do(ctx, c, bulk)),
		failed(Operation.Do(ctx, c, nil, none)), failed(CancelOperation.Do(ctx, c, nil, none)),
		failed(RevokeAPIKey.Do(ctx, c, nil, none)), failed(Notice.Do(ctx, c, nil, none)),
		failed(DeleteJob.Do(ctx, c, url.Values{"force": {"false"}}, "none")),
	} {
		var answer *Error
		if !errors.As(err, &answer) || answer.Problem == nil || answer.Problem.Code == problem.CodeNoRoute {
			t.Errorf("%v", err)
		}
	}
	must[runs.Run](t)(CancelRun.Do(ctx, c, nil, run))
	if err := failed(DeleteJob.Do(ctx, c, url.Values{"force": {"true"}}, "m")); err != nil {
		t.Error(err)
	}
}

func failed[T any](_ T, err error) error { return err }

// of is a call that reads what only programs read.
func of[Out any](path string) Call[Query, Out] { return Call[Query, Out]("GET " + path) }

// lossless reads what there is. What the types make of an answer, written again, is the answer.
func lossless(t *testing.T, c *Client, calls *recorder, run, emitted string) {
	t.Helper()
	ctx := t.Context()
	for path, read := range map[string]func() (any, error){
		"/v1/jobs/n":          func() (any, error) { return Job.Do(ctx, c, nil, "n") },
		"/v1/jobs":            func() (any, error) { return Jobs.Do(ctx, c, url.Values{"label": {"team=billing"}, "recent": {"5"}}) },
		"/v1/overview":        func() (any, error) { return Overview.Do(ctx, c, nil) },
		"/v1/jobs/n/stats":    func() (any, error) { return JobStats.Do(ctx, c, nil, "n") },
		"/v1/jobs/n/runs":     func() (any, error) { return JobRuns.Do(ctx, c, nil, "n") },
		"/v1/jobs/n/upcoming": func() (any, error) { return Upcoming.Do(ctx, c, nil, "n") },
		"/v1/jobs/n/explain":  func() (any, error) { return ExplainJob.Do(ctx, c, url.Values{"at": {Instant(time.Now())}}, "n") },
		"/v1/runs/changes":    func() (any, error) { return of[httpapi.RunChanges[runs.Run]]("/v1/runs/changes").Do(ctx, c, nil) },
		"/v1/runs":            func() (any, error) { return Runs.Do(ctx, c, nil) },
		"/v1/runs/" + run:     func() (any, error) { return Run.Do(ctx, c, nil, run) },
		"/v1/dead-letters":    func() (any, error) { return DeadLetters.Do(ctx, c, nil) },

		"/v1/dead-letters/groups": func() (any, error) { return DeadLetterGroups.Do(ctx, c, nil) },
		"/v1/notices":             func() (any, error) { return Notices.Do(ctx, c, nil) },
		"/v1/operations":          func() (any, error) { return Operations.Do(ctx, c, nil) },
		"/v1/queues":              func() (any, error) { return Queues.Do(ctx, c, nil) },
		"/v1/replicas":            func() (any, error) { return Replicas.Do(ctx, c, nil) },
		"/v1/breakers":            func() (any, error) { return Breakers.Do(ctx, c, nil) },
		"/v1/freeze":              func() (any, error) { return Frozen.Do(ctx, c, nil) },
		"/v1/caller":              func() (any, error) { return Caller.Do(ctx, c, nil) },
		"/v1/forecast":            func() (any, error) { return Forecast.Do(ctx, c, nil) },
		"/v1/tenant":              func() (any, error) { return OwnTenant.Do(ctx, c, nil) },

		"/v1/api-keys":            func() (any, error) { return APIKeys.Do(ctx, c, nil) },
		"/v1/usage":               func() (any, error) { return of[httpapi.List[overview.Usage]]("/v1/usage").Do(ctx, c, nil) },
		"/v1/limits":              func() (any, error) { return Limits.Do(ctx, c, nil) },
		"/v1/limits/warehouse":    func() (any, error) { return of[limits.Limit]("/v1/limits/warehouse").Do(ctx, c, nil) },
		"/v1/secrets":             func() (any, error) { return Secrets.Do(ctx, c, nil) },
		"/v1/signing-secrets":     func() (any, error) { return SigningSecrets.Do(ctx, c, nil) },
		"/v1/audit-log":           func() (any, error) { return AuditLog.Do(ctx, c, nil) },
		"/v1/jobs/n/changes":      func() (any, error) { return JobChanges.Do(ctx, c, nil, "n") },
		"/v1/events":              func() (any, error) { return EventNames.Do(ctx, c, nil) },
		"/v1/events/invoice.paid": func() (any, error) { return Events.Do(ctx, c, nil, "invoice.paid") },
		"/v1/events/invoice.paid/" + emitted: func() (any, error) {
			return Event.Do(ctx, c, nil, "invoice.paid", emitted)
		},
		"/v1/jobs/n/dated":       func() (any, error) { return DatedRuns.Do(ctx, c, nil, "n") },
		"/v1/jobs/n/dated/a%2Fb": func() (any, error) { return of[jobs.DatedRun]("/v1/jobs/n/dated/a%2Fb").Do(ctx, c, nil) },
		"/v1/jobs/n/versions":    func() (any, error) { return Versions.Do(ctx, c, nil, "n") },
		"/v1/jobs/n/versions/2":  func() (any, error) { return Version.Do(ctx, c, url.Values{"against": {"1"}}, "n", "2") },
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
	_, err := CreateJob.Do(t.Context(), c, job)
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
	_, err := Job.Do(t.Context(), New(proxy.URL), nil, "n")
	var answer *Error
	if !errors.As(err, &answer) || answer.Problem != nil || !strings.Contains(err.Error(), "502 Bad Gateway") {
		t.Errorf("%v", err)
	}
}
