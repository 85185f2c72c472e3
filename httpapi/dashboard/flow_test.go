package dashboard

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// stepOf makes a step. Its name may begin with "ended ", which is its when.
func stepOf(name string, dependsOn ...string) jobspec.Step {
	s := jobspec.Step{Name: name, DependsOn: dependsOn}
	if plain, ended := strings.CutPrefix(name, "ended "); ended {
		s.Name, s.When = plain, jobspec.WhenEnded
	}
	s.Target.URL = "http://etl.example.com/" + s.Name
	return s
}

// etl are steps with two branches that join, and one that runs in any case.
func etl() []jobspec.Step {
	return []jobspec.Step{
		stepOf("extract"), stepOf("transform", "extract"), stepOf("check", "extract"), stepOf("load", "transform", "check"),
		stepOf("ended clean-up", "load"),
	}
}

// fifty are steps as a large company might have them.
func fifty() (steps []jobspec.Step) {
	for i := range 12 {
		extract, check := fmt.Sprintf("extract-%d", i), fmt.Sprintf("check-the-rows-of-source-number-%d", i)
		steps = append(steps, stepOf(extract), stepOf(check, extract), stepOf(fmt.Sprintf("load-%d", i), check))
	}
	for i := range 6 {
		steps = append(steps, stepOf(fmt.Sprintf("join-%d", i), fmt.Sprintf("load-%d", 2*i), fmt.Sprintf("load-%d", 2*i+1)),
			stepOf(fmt.Sprintf("report-%d", i), fmt.Sprintf("join-%d", i)))
	}
	all := make([]string, len(steps))
	for i, s := range steps {
		all[i] = s.Name
	}
	return append(steps, stepOf("publish", "report-0", "report-1", "report-2", "report-3", "report-4", "report-5"),
		stepOf("ended clean-up", append(slices.Clone(all), "publish")...))
}

// stepRun is how far a step has come, with its seconds in the workflow's run; to 0: it goes on.
type stepRun struct {
	status, reason, err string
	attempt, from, to   int
}

// workflow makes a job with steps and a run of it, whose steps have come as far as their runs say.
func (s site) workflow(
	name string, steps []jobspec.Step, status domain.Status, runs map[string]stepRun,
) (run uuid.UUID) {
	s.t.Helper()
	api := client.New(s.url)
	var in httpapi.JobInput
	in.Name, in.Steps = name, steps
	in.Schedule = jobspec.Schedule{Cron: "0 2 * * *", Timezone: "Europe/Berlin"}
	_, err := client.CreateJob.Do(s.t.Context(), api, in)
	must(s.t, err)
	made, err := client.TriggerJob.Do(s.t.Context(), api, httpapi.TriggerInput{}, name)
	must(s.t, err)
	begin := time.Now().Add(-4 * time.Minute)
	var finished *time.Time
	if status.Final() {
		finished = new(begin.Add(4 * time.Minute))
	}
	s.execute(`UPDATE punctual.runs SET status = $2::text::punctual.run_status, reason = CASE WHEN $2::text = 'dead' THEN 'http_5xx'::punctual.run_reason END,
			error = CASE WHEN $2::text = 'dead' THEN 'step load is dead (http_5xx): the target answered 503' END,
			attempt = 1, fence = 1, scheduled_for = $3, due_at = $3, created_at = $3, claimed_at = $3, started_at = $3, accepted_at = $3, finished_at = $4 WHERE id = $1`,
		made.ID, string(status), begin, finished)
	s.execute(`DELETE FROM punctual.ready WHERE run_id = $1`, made.ID)
	for step, r := range runs {
		var from, to *time.Time
		if r.attempt > 0 {
			from = new(begin.Add(time.Duration(r.from) * time.Second))
		}
		if domain.Status(r.status).Final() {
			to = new(begin.Add(time.Duration(r.to) * time.Second))
		}
		s.execute(`
			INSERT INTO punctual.runs (id, job_id, parent_run, step, scheduled_for, due_at, tenant, job_version, lane, trigger,
				status, reason, error, attempt, fence, created_at, claimed_at, started_at, finished_at)
			SELECT $2, job_id, id, $3, scheduled_for, due_at, tenant, job_version, lane, 'step', $4::text::punctual.run_status,
				nullif($5::text, '')::punctual.run_reason, nullif($6::text, ''), $7, 1,
				coalesce($8, scheduled_for), $8::timestamptz, $8, $9
			FROM punctual.runs WHERE id = $1`,
			made.ID, domain.StepRunID(made.ID, step), step, r.status, r.reason, r.err, r.attempt, from, to)
	}
	return made.ID
}

