package flow_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/history"
	"punctual/store/jobs"
)

func TestAWorkflowGoesThroughItsSteps(t *testing.T) {
	c := NewReplica(t)
	c.Create("etl", Never, Steps("extract", "left<extract", "right<extract", "load<left,right"))
	a := c.StartWorkflow("etl", `{"day":"{{run}}"}`)
	if a.Job.ConcurrencyPolicy != jobspec.PolicyAllow || a.Gated {
		t.Errorf("the policy is %s, gated: %t", a.Job.ConcurrencyPolicy, a.Gated)
	}
	got := c.ClaimSteps() // within the transaction in which the workflow began, so no chore was needed
	if StepNames(got) != "extract" {
		t.Fatalf("%s starts, want extract", StepNames(got))
	}
	if sent, want := c.SentBody(got["extract"]), `{"input":{"day":"{{run}}"}}`; sent != want {
		t.Errorf("extract is sent %s, want %s", sent, want)
	}
	o := Succeeded(got["extract"])
	o.Result = []byte(`{"rows":7}`)
	c.FinishAndRelease(o)
	if got = c.ClaimSteps(); StepNames(got) != "left, right" {
		t.Fatalf("%s start, want left and right", StepNames(got))
	}
	want := `{"input":{"day":"{{run}}"},"steps":{"extract":{"status":"succeeded","result":{"rows":7}}}}`
	if sent := c.SentBody(got["left"]); sent != want {
		t.Errorf("left is sent %s, want %s", sent, want)
	}
	if s := got["left"]; s.Workflow != a.RunID || s.Job.URL().Host != "left.example" || s.Gated {
		t.Errorf("left is %+v", s)
	}
	c.FinishAndRelease(Succeeded(got["left"]))
	if got := c.ClaimSteps(); len(got) > 0 {
		t.Errorf("%s starts before right has ended", StepNames(got))
	}
	c.FinishAndRelease(Succeeded(got["right"]))
	c.FinishAndRelease(Succeeded(c.ClaimSteps()["load"]))
	c.Listen()
	c.WantState(a.RunID, "succeeded attempt 1 finished")
	c.GoOn()
	c.WantCount(0, "workflows go on", `SELECT count(*) FROM punctual.workflows`)
	c.NothingLeft()
	c.Clean()
}

func TestAWorkflowWhoseTimeIsUpCleansUp(t *testing.T) {
	c := NewReplica(t)
	c.Create("w", Never, Forbid, Steps("a", "b<a", "clean<b!"))
	w := c.StartWorkflow("w", "").RunID
	a := c.ClaimSteps()["a"]
	c.Exec(`UPDATE punctual.runs SET started_at = started_at - interval '8 days' WHERE id = $1`, w)
	c.Overdue(w)
	c.GoOn()
	c.FinishAndRelease(Succeeded(a))
	c.FinishAndRelease(Succeeded(c.ClaimSteps()["clean"]))
	c.GoOn()
	c.WantState(w, "dead timeout attempt 1 finished dead letter of 1 timeout attempts: 1 timed_out timeout")
	want := "a cancelled timeout, b skipped upstream_failed, clean succeeded"
	if got := c.StepsOf(w); got != want {
		t.Errorf("its steps are %s, want %s", got, want)
	}
	c.WantCount(0, "workflows go on", `SELECT count(*) FROM punctual.workflows`)
	c.NothingLeft()
	c.Clean()
}

