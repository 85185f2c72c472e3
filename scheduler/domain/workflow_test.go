package domain

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// steps makes steps of "name", "name<a,b" or "name<a!", where ! means when: ended.
func steps(all ...string) (list []jobspec.Step) {
	for _, text := range all {
		s := jobspec.Step{Target: jobspec.Target{URL: "http://target.example"}}
		text, ended := strings.CutSuffix(text, "!")
		if ended {
			s.When = jobspec.WhenEnded
		}
		name, on, depends := strings.Cut(text, "<")
		if s.Name = name; depends {
			s.DependsOn = strings.Split(on, ",")
		}
		list = append(list, s)
	}
	return list
}

// told writes an Advance as text, and for each skipped step the one that caused it.
func (a Advance) told(workflow uuid.UUID, all []jobspec.Step) string {
	name := map[uuid.UUID]string{}
	for _, s := range all {
		name[StepRunID(workflow, s.Name)] = s.Name
	}
	var words []string
	for _, s := range a.Enter {
		words = append(words, s.Name)
	}
	for _, s := range a.Skip {
		words = append(words, s.Step.Name+" skipped by "+name[s.CausedBy])
	}
	if a.Ended {
		words = append(words, "ended")
	}
	return strings.Join(words, ", ")
}

func TestStepsStartWhenThoseBeforeThemHaveEnded(t *testing.T) {
	diamond := steps("a", "b<a", "c<a", "d<b,c")
	etl := steps("extract", "load<extract", "report<load", "clean<load!", "tell<clean")
	for _, c := range []struct {
		steps  []jobspec.Step
		runs   string // "a succeeded, b running"
		halted bool
		want   string
	}{
		{diamond, "", false, "a"},
		{diamond, "a running", false, ""},
		{diamond, "a succeeded", false, "b, c"},
		{diamond, "a succeeded, b succeeded", false, "c"},
		{diamond, "a succeeded, b succeeded, c retrying", false, ""},
		{diamond, "a succeeded, b succeeded, c succeeded", false, "d"},
		{diamond, "a succeeded, b dead, c running", false, ""},
		{diamond, "a succeeded, b dead, c succeeded", false, "d skipped by b, ended"},
		{diamond, "a cancelled", false, "b skipped by a, c skipped by a, d skipped by a, ended"},
		{diamond, "a succeeded, b succeeded, c succeeded, d dead", false, "ended"},
		{etl, "extract dead", false, "clean, load skipped by extract, report skipped by extract"},
		{etl, "extract succeeded, load dead, clean succeeded", false, "tell, report skipped by load"},
		{diamond, "", true, "ended"},
		{diamond, "a running", true, ""},
		{diamond, "a cancelled", true, "ended"},
	} {
		workflow := uuid.New()
		runs := map[string]StepRun{}
		for _, r := range strings.Split(c.runs, ", ") {
			if name, status, is := strings.Cut(r, " "); is {
				runs[name] = StepRun{ID: StepRunID(workflow, name), Status: Status(status)}
			}
		}
		got := AdvanceSteps(jobspec.Definition{Steps: c.steps}, workflow, runs, c.halted).told(workflow, c.steps)
		if got != c.want {
			t.Errorf("%q (halted: %t): %q, want %q", c.runs, c.halted, got, c.want)
		}
	}
}