// halfway is a run of etl that waits for its load.
func halfway() map[string]stepRun {
	return map[string]stepRun{
		"extract":   {status: "succeeded", attempt: 1, to: 90},
		"transform": {status: "succeeded", attempt: 3, from: 100, to: 160},
		"check":     {status: "running", attempt: 1, from: 90},
	}
}

// failed is a run of etl whose check has failed.
func failed() map[string]stepRun {
	runs := halfway()
	runs["check"] = stepRun{"dead", "http_5xx", "the target answered 503", 2, 90, 120}
	runs["load"] = stepRun{status: "skipped", reason: "upstream_failed", err: "step check is dead (http_5xx): the target answered 503"}
	runs["clean-up"] = stepRun{status: "succeeded", attempt: 1, from: 170, to: 200}
	return runs
}

// fiftyRan is a run of fifty that has come to its reports.
func fiftyRan() map[string]stepRun {
	runs := map[string]stepRun{}
	for i, s := range fifty()[:46] {
		runs[s.Name] = stepRun{status: "succeeded", attempt: 1 + i%2, from: 4 * i, to: 4*i + 20}
	}
	runs["report-4"] = stepRun{status: "running", attempt: 1, from: 190}
	runs["report-5"] = stepRun{status: "retrying", reason: "timeout", attempt: 2, from: 190}
	return runs
}

// The page of a workflow's run shows each step: its state as a word, how long it took, and what it waits for.
func TestThePageOfAWorkflowShowsItsSteps(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	run := s.workflow("etl", etl(), domain.StatusRunning, halfway())
	p := sound(b.get("/runs/"+run.String()).want(200)).shows(
		"2 of 5 steps ended; now check", `class="node succeeded"`, `y="36">succeeded · 1 min · 3 attempts</text></svg></a>`, `class="node waiting"`,
		`waits for <span class="whole">check</span>`, "load: waiting: waits for check", "even if they fail", `class="edge ended" d="M`, "5 steps", `<div class="lines">`,
		"<h2>History</h2>", ">started<").
		hides("still working", `name="headers"`, "attempt 1", "not_run")
	check := domain.StepRunID(run, "check").String()
	p.shows(`<a href="/runs/` + check + `"><title>check: running</title>`)
	sound(b.get("/runs/"+check).want(200)).shows(`<a href="/runs/`+run.String()+`">the workflow's run</a>`, "Step check, run of").
		hides("Rerun…", "Other runs of this slot")

	dead := s.workflow("etl-2", etl(), domain.StatusDead, failed()).String()
	sound(b.get("/runs/"+dead).want(200)).shows("Died after 4 min: step load is dead (http_5xx): the target answered 503",
		"skipped", "step check is dead (http_5xx): the target answered 503")
	sound(b.get("/jobs/etl").want(200)).shows(`<svg class="graph"`, "POST etl.example.com", "Input of its steps").
		hides(`name="headers"`, `class="node succeeded"`)
	b.create("plain")
	b.get("/jobs/plain").want(200).shows(`name="headers"`).hides(`<svg class="graph"`)
}

// A workflow is rerun from a step: a page says first what runs again and what is kept.
func TestAWorkflowIsRerunFromAStep(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	run := "/runs/" + s.workflow("etl", etl(), domain.StatusDead, failed()).String()
	sound(b.get(run).want(200)).shows(`<a href="` + run + `/rerun?from=check">from here</a>`)
	sound(b.get(run+"/rerun?from=check").want(200)).shows("Rerun from check", ">Rerun 3 steps</button>",
		`<td class="wordy">transform</td><td><span class="dot succeeded"></span>kept`,
		`<td class="wordy">clean-up</td><td><span class="dot running"></span>runs again`).
		hides("definition=original")
	again := b.post(run+"/rerun", "from", "check", "definition", "current").want(303).to()
	sound(b.get(again).want(200)).shows(`class="node succeeded taken"`, `y="36">kept</text>`,
		`from <a href="/runs/`, `class="node waiting"`).hides("/rerun?from=")
	b.get(run + "/rerun?from=none").want(200).shows("there is no step").hides("Rerun 3 steps")
}

