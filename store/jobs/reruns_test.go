package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
)

// failedETL runs extract, transform and check well, with results, and lets load die.
func failedETL(c Replica) uuid.UUID {
	c.T.Helper()
	c.Create("etl", Never, Forbid, Steps("extract", "transform<extract", "check<extract", "load<transform,check", "clean<load!"))
	run := c.StartWorkflow("etl", `{"day":1}`).RunID
	for range 4 {
		for name, a := range c.ClaimSteps() {
			o := Succeeded(a)
			if o.Result = fmt.Appendf(nil, `{"of":%q}`, name); name == "load" {
				o = Died(a)
			}
			c.FinishAndRelease(o)
		}
	}
	c.GoOn()
	c.WantState(run, "dead http_5xx attempt 1 finished dead letter of 1 http_5xx attempts: 1 failed http_5xx")
	return run
}

func rerun(c Replica, run uuid.UUID, r jobs.RerunRequest) (uuid.UUID, error) {
	c.T.Helper()
	again, err := c.For(c.Tenant).RerunRun(c.T.Context(), run, r)
	return again.ID, err
}

func from(names ...string) jobs.RerunRequest {
	return jobs.RerunRequest{Steps: domain.StepRerun{From: names}}
}

// setting takes a step as succeeded.
func setting(name, result, note string) jobs.RerunRequest {
	return jobs.RerunRequest{Steps: domain.StepRerun{Set: map[string]domain.SetStep{
		name: {Result: []byte(result), Note: note},
	}}}
}

func TestARerunFromAStep(t *testing.T) {
	c := NewReplica(t)
	first := failedETL(c)
	plan, err := c.For(c.Tenant).PlanRerun(t.Context(), first, from("load"))
	c.Must(err)
	if got := fmt.Sprint(plan); got != "{[load clean] [extract transform check] [] []}" {
		t.Errorf("the plan is %s", got)
	}
	c.WantCount(1, "runs of the job", `SELECT count(*) FROM punctual.runs WHERE step IS NULL`)
	again, err := rerun(c, first, from("load"))
	c.Must(err)
	c.AcceptWorkflow(c.One(c.ClaimReady(10)))
	got := c.ClaimSteps()
	if StepNames(got) != "load" {
		t.Fatalf("%s starts, want load", StepNames(got))
	}
	if want := `{"input":{"day":1},"steps":{"check":{"status":"succeeded","result":{"of":"check"}},"transform":{"status":"succeeded","result":{"of":"transform"}}}}`; c.SentBody(got["load"]) != want {
		t.Errorf("load is sent %s, want %s", c.SentBody(got["load"]), want)
	}
	shown, err := c.Runs.GetRun(t.Context(), c.Tenant, again)
	c.Must(err)
	for _, s := range shown.Steps[:3] {
		if s.KeptFrom == nil || *s.KeptFrom != domain.StepRunID(first, s.Name) || s.SetBy != nil || s.Attempt != 0 ||
			s.Status != "succeeded" || s.StartedAt != nil {
			t.Errorf("step %s is %+v", s.Name, s)
		}
	}
	kept, err := c.Runs.GetRun(t.Context(), c.Tenant, domain.StepRunID(again, "check"))
	c.Must(err)
	if string(kept.Result) != `{"of":"check"}` || kept.Sent != nil || len(kept.Attempts) > 0 || kept.Trigger != domain.TriggerStep {
		t.Errorf("the kept run is %+v", kept)
	}
	c.FinishAndRelease(Succeeded(got["load"]))
	c.FinishAndRelease(Succeeded(c.ClaimSteps()["clean"]))
	c.GoOn()
	c.WantState(again, "succeeded attempt 1 finished")
	c.WantState(first, "dead http_5xx attempt 1 finished dead letter of 1 http_5xx attempts: 1 failed http_5xx")
	stats, err := c.Runs.JobStats(t.Context(), c.Tenant, "etl")
	c.Must(err)
	if stats.Runs != 2 || stats.Dead != 1 {
		t.Errorf("%d runs, %d dead, want 2 and 1", stats.Runs, stats.Dead)
	}
	third, err := rerun(c, again, from("clean")) // what was kept is kept once more
	c.Must(err)
	if got := c.StepsOf(third); got != "check succeeded, extract succeeded, load succeeded, transform succeeded" {
		t.Errorf("of the rerun of the rerun: %s", got)
	}
	nothingLeftBut(c, third)
	c.Clean()
}