// Whatever the graph and the order in which steps end: each step starts or is skipped once, after those before it, and
// the workflow ends with its last step.
func TestEachStepIsSettledOnce(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 2))
		all := randomSteps(random, 1+random.IntN(30))
		d, workflow := jobspec.Definition{Name: "w", Steps: all}, uuid.New()
		if p := (jobspec.Definition{Name: "w", Steps: all}).Validate(); len(p) > 0 {
			t.Fatalf("seed %d: %v", seed, p)
		}
		runs, ended := map[string]StepRun{}, ""
		for {
			a := AdvanceSteps(d, workflow, runs, false)
			if ended != "" {
				wantSameAfter(t, d, workflow, runs, ended, a)
			}
			for _, s := range a.Enter {
				wantSettledAfter(t, runs, s)
				runs[s.Name] = StepRun{ID: StepRunID(workflow, s.Name), Status: StatusRunning}
			}
			for _, s := range a.Skip {
				wantSettledAfter(t, runs, s.Step)
				runs[s.Step.Name] = StepRun{Status: StatusSkipped, Reason: ReasonUpstreamFailed, CausedBy: s.CausedBy}
			}
			if a.Ended {
				break
			}
			var going []string
			for _, s := range all {
				if r, has := runs[s.Name]; has && !r.Status.Final() {
					going = append(going, s.Name)
				}
			}
			if len(going) == 0 {
				t.Fatalf("seed %d: nothing goes on, and the workflow has not ended", seed)
			}
			name := going[random.IntN(len(going))]
			r := runs[name]
			r.Status = []Status{StatusSucceeded, StatusSucceeded, StatusDead, StatusCancelled}[random.IntN(4)]
			runs[name], ended = r, name
		}
		if len(runs) != len(all) {
			t.Errorf("seed %d: %d of %d steps were settled", seed, len(runs), len(all))
		}
	}
}

// wantSameAfter checks that the steps beside one that has ended decide as all do, where they decide.
func wantSameAfter(
	t *testing.T, d jobspec.Definition, workflow uuid.UUID, runs map[string]StepRun, ended string, want Advance,
) {
	t.Helper()
	part, last := d.After([]string{ended})
	known := map[string]StepRun{}
	for _, s := range part.Steps {
		if r, has := runs[s.Name]; has {
			known[s.Name] = r
		}
	}
	got := AdvanceSteps(part, workflow, known, false)
	if got.Ended && last && len(got.Skip) == 0 && !want.Ended {
		t.Errorf("after %s of %d steps: all have ended by the steps next to it, and not by all", ended, len(d.Steps))
	}
	if !got.Ended && len(got.Skip) == 0 && got.told(workflow, d.Steps) != want.told(workflow, d.Steps) {
		t.Errorf("after %s of %d steps: %q by the steps next to it, %q by all",
			ended, len(d.Steps), got.told(workflow, d.Steps), want.told(workflow, d.Steps))
	}
	if (want.Ended || len(want.Skip) > 0) && !got.Ended && len(got.Skip) == 0 {
		t.Errorf("after %s: %q is not found out", ended, want.told(workflow, d.Steps))
	}
}

func wantSettledAfter(t *testing.T, runs map[string]StepRun, s jobspec.Step) {
	t.Helper()
	if _, twice := runs[s.Name]; twice {
		t.Errorf("step %s is settled twice", s.Name)
	}
	for _, on := range s.DependsOn {
		if r, has := runs[on]; has && !r.Status.Final() {
			t.Errorf("step %s is settled while %s is %s", s.Name, on, r.Status)
		}
	}
}

