package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/history"
	"punctual/store/jobs"
)

// steps makes a job a workflow of steps "name", "name<a,b" or "name<a!", where ! means when: ended.
func steps(all ...string) option {
	return func(d *domain.Definition) {
		d.Target = domain.Target{}
		for _, text := range all {
			text, ended := strings.CutSuffix(text, "!")
			name, on, depends := strings.Cut(text, "<")
			s := domain.Step{Name: name, Target: domain.Target{URL: "http://" + name + ".example"}}
			if s.Retry.MaxAttempts = 1; ended {
				s.When = domain.WhenEnded
			}
			if depends {
				s.DependsOn = strings.Split(on, ",")
			}
			d.Steps = append(d.Steps, s)
		}
	}
}

// startWorkflow triggers a workflow and lets its run begin.
func (c claimer) startWorkflow(job, body string) domain.Assignment {
	c.t.Helper()
	r := jobs.TriggerRequest{}
	if body != "" {
		r.Body = []byte(body)
	}
	_, err := c.For(c.tenant).TriggerJob(c.t.Context(), job, r)
	c.must(err)
	a := c.one(c.claimReady(10))
	c.acceptWorkflow(a)
	return a
}

// acceptWorkflow is what a replica does with the run of a workflow.
func (c claimer) acceptWorkflow(a domain.Assignment) {
	c.t.Helper()
	o := ended(a, domain.Await)
	o.RetryIn = a.Job.MaxDuration.Value()
	c.finishAndRelease(o)
}

// goOn does the chores of workflows until nothing is left.
func (c claimer) goOn() {
	c.t.Helper()
	for first := true; first || c.wants(claim.ChoreWorkflows); first = false {
		_, err := c.Claims.AdvanceWorkflows(c.t.Context())
		c.must(err)
		c.listen()
	}
}

// claimSteps claims the runs of steps that wait, by step.
func (c claimer) claimSteps() map[string]domain.Assignment {
	c.t.Helper()
	runs := map[string]domain.Assignment{}
	for _, a := range c.claimReady(1000).Runs {
		runs[a.Step] = a
	}
	return runs
}