// nothingLeftBut fails the test if another run than this one waits.
func nothingLeftBut(c Replica, run uuid.UUID) {
	c.T.Helper()
	c.WantCount(0, "other runs wait", `SELECT count(*) FROM punctual.ready WHERE run_id <> $1`, run)
}

func TestAStepIsSet(t *testing.T) {
	c := NewReplica(t)
	first := failedETL(c)
	again, err := rerun(c, first, setting("load", `{"rows":7}`, "INC-12"))
	c.Must(err)
	c.AcceptWorkflow(c.One(c.ClaimReady(10)))
	got := c.ClaimSteps()
	if want := `"steps":{"load":{"status":"succeeded","result":{"rows":7}}}`; StepNames(got) != "clean" ||
		!strings.Contains(c.SentBody(got["clean"]), want) {
		t.Fatalf("%s is sent %s", StepNames(got), c.SentBody(got["clean"]))
	}
	c.FinishAndRelease(Succeeded(got["clean"]))
	c.GoOn()
	c.WantState(again, "succeeded attempt 1 finished")
	shown, err := c.Runs.GetRun(t.Context(), c.Tenant, again)
	c.Must(err)
	if s := shown.Steps[3]; s.SetBy == nil || s.Note == nil || *s.Note != "INC-12" || s.KeptFrom != nil {
		t.Errorf("load is %+v", s)
	}
	c.WantCount(1, "audit entries", `SELECT count(*) FROM punctual.audit_log WHERE after #>> '{set,load}' = 'INC-12'`)
	// With every step set, the run ends as soon as it begins.
	all := jobs.RerunRequest{Steps: domain.StepRerun{Set: map[string]domain.SetStep{}}}
	for _, s := range shown.Steps {
		all.Steps.Set[s.Name] = domain.SetStep{}
	}
	last, err := rerun(c, first, all)
	c.Must(err)
	c.AcceptWorkflow(c.One(c.ClaimReady(10)))
	c.Listen()
	c.GoOn()
	c.WantState(last, "succeeded attempt 1 finished")
	c.NothingLeft()
	c.Clean()
}

// refusedFor returns the fields that an error blames, with why.
func refusedFor(err error) string {
	var list []string
	for _, p := range domain.BlamesOf(err) {
		list = append(list, p.Field+" "+p.Message)
	}
	return strings.Join(list, "; ")
}