func randomSteps(random *rand.Rand, n int) (all []jobspec.Step) {
	for i := range n {
		s := jobspec.Step{Name: fmt.Sprintf("s%d", i), Target: jobspec.Target{URL: "http://target.example"}}
		if random.IntN(4) == 0 {
			s.When = jobspec.WhenEnded
		}
		for k := range i {
			if random.IntN(i) < 2 {
				s.DependsOn = append(s.DependsOn, all[k].Name)
			}
		}
		all = append(all, s)
	}
	random.Shuffle(n, func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

func TestAWorkflowEndsAsTheStepThatDiedFirst(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	died := func(reason Reason, second int) StepRun {
		return StepRun{Status: StatusDead, Reason: reason, Error: "no", FinishedAt: at(second)}
	}
	ok := StepRun{Status: StatusSucceeded, FinishedAt: at(1)}
	for want, runs := range map[string]map[string]StepRun{
		"succeeded  ": {"a": ok, "b": ok},
		"dead http_5xx step b is dead (http_5xx): no": {
			"a": died(ReasonTimeout, 9), "b": died(ReasonHTTP5xx, 2), "c": {Status: StatusCancelled, FinishedAt: at(1)},
			"d": {Status: StatusSkipped, Reason: ReasonUpstreamFailed, FinishedAt: at(1)},
		},
		"dead upstream_failed step a is cancelled (cancelled_by_user)": {
			"a": {Status: StatusCancelled, Reason: ReasonCancelled, FinishedAt: at(1)},
			"b": {Status: StatusSkipped, Reason: ReasonUpstreamFailed},
		},
	} {
		o := JudgeSteps(Assignment{}, runs, "", at(0), at(10))
		if got := fmt.Sprintf("%s %s %s", o.End().Status, o.Reason, o.Error); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWhatIsWrongWithSteps(t *testing.T) {
	with := func(change func(*jobspec.Definition), all ...string) jobspec.Definition {
		d := jobspec.Definition{Name: "w", Steps: steps(all...)}
		change(&d)
		return d
	}
	none := func(*jobspec.Definition) {}
	many := make([]string, 51)
	for i := range many {
		many[i] = fmt.Sprintf("s%d", i)
	}
	for want, d := range map[string]jobspec.Definition{
		"":                            with(none, "a", "b<a!"),
		`steps: 51 steps; at most 50`: with(none, many...),
		`steps: depend on each other in a circle: a → b → c → a`:               with(none, "a<c", "b<a", "c<b"),
		`steps[1].depends_on[0]: there is no step "loadd"; did you mean load?`: with(none, "load", "b<loadd"),
		`steps[1].depends_on[0]: "b" is the step itself`:                       with(none, "a", "b<b"),
		`steps[1].depends_on[1]: "a" stands there twice; name it once`:         with(none, "a", "b<a,a"),
		`steps[1].name: "a" is the name of an earlier step; choose another`:    with(none, "a", "a"),
		`steps[0].timeout: "25h" is outside 1ms to 24h; a target that works for longer answers 202 and calls back: see completion`: with(
			func(d *jobspec.Definition) { d.Steps[0].Timeout = lasting("25h") }, "a"),
		`steps[0].target.url: is required: an absolute http or https URL`: with(
			func(d *jobspec.Definition) { d.Steps[0].Target.URL = "" }, "a"),
		`steps[0].when: "failed" is not one of succeeded, ended`: with(
			func(d *jobspec.Definition) { d.Steps[0].When = jobspec.WhenFailed }, "a"),
		`target: a job with steps has none: each step has its own; leave it out, or, in a patch, write null`: with(
			func(d *jobspec.Definition) { d.Target.URL = "http://target.example" }, "a"),
	} {
		var got []string
		for _, p := range d.Validate() {
			got = append(got, p.Error())
		}
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%s\nwant %s", text, want)
		}
	}
}

// A step that leaves something out is as its job says, but for what belongs to the whole.
func TestAStepIsAsItsJobUnlessItSaysOtherwise(t *testing.T) {
	d := jobspec.Definition{
		Name: "w", Timeout: lasting("7s"), Retry: jobspec.Retry{MaxAttempts: 3}, Priority: jobspec.PriorityHigh, Limits: []string{"l"},
		ConcurrencyPolicy: jobspec.PolicyForbid, Then: []jobspec.Link{{Job: "next"}}, ExpiresAfter: lasting("1h"),
		Steps: steps("a", "b<a"),
	}
	d.Steps[1].Timeout, d.Steps[1].Limits, d.Steps[1].Priority = lasting("9s"), []string{}, jobspec.PriorityLow
	job, err := Compile(uuid.New(), 1, 1, d, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b := job.Step("a"), job.Step("b")
	for _, s := range []*Job{a, b} {
		if s.ConcurrencyPolicy != jobspec.PolicyAllow || s.Then != nil || !s.ExpiresAfter.IsZero() ||
			s.Retry.MaxAttempts != 3 ||
			s.IsWorkflow() || *s.Retry.AfterTimeout {
			t.Errorf("%+v", s.Definition)
		}
	}
	if a.Timeout.Value() != 7*time.Second || a.Priority != jobspec.PriorityHigh || len(a.Limits) != 1 {
		t.Errorf("a is %+v", a.Definition)
	}
	if b.Timeout.Value() != 9*time.Second || b.Priority != jobspec.PriorityLow || len(b.Limits) != 0 {
		t.Errorf("b is %+v", b.Definition)
	}
	if job.Retry.MaxAttempts != 1 || len(job.Limits) != 0 || job.MaxDuration != jobspec.DefaultWorkflowDuration || job.Step("c") != nil {
		t.Errorf("the whole is %+v", job.Definition)
	}
}