func stepNames(runs map[string]domain.Assignment) string {
	var list []string
	for name := range runs {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// stepsOf tells how the steps of a workflow's run are.
func (c claimer) stepsOf(run uuid.UUID) string {
	c.t.Helper()
	return c.text(`SELECT coalesce(string_agg(concat_ws(' ', r.step, r.status, r.reason), ', ' ORDER BY r.step), '')
		FROM punctual.runs r WHERE r.parent_run = $1`, run)
}

func died(a domain.Assignment) domain.Outcome {
	o := ended(a, domain.Bury)
	o.Reason, o.Error = domain.ReasonHTTP5xx, "503"
	return o
}

func TestAWorkflowGoesThroughItsSteps(t *testing.T) {
	c := newClaimer(t)
	c.create("etl", never, steps("extract", "left<extract", "right<extract", "load<left,right"))
	a := c.startWorkflow("etl", `{"day":"{{run}}"}`)
	if a.Job.ConcurrencyPolicy != domain.PolicyForbid || !a.Gated {
		t.Errorf("the policy is %s, gated: %t", a.Job.ConcurrencyPolicy, a.Gated)
	}
	got := c.claimSteps() // within the transaction in which the workflow began, so no chore was needed
	if stepNames(got) != "extract" {
		t.Fatalf("%s starts, want extract", stepNames(got))
	}
	if want := `{"input":{"day":"{{{{run}}"}}`; string(got["extract"].Body) != want {
		t.Errorf("extract is sent %s, want %s", got["extract"].Body, want)
	}
	o := succeeded(got["extract"])
	o.Result = []byte(`{"rows":7}`)
	c.finishAndRelease(o)
	if got = c.claimSteps(); stepNames(got) != "left, right" {
		t.Fatalf("%s start, want left and right", stepNames(got))
	}
	if want := `{"input":{"day":"{{{{run}}"},"steps":{"extract":{"status":"succeeded","result":{"rows":7}}}}`; string(got["left"].Body) != want {
		t.Errorf("left is sent %s, want %s", got["left"].Body, want)
	}
	if s := got["left"]; s.Workflow != a.RunID || s.Job.URL().Host != "left.example" || s.Gated {
		t.Errorf("left is %+v", s)
	}
	c.finishAndRelease(succeeded(got["left"]))
	if got := c.claimSteps(); len(got) > 0 {
		t.Errorf("%s starts before right has ended", stepNames(got))
	}
	c.finishAndRelease(succeeded(got["right"]))
	c.finishAndRelease(succeeded(c.claimSteps()["load"]))
	c.listen()
	c.wantState(a.RunID, "succeeded attempt 1 finished")
	c.goOn()
	c.wantCount(0, "workflows go on", `SELECT count(*) FROM punctual.workflows`)
	c.nothingLeft()
	c.clean()
}

// clean fails the test if verify finds a violation.
func (c claimer) clean() {
	c.t.Helper()
	if found, _ := c.verified(); len(found) > 0 {
		c.t.Errorf("verify: %s", strings.Join(found, "\n"))
	}
}

func TestHowAWorkflowEnds(t *testing.T) {
	for name, with := range map[string]struct {
		do          func(c claimer, a domain.Assignment, steps map[string]domain.Assignment)
		state, runs string
	}{
		"a step dies": {
			func(c claimer, _ domain.Assignment, s map[string]domain.Assignment) {
				c.finishAndRelease(died(s["a"]))
				c.finishAndRelease(succeeded(c.claimSteps()["clean"]))
			}, "dead http_5xx attempt 1 finished dead letter of 1 http_5xx attempts: 1 failed http_5xx",
			"a dead http_5xx, b skipped upstream_failed, clean succeeded",
		},
		"it is cancelled": {
			func(c claimer, a domain.Assignment, s map[string]domain.Assignment) {
				c.cancel(a.RunID)
				c.goOn()
				c.finishAndRelease(succeeded(s["a"])) // a replica has it
			}, "cancelled cancelled_by_user attempt 1 finished attempts: 1 cancelled cancelled_by_user",
			"a cancelled cancelled_by_user",
		},
		"a step is cancelled": {
			func(c claimer, _ domain.Assignment, s map[string]domain.Assignment) {
				c.cancel(s["a"].RunID)
				c.finishAndRelease(ended(s["a"], domain.Cancel))
				c.finishAndRelease(succeeded(c.claimSteps()["clean"]))
			}, "dead upstream_failed attempt 1 finished dead letter of 1 upstream_failed attempts: 1 failed upstream_failed",
			"a cancelled cancelled_by_user, b skipped upstream_failed, clean succeeded",
		},
		"its time is up": {
			func(c claimer, a domain.Assignment, s map[string]domain.Assignment) {
				c.exec(`UPDATE punctual.runs SET started_at = started_at - interval '8 days' WHERE id = $1`, a.RunID)
				c.overdue(a.RunID)
				c.goOn()
				c.finishAndRelease(succeeded(s["a"]))
			}, "dead timeout attempt 1 finished dead letter of 1 timeout attempts: 1 timed_out timeout",
			"a cancelled cancelled_by_user",
		},
		"its job is deleted": {func(c claimer, _ domain.Assignment, s map[string]domain.Assignment) {
			c.must(c.Jobs.DeleteJob(c.t.Context(), c.tenant, "w", nil, false))
			c.finishAndRelease(succeeded(s["a"])) // its request was out
		}, "cancelled job_deleted attempt 1 finished attempts: 1 cancelled job_deleted", "a succeeded"},
		"a step's replica is lost": {
			func(c claimer, _ domain.Assignment, s map[string]domain.Assignment) {
				c.lose(c.replica)
				c.recover()
				c = asClaimer(c.crud)
				c.finishAndRelease(succeeded(c.claimSteps()["clean"]))
			}, "dead lost attempt 1 finished dead letter of 1 lost attempts: 1 lost lost",
			"a dead lost, b skipped upstream_failed, clean succeeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			c.create("w", never, steps("a", "b<a", "clean<b!"))
			a := c.startWorkflow("w", "")
			with.do(c, a, c.claimSteps())
			c.goOn()
			c.wantState(a.RunID, with.state)
			if got := c.stepsOf(a.RunID); got != with.runs {
				t.Errorf("its steps are %s, want %s", got, with.runs)
			}
			c.wantCount(0, "workflows go on", `SELECT count(*) FROM punctual.workflows`)
			c.nothingLeft()
			c.clean()
		})
	}
}

// A replica that dies before the run of a workflow has begun costs nothing: it has sent nothing.
func TestAWorkflowOutlivesTheReplicaThatClaimedIt(t *testing.T) {
	c := newClaimer(t)
	c.create("w", never, steps("a"))
	run := c.begun("w").RunID
	c.lose(c.replica)
	c.recover()
	c = asClaimer(c.crud)
	a := c.again()
	if a.RunID != run || a.Attempt != 1 {
		t.Errorf("run %s is claimed for its attempt %d, want %s and 1", a.RunID, a.Attempt, run)
	}
	c.acceptWorkflow(a)
	c.finishAndRelease(succeeded(c.claimSteps()["a"]))
	c.goOn()
	c.wantState(run, "succeeded attempt 1 finished")
}

// Workflows with random graphs end as a reference says, whatever their steps answer, in whatever order, with two
// replicas finishing at once. So do their reruns, whatever is kept and set.
func TestWorkflowsEndAsTheReferenceSays(t *testing.T) {
	c := newClaimer(t)
	n := 40
	if !testing.Short() {
		n = 300
	}
	random := rand.New(rand.NewPCG(35, 7))
	fate := map[uuid.UUID]map[string]domain.Status{}
	graph := map[uuid.UUID][]domain.Step{}
	for i := range n {
		job := fmt.Sprintf("w%d", i)
		var list []string
		for k := range 1 + random.IntN(30) {
			var on []string
			for before := range k {
				if random.IntN(k) < 2 {
					on = append(on, fmt.Sprintf("s%d", before))
				}
			}
			text := fmt.Sprintf("s%d", k)
			if len(on) > 0 {
				text += "<" + strings.Join(on, ",")
			}
			if random.IntN(4) == 0 {
				text += "!"
			}
			list = append(list, text)
		}
		c.create(job, never, steps(list...))
		run := c.trigger(job).ID
		graph[run], fate[run] = c.get(job).Definition.Steps, randomFate(random, c.get(job).Definition.Steps)
	}
	c.playWorkflows(random, fate)
	first := maps.Clone(graph)
	for run, list := range first {
		if random.IntN(8) == 0 {
			continue
		}
		ended, r := c.endsOf(run), domain.StepRerun{}
		for _, s := range list {
			switch random.IntN(len(list) + 2) {
			case 0:
				r.From = append(r.From, s.Name)
			case 1:
				if r.Set == nil {
					r.Set = map[string]domain.SetStep{}
				}
				r.Set[s.Name] = domain.SetStep{Result: []byte(`1`)}
			}
		}
		again, err := c.For(c.tenant).RerunRun(t.Context(), run, jobs.RerunRequest{
			Steps: r, Original: random.IntN(2) == 0,
		})
		c.must(err)
		graph[again.ID], fate[again.ID] = list, randomFate(random, list)
		for _, name := range referenceTaken(list, r, ended) {
			fate[again.ID][name] = taken
		}
	}
	c.playWorkflows(random, fate)
	c.checkWorkflows(graph, fate)
	c.wantCount(0, "workflows stood still", `SELECT $1::int`, c.Claims.TakenBack())
	c.wantCount(0, "workflows go on", `SELECT count(*) FROM punctual.workflows`)
	c.wantCount(0, "steps that were kept or set were sent", `
		SELECT count(*) FROM punctual.runs WHERE step IS NOT NULL AND (rerun_of IS NOT NULL OR triggered_by IS NOT NULL)
		AND (attempt > 0 OR started_at IS NOT NULL)`)
	c.clean()
}

// taken is the fate of a step that a rerun has kept or set: it has succeeded whatever those before it do.
const taken domain.Status = "taken"

func randomFate(random *rand.Rand, list []domain.Step) map[string]domain.Status {
	fate := map[string]domain.Status{}
	for _, s := range list {
		fate[s.Name] = []domain.Status{
			domain.StatusSucceeded, domain.StatusSucceeded, domain.StatusSucceeded, domain.StatusDead,
		}[random.IntN(4)]
	}
	return fate
}

// playWorkflows lets workflows run to their ends, each step as its fate says.
func (c claimer) playWorkflows(random *rand.Rand, fate map[uuid.UUID]map[string]domain.Status) {
	c.t.Helper()
	for {
		runs := append(c.claimReady(50).Runs, c.claimReady(50).Runs...)
		if len(runs) == 0 {
			break
		}
		random.Shuffle(len(runs), func(i, k int) { runs[i], runs[k] = runs[k], runs[i] })
		var outcomes []domain.Outcome
		for _, a := range runs {
			switch {
			case a.Job.IsWorkflow():
				o := ended(a, domain.Await)
				o.RetryIn = time.Hour
				outcomes = append(outcomes, o)
			case fate[a.Workflow][a.Step] == domain.StatusDead:
				outcomes = append(outcomes, died(a))
			default:
				outcomes = append(outcomes, succeeded(a))
			}
		}
		half := random.IntN(len(outcomes) + 1)
		failed := make(chan error, 2)
		for _, part := range [][]domain.Outcome{outcomes[:half], outcomes[half:]} {
			go func() {
				var leases []uuid.UUID
				_, err := c.Claims.Finish(c.t.Context(), part, leases)
				failed <- err
			}()
		}
		c.must(<-failed)
		c.must(<-failed)
		c.goOn()
	}
}

// endsOf returns how the steps of a workflow's run ended.
func (c claimer) endsOf(run uuid.UUID) map[string]domain.Status {
	ends := map[string]domain.Status{}
	for _, text := range strings.Split(c.stepsOf(run), ", ") {
		words := strings.Fields(text)
		ends[words[0]] = domain.Status(words[1])
	}
	return ends
}

// checkWorkflows compares workflows that have ended with what the reference says.
func (c claimer) checkWorkflows(graph map[uuid.UUID][]domain.Step, fate map[uuid.UUID]map[string]domain.Status) {
	c.t.Helper()
	for run, list := range graph {
		want := referenceEnds(list, fate[run])
		if got := c.stepsOf(run); got != want {
			c.t.Errorf("workflow %s ended as\n%s\nwant\n%s", run, got, want)
		}
		status, dead := domain.StatusSucceeded, strings.Contains(want, " dead ")
		if dead {
			status = domain.StatusDead
		}
		if got := c.run(run).Status; got != status {
			c.t.Errorf("workflow %s is %s, want %s", run, got, status)
		}
	}
}

// referenceTaken returns the steps that a rerun takes as succeeded, of a run whose steps ended so.
func referenceTaken(list []domain.Step, r domain.StepRerun, ended map[string]domain.Status) (names []string) {
	var kept func(name string) bool
	kept = func(name string) bool {
		s := list[slices.IndexFunc(list, func(s domain.Step) bool { return s.Name == name })]
		_, set := r.Set[name]
		return !set && ended[name] == domain.StatusSucceeded && !slices.Contains(r.From, name) &&
			!slices.ContainsFunc(s.DependsOn, func(on string) bool { return !kept(on) })
	}
	for _, s := range list {
		if _, set := r.Set[s.Name]; set || len(r.From)+len(r.Set) > 0 && kept(s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// referenceEnds interprets a workflow: how its steps end when each that runs meets its fate.
func referenceEnds(list []domain.Step, fate map[string]domain.Status) string {
	end := map[string]domain.Status{}
	var of func(name string) domain.Status
	of = func(name string) domain.Status {
		if status, known := end[name]; known {
			return status
		}
		s := list[slices.IndexFunc(list, func(s domain.Step) bool { return s.Name == name })]
		if end[name] = fate[name]; fate[name] == taken {
			end[name] = domain.StatusSucceeded
			return end[name]
		}
		for _, on := range s.DependsOn {
			if of(on) != domain.StatusSucceeded && s.When != domain.WhenEnded {
				end[name] = domain.StatusSkipped
			}
		}
		return end[name]
	}
	var words []string
	for _, s := range list {
		word := s.Name + " " + string(of(s.Name))
		switch end[s.Name] {
		case domain.StatusDead:
			word += " http_5xx"
		case domain.StatusSkipped:
			word += " upstream_failed"
		}
		words = append(words, word)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func TestVerifyFindsWorkflowsThatStandStill(t *testing.T) {
	for want, harm := range map[string]string{
		"it continues, but has no row in workflows: none of its steps will start": `DELETE FROM punctual.workflows`,
		"its step b should have started": `WITH gone AS (DELETE FROM punctual.ready WHERE run_id IN (
			SELECT id FROM punctual.runs WHERE step = 'b')) DELETE FROM punctual.runs WHERE step = 'b'`,
		"its steps have all ended, and it has not": `
			UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE step = 'b'`,
		"it has ended, and its step b is pending": `
			UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE step IS NULL`,
	} {
		t.Run(want, func(t *testing.T) {
			c := newClaimer(t)
			c.create("w", never, steps("a", "b<a"))
			c.startWorkflow("w", "")
			c.finishAndRelease(succeeded(c.claimSteps()["a"]))
			c.clean()
			c.exec(harm)
			found := []string{}
			c.verified(func(o *history.VerifyOptions) {
				o.Grace = time.Nanosecond
				report := o.Report
				o.Report = func(v history.Violation) error {
					if v.Kind == history.ViolationWorkflow {
						found = append(found, v.Detail)
					}
					return report(v)
				}
			})
			if !slices.Equal(found, []string{want}) {
				t.Errorf("verify finds %q, want %q", found, want)
			}
		})
	}
}

// A workflow that nobody was told about goes on a minute later, and the replica says so.
func TestAWorkflowThatStandsStillGoesOnAfterAMinute(t *testing.T) {
	c := newClaimer(t)
	c.create("w", never, steps("a", "b<a"))
	c.startWorkflow("w", "")
	c.exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE step = 'a'`)
	c.exec(`DELETE FROM punctual.ready WHERE run_id IN (SELECT id FROM punctual.runs WHERE step = 'a')`)
	if c.wants(claim.ChoreWorkflows) {
		t.Error("a heartbeat asks for the chore at once")
	}
	c.exec(`UPDATE punctual.workflows SET looked_at = now() - interval '61 s'`)
	if !c.wants(claim.ChoreWorkflows) {
		t.Error("no heartbeat asks for the chore after a minute")
	}
	c.goOn()
	if got := stepNames(c.claimSteps()); got != "b" {
		t.Errorf("%q start, want b", got)
	}
	if n := c.Claims.TakenBack(); n != 1 {
		t.Errorf("%d runs count as taken back, want 1", n)
	}
}

// The steps of a workflow are no runs that wait in its queue.
func TestWorkflowsQueueAsAWhole(t *testing.T) {
	c := newClaimer(t)
	c.create("w", never, steps("a", "b"), func(d *domain.Definition) {
		d.ConcurrencyPolicy, d.MaxPendingRuns = domain.PolicyQueue, 1
	})
	first := c.startWorkflow("w", "") // its two steps wait to be claimed
	second := c.trigger("w").ID
	got := c.claimSteps()
	if stepNames(got) != "a, b" {
		t.Fatalf("%s start, want a and b", stepNames(got))
	}
	if _, err := c.tryTrigger("w"); err == nil {
		t.Error("a third run may wait, though max_pending_runs is 1")
	}
	c.finishAndRelease(succeeded(got["a"]))
	c.finishAndRelease(succeeded(got["b"]))
	c.goOn()
	c.wantState(first.RunID, "succeeded attempt 1 finished")
	if a := c.one(c.claimReady(10)); a.RunID != second {
		t.Errorf("run %s starts, want %s", a.RunID, second)
	}
}

// The rate of a limit counts the starts of steps that take it, and neither the workflow's own run nor other steps.
func TestVerifyCountsTheStartsOfStepsAtALimit(t *testing.T) {
	for want, own := range map[int][]string{1: nil, 0: {}} { // the steps have the job's limit, or none
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			c := newClaimer(t)
			c.putLimit("api", 0, 1)
			c.create("w", never, limited("api"), steps("a", "b", "c"), func(d *domain.Definition) {
				for i := range d.Steps {
					d.Steps[i].Limits = own
				}
			})
			c.exec(`UPDATE punctual.limits SET updated_at = now() - interval '1 hour'`)
			c.startWorkflow("w", "")
			c.exec(`UPDATE punctual.runs SET due_at = now(), created_at = now(), started_at = now()`)
			if got := c.verifyLimits(); len(got) != want {
				t.Errorf("verify finds %v, want %d", got, want)
			}
		})
	}
}

// An idle workflow is not taken for one that stood still because another ends beside it.
func TestAnIdleWorkflowStandsNotStill(t *testing.T) {
	c := newClaimer(t)
	for _, job := range []string{"ends", "idle"} {
		c.create(job, never, steps("a"))
		c.startWorkflow(job, "")
		if a := c.claimSteps()["a"]; job == "ends" {
			c.finishAndRelease(succeeded(a))
			c.listen()
		}
	}
	c.exec(`UPDATE punctual.workflows SET looked_at = now() - interval '2 min'`)
	c.goOn()
	if n := c.Claims.TakenBack(); n != 0 {
		t.Errorf("%d workflows count as taken back", n)
	}
}

// What the store says of a job speaks of the runs of the whole.
func TestStepsDoNotCountAsRunsOfTheirJob(t *testing.T) {
	c := newClaimer(t)
	c.create("next", never)
	c.create("w", never, steps("a", "b"), then("next"))
	a := c.startWorkflow("w", "")
	got := c.claimSteps()
	c.finishAndRelease(succeeded(got["a"]))
	c.cancel(got["b"].RunID)
	c.finishAndRelease(ended(got["b"], domain.Cancel))
	c.wantCount(0, "chained runs", `SELECT count(*) FROM punctual.runs WHERE trigger = 'chain'`)
	c.goOn()
	c.wantCaused(a.RunID, "")
	stats, err := c.Runs.JobStats(t.Context(), c.tenant, "w")
	c.must(err)
	if stats.Runs != 1 || stats.Dead != 1 {
		t.Errorf("%d runs, %d dead, want 1 and 1", stats.Runs, stats.Dead)
	}
}