// Workflows with random graphs end as a reference says, whatever their steps answer, in whatever order, with two
// replicas finishing at once. So do their reruns, whatever is kept and set.
func TestWorkflowsEndAsTheReferenceSays(t *testing.T) {
	c := NewReplica(t)
	n := 15
	if !testing.Short() {
		n = 300
	}
	random := rand.New(rand.NewPCG(35, 7))
	fate := map[uuid.UUID]map[string]domain.Status{}
	graph := map[uuid.UUID][]jobspec.Step{}
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
		c.Create(job, Never, Steps(list...))
		run := c.Trigger(job).ID
		graph[run], fate[run] = c.Get(job).Definition.Steps, randomFate(random, c.Get(job).Definition.Steps)
	}
	playWorkflows(c, random, fate)
	first := maps.Clone(graph)
	for run, list := range first {
		if random.IntN(8) == 0 {
			continue
		}
		ended, r := endsOf(c, run), domain.StepRerun{}
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
		again, err := c.For(c.Tenant).RerunRun(t.Context(), run, jobs.RerunRequest{
			Steps: r, Original: random.IntN(2) == 0,
		})
		c.Must(err)
		graph[again.ID], fate[again.ID] = list, randomFate(random, list)
		for _, name := range referenceTaken(list, r, ended) {
			fate[again.ID][name] = taken
		}
	}
	playWorkflows(c, random, fate)
	checkWorkflows(c, graph, fate)
	c.WantCount(0, "workflows stood still", `SELECT $1::int`, c.Workflows.StoodStill())
	c.WantCount(0, "workflows go on", `SELECT count(*) FROM punctual.workflows`)
	c.WantCount(0, "steps that were kept or set were sent", `
		SELECT count(*) FROM punctual.runs WHERE step IS NOT NULL AND (rerun_of IS NOT NULL OR triggered_by IS NOT NULL)
		AND (attempt > 0 OR started_at IS NOT NULL)`)
	c.Clean()
}

// taken is the fate of a step that a rerun has kept or set: it has succeeded whatever those before it do.
const taken domain.Status = "taken"

func randomFate(random *rand.Rand, list []jobspec.Step) map[string]domain.Status {
	fate := map[string]domain.Status{}
	for _, s := range list {
		fate[s.Name] = []domain.Status{
			domain.StatusSucceeded, domain.StatusSucceeded, domain.StatusSucceeded, domain.StatusDead,
		}[random.IntN(4)]
	}
	return fate
}

// playWorkflows lets workflows run to their ends, each step as its fate says.
func playWorkflows(c Replica, random *rand.Rand, fate map[uuid.UUID]map[string]domain.Status) {
	c.T.Helper()
	for {
		runs := append(c.ClaimReady(50).Runs, c.ClaimReady(50).Runs...)
		if len(runs) == 0 {
			break
		}
		random.Shuffle(len(runs), func(i, k int) { runs[i], runs[k] = runs[k], runs[i] })
		var outcomes []domain.Outcome
		for _, a := range runs {
			switch {
			case a.Job.IsWorkflow():
				o := Ended(a, domain.Await)
				o.RetryIn = time.Hour
				outcomes = append(outcomes, o)
			case fate[a.Workflow][a.Step] == domain.StatusDead:
				outcomes = append(outcomes, Died(a))
			default:
				outcomes = append(outcomes, Succeeded(a))
			}
		}
		half := random.IntN(len(outcomes) + 1)
		failed := make(chan error, 2)
		for _, part := range [][]domain.Outcome{outcomes[:half], outcomes[half:]} {
			go func() {
				var leases []uuid.UUID
				_, err := c.Claims.Finish(c.T.Context(), part, leases)
				failed <- err
			}()
		}
		c.Must(<-failed)
		c.Must(<-failed)
		c.GoOn()
	}
}

// endsOf returns how the steps of a workflow's run ended.
func endsOf(c Replica, run uuid.UUID) map[string]domain.Status {
	ends := map[string]domain.Status{}
	for _, text := range strings.Split(c.StepsOf(run), ", ") {
		words := strings.Fields(text)
		ends[words[0]] = domain.Status(words[1])
	}
	return ends
}

// checkWorkflows compares workflows that have ended with what the reference says.
func checkWorkflows(c Replica, graph map[uuid.UUID][]jobspec.Step, fate map[uuid.UUID]map[string]domain.Status) {
	c.T.Helper()
	for run, list := range graph {
		want := referenceEnds(list, fate[run])
		if got := c.StepsOf(run); got != want {
			c.T.Errorf("workflow %s ended as\n%s\nwant\n%s", run, got, want)
		}
		status, dead := domain.StatusSucceeded, strings.Contains(want, " dead ")
		if dead {
			status = domain.StatusDead
		}
		if got := c.Run(run).Status; got != status {
			c.T.Errorf("workflow %s is %s, want %s", run, got, status)
		}
	}
}

