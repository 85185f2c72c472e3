package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

// marker is in every payload of the scene.
const marker = "mArKeR"

// payload is JSON with the marker and the door that it came through.
func payload(door string) json.RawMessage {
	return json.RawMessage(`{"` + marker + `":"` + door + `"}`)
}

// headers are those of a run, or of a response.
func headers(door string) map[string]string {
	return map[string]string{"x-request-id": marker + " " + door}
}

// scene is a deployment through all of whose doors payloads come.
type scene struct {
	Replica
	sent  []string // bodies that targets get
	shown []string // what callers read
}

func (s *scene) body(d *jobspec.Definition, door string) { d.Target.Body = payload(door) }

// sends claims what waits, and returns it by job, or by step.
func (s *scene) sends() map[string]domain.Assignment {
	s.T.Helper()
	all := map[string]domain.Assignment{}
	s.Exec(`UPDATE punctual.ready SET due_at = now() WHERE due_at > now() AND waits = 'turn'`)
	for more := s.ClaimReady(100).Runs; len(more) > 0; more = s.ClaimReady(100).Runs {
		for _, a := range more {
			name := a.Job.Name
			if a.Step != "" {
				name = a.Step
			}
			all[name] = a
			s.sent = append(s.sent, name+": "+shortened(s.SentBody(a)))
		}
	}
	return all
}

// shortened leaves out ids, and spaces that JSON may or may not have.
func shortened(text string) string {
	dense := strings.NewReplacer(" : ", ":", `": `, `":`, `, "`, `,"`, "{ ", "{", " }", "}")
	parts := strings.Split(dense.Replace(text), `"`)
	for i, p := range parts {
		if uuid.Validate(p) == nil {
			parts[i] = "…"
		}
	}
	return strings.Join(parts, `"`)
}

func answering(a domain.Assignment, door string) domain.Outcome {
	o := Succeeded(a)
	o.Result, o.Response, o.Headers = payload("result of "+door), string(payload("response of "+door)), headers(door)
	return o
}

func failing(a domain.Assignment, door string) domain.Outcome {
	o := Failed(a)
	o.Error, o.Response, o.Headers = "503: "+marker+" "+door, string(payload("response of "+door)), headers(door)
	return o
}

func dying(a domain.Assignment, door string) domain.Outcome {
	o := failing(a, door)
	o.Verdict, o.RetryIn = domain.Bury, 0
	return o
}

