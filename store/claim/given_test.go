package claim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

const mebibyte = 1 << 20

// Sixty workflows with a large input and many steps after the first one would be 750 MB, written with the outcomes of
// everybody.
func TestWhatFollowsFromWorkflowsHoldsUpNoOutcome(t *testing.T) {
	pgtest.Exhaustive(t, "two thousand steps follow")
	c := NewReplica(t)
	steps := []string{"a"}
	for n := range jobspec.MaxSteps - 1 {
		steps = append(steps, fmt.Sprintf("s%02d<a", n))
	}
	c.Create("large", Never, Steps(steps...), func(d *jobspec.Definition) { d.ConcurrencyPolicy = jobspec.PolicyAllow })
	const workflows = 20
	input := `{"x":"` + strings.Repeat("x", 250<<10) + `"}`
	var whole []uuid.UUID
	for range workflows {
		run, err := c.For(c.Tenant).TriggerJob(t.Context(), "large", jobs.TriggerRequest{Body: []byte(input)})
		c.Must(err)
		whole = append(whole, run.ID)
	}
	ready := func() (domain.Batch, error) {
		batch := c.ClaimReady(100)
		if read := givenBytes(batch.Runs); read > 4*mebibyte {
			t.Errorf("a claim of %d steps reads %d bytes of their inputs", len(batch.Runs), read)
		}
		return batch, nil
	}
	for _, a := range claimUntil(c, workflows, ready) {
		c.AcceptWorkflow(a)
	}
	first := claimUntil(c, workflows, ready)
	if len(first) != workflows || givenBytes(first) == 0 {
		t.Errorf("%d steps are claimed, and %d bytes of their inputs read", len(first), givenBytes(first))
	}
	victim := c.Manual("victim")
	outcomes := []domain.Outcome{Succeeded(victim)}
	for _, a := range first {
		if sent := c.SentBody(a); sent != `{"input":`+input+`}` {
			t.Fatalf("a step is sent %d bytes: %.60s", len(sent), sent)
		}
		outcomes = append(outcomes, Succeeded(a))
	}
	c.Finish(outcomes...)
	c.WantState(victim.RunID, "succeeded 200 attempt 1 finished")
	const made = `SELECT count(*) FROM punctual.runs WHERE step <> 'a'`
	if n := c.Count(made); n == 0 || n > 500 {
		t.Errorf("the transaction that ends %d steps enters %d others", workflows, n)
	}
	c.GoOn()
	c.WantCount(workflows*(jobspec.MaxSteps-1), "steps follow", made)
	if n := c.Count(`SELECT sum(octet_length(body)) FROM punctual.run_data`); n > (workflows+1)*len(input) {
		t.Errorf("bodies of %d bytes are stored, want those of %d inputs of %d bytes", n, workflows, len(input))
	}
	next := c.ClaimReady(100).Runs
	if read := givenBytes(next); read > 4*mebibyte {
		t.Errorf("a claim of %d steps reads %d bytes of inputs", len(next), read)
	}
	shown, err := c.Runs.GetRun(t.Context(), c.Tenant, next[0].RunID)
	c.Must(err)
	if body := string(shown.Sent.Request(domain.Origin{}).Body); body != c.SentBody(next[0]) ||
		!strings.HasSuffix(body, `"steps":{"a":{"status":"succeeded","result":null}}}`) {
		t.Errorf("a step is shown as sent %.40s…%.60s", body, body[max(0, len(body)-60):])
	}
	for _, run := range whole {
		c.Cancel(run)
	}
	c.GoOn()
}

// givenBytes is how many bytes steps share that a claim has read for them.
func givenBytes(runs []domain.Assignment) (sum int) {
	seen := map[uuid.UUID]bool{}
	for _, a := range runs {
		if a.Given != nil && !seen[a.Workflow] {
			seen[a.Workflow] = true
			sum += len(a.Given.Input)
		}
	}
	return sum
}

func TestAStepIsToldWhatResultsItLacks(t *testing.T) {
	c := NewReplica(t)
	c.Create("w", Never, Steps("a", "b", "c", "d", "e", "f", "last<a,b,c,d,e,f"))
	c.StartWorkflow("w", "")
	for name, a := range c.ClaimSteps() {
		o := Succeeded(a)
		switch name {
		case "a":
			o.ResultNote = "the result has 70000 bytes; at most 65536 (64 KiB) are kept"
		default:
			o.Result = []byte(`"` + strings.Repeat(name, 60<<10) + `"`)
		}
		c.FinishAndRelease(o)
	}
	last := c.ClaimSteps()["last"]
	body := c.SentBody(last)
	if want := `{"steps":{"a":{"status":"succeeded","result":null,"result_note":"the result has 70000 bytes; at most 65536 (64 KiB) are kept"},`; !strings.HasPrefix(body, want) {
		t.Errorf("it is sent %.200s", body)
	}
	href := `{"bytes":61442,"href":"/v1/runs/` + last.RunID.String() + `/results/`
	if n := strings.Count(body, href); n != 1 {
		t.Errorf("%d results are left out, want one", n)
	}
	run, err := c.Runs.GetRun(t.Context(), c.Tenant, last.Workflow)
	c.Must(err)
	if note := run.Steps[0].ResultNote; note == nil || !strings.Contains(*note, "70000 bytes") {
		t.Errorf("the workflow's run says of the step's result: %v", note)
	}
	c.FinishAndRelease(Succeeded(last))
	c.GoOn()
	c.Clean()
}