// A form that saves a workflow keeps its steps, and changes them if the visitor does.
func TestTheFormKeepsTheStepsOfAWorkflow(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	s.workflow("etl", etl(), domain.StatusRunning, nil)
	steps := func() string {
		t.Helper()
		job, err := client.Job.Do(t.Context(), client.New(s.url), nil, "etl")
		must(t, err)
		var names []string
		for _, step := range job.Steps {
			names = append(names, step.Name)
		}
		return strings.Join(names, " ")
	}
	const all = "extract transform check load clean-up"
	form := sound(b.get("/jobs/etl/edit").want(200)).shows(`id="steps"`).hides(`id="url"`, `id="method"`)
	b.post("/jobs/etl/edit", filled(form, "cron", "45 4 * * *")...).want(303)
	if got := steps(); got != all {
		t.Errorf("after an edit of the schedule the steps are %s", got)
	}
	b.get("/jobs/etl").shows("04:45")
	text := html.UnescapeString(between(form.body, `id="steps" name="steps" rows="24" class="code" spellcheck="false">`, "</textarea>"))
	if !json.Valid([]byte(text)) {
		t.Fatalf("the steps in the form are no JSON: %s", text)
	}
	form = b.get("/jobs/etl/edit").want(200)
	b.post("/jobs/etl/edit", filled(form, "steps", strings.Replace(text, `"clean-up"`, `"tidy"`, 1))...).want(303)
	if got := steps(); got != "extract transform check load tidy" {
		t.Errorf("after an edit of the steps they are %s", got)
	}
	form = b.get("/jobs/etl/edit").want(200)
	b.post("/jobs/etl/edit", filled(form, "steps", strings.Replace(text, `"transform"`, `"check"`, 1))...).want(422).
		shows(`id="steps-fault"`)
	b.post("/jobs/etl/edit", filled(form, "steps", "[")...).want(422)
	b.post("/jobs/etl/edit", filled(form, "steps", "")...).want(422).shows("Not saved", "target.url", `id="steps"`)
	if got := steps(); got != "extract transform check load tidy" {
		t.Errorf("after edits that were refused the steps are %s", got)
	}
	b.post("/new", filled(b.get("/new?like=etl").want(200))...).want(303)
	b.get("/jobs/etl-copy").want(200).shows(`<svg class="graph"`)
}

var (
	boxes = regexp.MustCompile(`<svg x="(\d+)" y="([-0-9.]+)"`)
	named = regexp.MustCompile(`class="name"[^>]*>([^<]*)`)
)

// In a drawing each step stands right of all that it depends on, and none covers another.
func TestAGraphPutsEachStepAfterWhatItDependsOn(t *testing.T) {
	t.Parallel()
	wide, chain := []jobspec.Step{stepOf("first")}, []jobspec.Step{stepOf("s0")}
	for i := range 49 {
		wide = append(wide, stepOf(fmt.Sprint("w", i), "first"))
		chain = append(chain, stepOf(fmt.Sprint("s", i+1), fmt.Sprint("s", i)))
	}
	for name, steps := range map[string][]jobspec.Step{"etl": etl(), "fifty": fifty(), "wide": wide, "chain": chain} {
		drawn := string(definedGraph(jobspec.Definition{Steps: steps}))
		at, names := boxes.FindAllStringSubmatch(drawn, -1), named.FindAllStringSubmatch(drawn, -1)
		if len(at) != len(steps) || len(names) != len(steps) {
			t.Fatalf("%s: %d steps are drawn, with %d names, want %d", name, len(at), len(names), len(steps))
		}
		type box struct{ x, y float64 }
		placed := map[string]box{}
		for i := range at {
			var b box
			_, err := fmt.Sscan(at[i][1]+" "+at[i][2], &b.x, &b.y)
			must(t, err)
			for other, o := range placed {
				if b.x == o.x && max(b.y-o.y, o.y-b.y) < nodeHeight+nodeGap-0.2 {
					t.Errorf("%s: %s covers %s", name, names[i][1], other)
				}
			}
			placed[names[i][1]] = b
		}
		for _, s := range steps {
			for _, on := range s.DependsOn {
				if placed[shortened(s.Name, 20)].x <= placed[shortened(on, 20)].x {
					t.Errorf("%s: %s is not right of %s", name, s.Name, on)
				}
			}
		}
	}
	if got := graph(nil); got != "" {
		t.Errorf("without steps there is %s", got)
	}
}

// The pages of workflows fit the window, too, and a wide graph scrolls within its box.
func TestInABrowserPagesOfWorkflowsFitTheWindow(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	var paths []string
	for name, run := range map[string]uuid.UUID{
		"running": s.workflow("running", etl(), domain.StatusRunning, halfway()),
		"failed":  s.workflow("failed", etl(), domain.StatusDead, failed()),
		"large":   s.workflow("large", fifty(), domain.StatusRunning, fiftyRan()),
	} {
		paths = append(paths, "/jobs/"+name, "/jobs/"+name+"/edit", "/runs/"+run.String())
		if name == "failed" {
			again, err := client.RerunRun.Do(t.Context(), client.New(s.url), httpapi.RerunInput{
				From: []string{"load"}, Set: map[string]httpapi.SetInput{"check": {Note: "INC-12"}},
			}, run.String())
			must(t, err)
			paths = append(paths, "/runs/"+run.String()+"/rerun?from=check", "/runs/"+again.ID.String())
		}
	}
	s.chromium(t).fits(append(paths, "/audit")...)
}