// play has payloads come through each door, and rest wherever they do.
func (s *scene) play() {
	ctx, w := s.T.Context(), s.For(s.Tenant)
	_, app := s.App()
	s.Exec(`UPDATE punctual.tenants SET reports_since = reports_since - interval '1 min'`)
	s.Renewed()

	// Definitions, their versions, and what is on record of them.
	next := s.Create("next", Never, func(d *jobspec.Definition) { s.body(d, "chained definition") })
	s.Create("bare", Never)
	_, err := w.CreateJobs(ctx, Batch(Definition("many-1", Never, func(d *jobspec.Definition) { s.body(d, "batch") }),
		Definition("many-2", Never, func(d *jobspec.Definition) { s.body(d, "batch") })), jobs.ConflictError)
	s.Must(err)
	job := s.Create("job", Never, Then("next", "bare", "next failed"), Notify(Hook, jobspec.EventDead, jobspec.EventFailing),
		func(d *jobspec.Definition) { s.body(d, "definition") })
	s.Edit("job", func(d *jobspec.Definition) { s.body(d, "edit") })
	s.Pause("job")
	s.Resumed("job")
	_, err = s.Jobs.RestoreVersion(ctx, s.Tenant, "job", 1, nil, func(jobspec.Definition) error { return nil })
	s.Must(err)
	key := store.Idempotency{Key: "k", Hash: [32]byte{1}}
	for range 2 {
		answer, _, err := s.Idempotent(ctx, s.Tenant, key, func(w store.Writer) (store.Answer, error) {
			made, err := w.CreateJob(ctx, jobs.NewJob{
				Definition: Definition("once", Never, func(d *jobspec.Definition) { s.body(d, "idempotent") }),
			})
			text, _ := json.Marshal(made.Definition)
			return store.Answer{Status: 201, Body: text}, err
		})
		s.Must(err)
		s.shown = append(s.shown, "answer: "+shortened(string(answer.Body)))
	}

	// A run with a body, whose attempt fails and whose end triggers others.
	_, err = w.TriggerJob(ctx, "job", jobs.TriggerRequest{Body: payload("trigger"), Headers: headers("trigger")})
	s.Must(err)
	s.Finish(failing(s.sends()["job"], "attempt"))
	s.HearsAll()
	first := s.sends()["job"]
	s.Finish(answering(first, "job"))
	chained := s.sends()
	s.Finish(answering(chained["next"], "next"), dying(chained["bare"], "chained"))
	again, err := w.RerunRun(ctx, first.RunID, jobs.RerunRequest{Chain: true})
	s.Must(err)
	rerun := s.sends()["job"]
	if rerun.RunID != again.ID {
		s.T.Fatalf("run %s is sent in place of the rerun", rerun.RunID)
	}
	s.Finish(dying(rerun, "rerun"))
	s.HearsAll()
	s.FinishAll(nil)
	s.sends()
	s.Replay(rerun.RunID)
	s.Start(letters.BulkRequest{Kind: letters.OperationReplay, Filter: letters.DeadLetterFilter{Job: "bare"}})
	_, _, err = s.Letters.Operate(ctx)
	s.Must(err)
	s.sends()

	// Dated runs, of callers and of applications.
	soon := s.Clock().Add(-time.Second)
	s.Date("bare", jobs.DateRequest{At: &soon, Key: "d", TriggerRequest: jobs.TriggerRequest{
		Body: payload("dated"), Headers: headers("dated"),
	}})
	s.Date("bare", jobs.DateRequest{Delay: time.Hour, Key: "later", TriggerRequest: jobs.TriggerRequest{
		Body: payload("dated later"), Headers: headers("dated later"),
	}})
	s.sends()
	Ask[uuid.UUID](s.T, app, `SELECT shop_jobs.run_in('job', '1 ms', $1::json, headers => $2::json)`,
		string(payload("run_in")), `{"x-a":"`+marker+`"}`)
	s.Exec(`UPDATE punctual.dated SET due_at = now() WHERE key <> 'later'`)
	fell := s.sends()["job"]
	s.Must(pg.Exec(ctx, app, `SELECT shop_jobs.fail($1, $2, $3)`, fell.RunID, fell.Fence, marker+" by fail"))
	s.applyReports()
	Ask[uuid.UUID](s.T, app, `SELECT shop_jobs.trigger('job')`)
	done := s.sends()["job"]
	s.Must(pg.Exec(ctx, app, `SELECT shop_jobs.complete($1, $2, $3::json)`, done.RunID, done.Fence,
		string(payload("complete"))))
	s.applyReports()
	s.sends()

	// Events.
	s.Create("listens", On("paid", `{"kind":"order"}`))
	s.Emit("paid", `{"kind":"order","of":"`+marker+`"}`)
	s.FanOut()
	Ask[uuid.UUID](s.T, app, `SELECT shop_jobs.emit('paid', $1::json)`, `{"kind":"order","of":"`+marker+`","by":"sql"}`)
	s.FanOut()
	s.Finish(dying(s.sends()["listens"], "event"))

	// Callbacks.
	async := s.Accepted("async", func(d *jobspec.Definition) { s.body(d, "async") })
	s.MustBeat(async, string(payload("progress")))
	_, err = s.Runs.CompleteRun(ctx, async.RunID, async.RunToken, payload("callback"))
	s.Must(err)
	fails := s.Accepted("fails", func(d *jobspec.Definition) { d.Retry.MaxAttempts = 2 })
	for range 2 {
		_, err = s.Runs.FailRun(ctx, fails.RunID, fails.RunToken, marker+" by callback", false)
		s.Must(err)
	}

	// Workflows.
	s.Create("flow", Never, Steps("a", "b<a", "c<b"), func(d *jobspec.Definition) {
		d.Steps[1].Target.Body = payload("step")
	})
	flow := s.StartWorkflow("flow", string(payload("input")))
	s.Finish(answering(s.sends()["a"], "step a"))
	s.GoOn()
	b := s.sends()["b"]
	s.Finish(dying(b, "step b"))
	s.GoOn()
	_, err = w.RerunRun(ctx, flow.RunID, jobs.RerunRequest{Steps: domain.StepRerun{
		From: []string{"c"}, Set: map[string]domain.SetStep{"b": {Result: payload("set")}},
	}})
	s.Must(err)
	s.sends()

	// What is in a message that was not taken yet, and what is in none yet.
	for _, door := range []string{"told", "untold"} {
		s.Create(door, Never, Notify(Hook, jobspec.EventDead))
		s.Trigger(door)
		s.Finish(dying(s.sends()[door], door))
		if door == "told" {
			s.Tell()
			told := s.ClaimNotice()
			if told == nil || !strings.Contains(string(told.Body), marker) {
				s.T.Errorf("recipients are told %+v", told)
			}
		}
	}

	s.DeleteJob("many-1")
	s.read(job, next)
}

func (s *scene) applyReports() {
	s.T.Helper()
	_, err := s.Reports.Apply(s.T.Context())
	s.Must(err)
}