func TestWhichDefinitionARerunHas(t *testing.T) {
	c := NewReplica(t)
	first := failedETL(c)
	c.Edit("etl", func(d *domain.Definition) {
		d.Steps = nil
		Steps("extract", "transform", "load<transform", "clean<load!")(d)
	})
	_, err := rerun(c, first, from("load"))
	if want := `definition step "transform" cannot be kept: it depends on no step now, and depended on extract when it ` +
		`ran; definition step "check" cannot be kept: the definition has no such step any more`; refusedFor(err) != want {
		t.Errorf("refused for %s, want %s", refusedFor(err), want)
	}
	plan, err := c.For(c.Tenant).PlanRerun(t.Context(), first, from("load"))
	c.Must(err)
	if got := fmt.Sprint(plan.Runs, plan.Kept, len(plan.Refused)); got != "[load clean] [extract] 2" {
		t.Errorf("the plan is %s", got)
	}
	r := from("load")
	r.Original = true
	again, err := rerun(c, first, r)
	c.Must(err)
	if got := c.Run(again).JobVersion; got != 1 {
		t.Errorf("the rerun has version %d, want 1", got)
	}
	c.AcceptWorkflow(c.One(c.ClaimReady(10)))
	got := c.ClaimSteps()
	if StepNames(got) != "load" || got["load"].Job.Version != 1 {
		t.Errorf("%s starts, want load of version 1", StepNames(got))
	}
	// Its version is kept although no run of its days is left.
	c.Exec(`UPDATE punctual.job_versions SET valid_from = valid_from - interval '200 days'`)
	c.Exec(`UPDATE punctual.runs SET job_version = 2 WHERE id = $1 OR parent_run = $1`, first)
	for range 2 {
		_, _, err = c.Jobs.ForgetVersions(t.Context())
		c.Must(err)
	}
	c.WantCount(2, "versions", `SELECT count(*) FROM punctual.job_versions`)
	c.FinishAndRelease(Succeeded(got["load"]))
	c.FinishAndRelease(Succeeded(c.ClaimSteps()["clean"]))
	c.GoOn()
	c.WantState(again, "succeeded attempt 1 finished")
}

// Of two reruns that race, the policy forbid lets one in.
func TestTwoRerunsRace(t *testing.T) {
	c := NewReplica(t)
	first := failedETL(c)
	failed := make(chan error, 2)
	for range cap(failed) {
		go func() {
			_, err := c.For(c.Tenant).RerunRun(context.WithoutCancel(t.Context()), first, from("load"))
			failed <- err
		}()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			var active *jobs.ActiveRunError
			if !errors.As(err, &active) {
				t.Error(err)
			}
		}
	}
	for len(c.ClaimReady(10).Runs) > 0 { // the second is skipped if both were made
		continue
	}
	c.WantCount(1, "reruns start", `
		SELECT count(*) FROM punctual.runs WHERE rerun_of = $1 AND status = 'running'`, first)
	_, err := rerun(c, first, from("load"))
	var active *jobs.ActiveRunError
	if !errors.As(err, &active) {
		t.Errorf("a third rerun: %v, want that one is active", err)
	}
	c.WantCount(1, "reruns with the status running or pending", `
		SELECT count(*) FROM punctual.runs WHERE rerun_of = $1 AND finished_at IS NULL`, first)
}

func TestRerunsOfStepsThatAreRefused(t *testing.T) {
	c := NewReplica(t)
	first := failedETL(c)
	c.Create("plain", Never)
	plain := c.Begun("plain")
	c.FinishAndRelease(Succeeded(plain))
	both := setting("load", "1", "")
	both.Steps.From = []string{"load"}
	for want, r := range map[string]struct {
		run uuid.UUID
		of  jobs.RerunRequest
	}{
		`from[0] there is no step "lod"; did you mean load?`:              {first, from("lod")},
		`set.lod there is no step "lod"; did you mean load?`:              {first, setting("lod", "1", "")},
		"set.load it is in from, too: a step either runs again or is set": {first, both},
		"from the job has no steps; leave it out":                         {plain.RunID, from("a")},
		"set the job has no steps; leave it out":                          {plain.RunID, setting("a", "1", "")},
		"definition the job has no steps; leave it out":                   {plain.RunID, jobs.RerunRequest{Original: true}},
	} {
		if _, err := rerun(c, r.run, r.of); refusedFor(err) != want {
			t.Errorf("refused for %q (%v), want %q", refusedFor(err), err, want)
		}
	}
	if _, err := c.For(c.Tenant).PlanRerun(t.Context(), plain.RunID, jobs.RerunRequest{}); refusedFor(err) !=
		"dry_run the job has no steps; leave it out" {
		t.Errorf("a dry run of a plain job: %v", err)
	}
	c.WantCount(0, "reruns", `SELECT count(*) FROM punctual.runs WHERE rerun_of IS NOT NULL`)
}