// referenceTaken returns the steps that a rerun takes as succeeded, of a run whose steps ended so.
func referenceTaken(list []jobspec.Step, r domain.StepRerun, ended map[string]domain.Status) (names []string) {
	var kept func(name string) bool
	kept = func(name string) bool {
		s := list[slices.IndexFunc(list, func(s jobspec.Step) bool { return s.Name == name })]
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
func referenceEnds(list []jobspec.Step, fate map[string]domain.Status) string {
	end := map[string]domain.Status{}
	var of func(name string) domain.Status
	of = func(name string) domain.Status {
		if status, known := end[name]; known {
			return status
		}
		s := list[slices.IndexFunc(list, func(s jobspec.Step) bool { return s.Name == name })]
		if end[name] = fate[name]; fate[name] == taken {
			end[name] = domain.StatusSucceeded
			return end[name]
		}
		for _, on := range s.DependsOn {
			if of(on) != domain.StatusSucceeded && s.When != jobspec.WhenEnded {
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
	t.Parallel()
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
			c := NewReplica(t)
			c.Create("w", Never, Steps("a", "b<a"))
			c.StartWorkflow("w", "")
			c.FinishAndRelease(Succeeded(c.ClaimSteps()["a"]))
			c.Clean()
			c.Exec(harm)
			found := []string{}
			c.Verified(func(o *history.VerifyOptions) {
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
	c := NewReplica(t)
	c.Create("w", Never, Steps("a", "b<a"))
	c.StartWorkflow("w", "")
	c.Exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE step = 'a'`)
	c.Exec(`DELETE FROM punctual.ready WHERE run_id IN (SELECT id FROM punctual.runs WHERE step = 'a')`)
	if c.Wants(claim.ChoreWorkflows) {
		t.Error("a heartbeat asks for the chore at once")
	}
	c.Exec(`UPDATE punctual.workflows SET looked_at = now() - interval '61 s'`)
	if !c.Wants(claim.ChoreWorkflows) {
		t.Error("no heartbeat asks for the chore after a minute")
	}
	c.GoOn()
	if got := StepNames(c.ClaimSteps()); got != "b" {
		t.Errorf("%q start, want b", got)
	}
	if n := c.Workflows.StoodStill(); n != 1 {
		t.Errorf("%d runs count as taken back, want 1", n)
	}
}

// A step whose job is deleted before it begins to wait for approval is asked to end once, and ends when it begins.
func TestAnApprovalThatAReplicaHasEndsWithItsJob(t *testing.T) {
	c := NewReplica(t)
	c.Create("w", Never, Steps("a"), func(d *jobspec.Definition) {
		d.Steps[0] = jobspec.Step{Name: "a", Approval: &jobspec.Approval{}}
	})
	run := c.StartWorkflow("w", "").RunID
	a := c.ClaimSteps()["a"]
	c.DeleteJob("w")
	c.Exec(`UPDATE punctual.workflows SET due = true`)
	for range 2 {
		if _, left, err := c.Workflows.Advance(t.Context()); err != nil || !left {
			break
		}
	}
	if _, left, err := c.Workflows.Advance(t.Context()); err != nil || left {
		t.Errorf("the chore is done again at once: %t (%v)", left, err)
	}
	o := Ended(a, domain.Await)
	o.RetryIn = a.Job.MaxDuration.Value()
	c.FinishAndRelease(o)
	c.GoOn()
	c.WantState(run, "cancelled job_deleted attempt 1 finished attempts: 1 cancelled job_deleted")
}

// An idle workflow is not taken for one that stood still because another ends beside it, and neither is one that has
// ended and waits for its tenant to be unfrozen.
func TestAnIdleWorkflowStandsNotStill(t *testing.T) {
	c := NewReplica(t)
	for _, job := range []string{"ends", "idle", "frozen"} {
		c.Create(job, Never, Steps("a"))
		c.StartWorkflow(job, "")
		a := c.ClaimSteps()["a"]
		if job != "idle" {
			c.FinishAndRelease(Succeeded(a))
		}
		if job == "ends" {
			c.Listen()
		}
	}
	c.Freeze(c.Tenant, "")
	c.GoOn()
	c.Exec(`UPDATE punctual.workflows SET looked_at = now() - interval '2 min'`)
	c.GoOn()
	if n := c.Workflows.StoodStill(); n != 0 {
		t.Errorf("%d workflows count as taken back", n)
	}
}

// A person's transaction, or a change of the job, may have locked the row of ready when the last step ends.
func TestAWorkflowEndsThoughItsRunWasLocked(t *testing.T) {
	c := NewReplica(t)
	c.Create("w", Never, Steps("a", "b<a"))
	w := c.StartWorkflow("w", "")
	tx, err := c.DB.Runs.Begin(t.Context())
	c.Must(err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `SELECT FROM punctual.ready WHERE run_id = $1 FOR UPDATE`, w.RunID)
	c.Must(err)
	c.FinishAndRelease(Died(c.ClaimSteps()["a"]))
	for range 2 {
		wait, left, err := c.Workflows.Advance(t.Context())
		c.Must(err)
		if !left || wait == 0 {
			t.Errorf("the chore waits for %s, left: %t", wait, left)
		}
		if !c.Wants(claim.ChoreWorkflows) {
			t.Error("no heartbeat asks for the chore")
		}
	}
	c.Must(tx.Commit(t.Context()))
	c.GoOn()
	c.WantState(w.RunID, "dead http_5xx attempt 1 finished dead letter of 1 http_5xx attempts: 1 failed http_5xx")
	c.Clean()
}

// What the store says of a job speaks of the runs of the whole.
func TestStepsDoNotCountAsRunsOfTheirJob(t *testing.T) {
	c := NewReplica(t)
	c.Create("next", Never)
	c.Create("w", Never, Steps("a", "b"), Then("next"))
	a := c.StartWorkflow("w", "")
	got := c.ClaimSteps()
	c.FinishAndRelease(Succeeded(got["a"]))
	c.Cancel(got["b"].RunID)
	c.FinishAndRelease(Ended(got["b"], domain.Cancel))
	c.WantCount(0, "chained runs", `SELECT count(*) FROM punctual.runs WHERE trigger = 'chain'`)
	c.GoOn()
	c.WantCaused(a.RunID, "")
	stats, err := c.Runs.JobStats(t.Context(), c.Tenant, "w")
	c.Must(err)
	if stats.Runs != 1 || stats.Dead != 1 {
		t.Errorf("%d runs, %d dead, want 1 and 1", stats.Runs, stats.Dead)
	}
}

// What a finish decides by the steps next to the one that ends must not hide what has happened to another step.
func TestAFinishHeedsAStepThatWasCancelledBefore(t *testing.T) {
	c := NewReplica(t)
	c.Create("etl", Never, Steps("a", "b", "next<a", "after<b!"))
	w := c.StartWorkflow("etl", "")
	a := c.One(c.ClaimReady(1))
	other := map[string]string{"a": "b", "b": "a"}[a.Step]
	if _, err := c.Runs.CancelRun(t.Context(), c.Tenant, domain.StepRunID(w.RunID, other)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Claims.Finish(t.Context(), []domain.Outcome{Succeeded(a)}, []uuid.UUID{a.Lease.ID}); err != nil {
		t.Fatal(err) // before the chore has looked at the cancel
	}
	c.GoOn()
	got := c.StepsOf(w.RunID)
	for _, step := range []string{"next ", "after "} {
		if !strings.Contains(got, step) {
			t.Errorf("%sis not decided: %s", step, got)
		}
	}
}