// read reads everything that callers can.
func (s *scene) read(wanted ...jobs.Record) {
	s.T.Helper()
	ctx := s.T.Context()
	show := func(what string, v any) {
		text, err := json.Marshal(v)
		s.Must(err)
		if strings.Contains(string(text), "punctual-sealed") || strings.Contains(string(text), "cannot be opened") {
			s.T.Errorf("%s is shown as %s", what, text)
		}
		s.shown = append(s.shown, fmt.Sprintf("%s: %d", what, strings.Count(string(text), marker)))
	}
	list, _, err := s.Runs.ListRuns(ctx, s.Tenant, runs.Filter{Page: pg.Page{Limit: 100}})
	s.Must(err)
	for _, r := range list {
		show("run of "+r.Job+r.Step+" "+string(r.Trigger), s.Run(r.ID))
	}
	show("runs", list)
	all, _, err := s.Jobs.ListJobs(ctx, s.Tenant, jobs.Filter{})
	s.Must(err)
	show("jobs", all)
	for _, j := range wanted {
		versions, _, err := s.Jobs.ListVersions(ctx, s.Tenant, j.ID.String(), pg.Page{})
		s.Must(err)
		show("versions of "+j.Definition.Name, versions)
		former, err := s.Jobs.GetVersion(ctx, s.Tenant, j.ID.String(), 1, 0)
		s.Must(err)
		show("version of "+j.Definition.Name, former)
	}
	entries, _, err := s.Audit.List(ctx, s.Tenant, audit.Filter{Page: pg.Page{Limit: 100}})
	s.Must(err)
	show("audit", entries)
	dead, _, err := s.Letters.ListDeadLetters(ctx, s.Tenant, letters.DeadLetterFilter{})
	s.Must(err)
	show("dead letters", dead)
	emitted, _, err := s.Events.List(ctx, s.Tenant, "paid", pg.Page{})
	s.Must(err)
	for _, e := range emitted {
		one, err := s.Events.Get(ctx, s.Tenant, "paid", e.ID, pg.Page{})
		s.Must(err)
		show(fmt.Sprintf("event of %d bytes", *e.BodyBytes), one)
	}
	slices.Sort(s.shown)
	slices.Sort(s.sent) // claims of the same instant are in any order
}

// places are the columns of the schema in which the marker rests.
func (s *scene) places() (found []string) {
	s.T.Helper()
	columns := Column[string](s.Fixture, `
		SELECT c.relname || '.' || a.attname FROM pg_catalog.pg_class c
		JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		ORDER BY 1`)
	for _, column := range columns {
		table, name, _ := strings.Cut(column, ".")
		if n := s.Count(fmt.Sprintf(`
			SELECT count(*) FROM punctual.%q WHERE %q::text ILIKE '%%' || $1 || '%%'
			   OR %q::text ILIKE '%%' || encode(convert_to($1, 'UTF8'), 'hex') || '%%'`, table, name, name), marker); n > 0 {
			found = append(found, column)
		}
	}
	return found
}

func newScene(t *testing.T, sealed bool) *scene {
	t.Helper()
	return &scene{Replica: AsReplica(OpenFixture(t, store.Options{
		DatabaseURL: pgtest.DSN(t), MaxConns: 8, Master: pgtest.Master(t), Sealed: sealed,
	}))}
}

// A payload that comes through any door is in the columns below. With --encrypt-payloads it is in none, whatever column
// a later change adds; and whoever may read it reads the same.
func TestNoColumnHoldsAPayload(t *testing.T) {
	t.Parallel()
	plain, sealed := newScene(t, false), newScene(t, true)
	plain.play()
	sealed.play()
	there := plain.places()
	for _, where := range []string{
		"attempts.error", "attempts.response", "attempts.response_headers", "audit_log.after", "audit_log.before",
		"dated.body", "dated.headers", "dead_letters.body", "dead_letters.error", "dead_letters.headers", "events.body",
		"idempotency_keys.response", "job_versions.definition", "run_data.body", "run_data.headers", "run_data.progress",
		"notices.error", "notices.response", "run_data.response", "run_data.response_headers", "run_data.result",
		"runs.error",
	} {
		if !slices.Contains(there, where) {
			t.Errorf("without --encrypt-payloads no payload is in %s: the test sees nothing there", where)
		}
	}
	if found := sealed.places(); len(found) > 0 {
		t.Errorf("payloads rest in %v", found)
	}
	if diff := cmp.Diff(plain.sent, sealed.sent); diff != "" {
		t.Errorf("targets get, -plain +sealed:\n%s", diff)
	}
	if diff := cmp.Diff(plain.shown, sealed.shown); diff != "" {
		t.Errorf("callers read, -plain +sealed:\n%s", diff)
	}
}
