package claim_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
)

// A payload that cannot be opened stops its own run and no other, with a reason that names it. Once its key is there,
// the run goes on. Meanwhile lists show all else, and the body can be given anew.
func TestAPayloadThatDoesNotOpenStopsNoOther(t *testing.T) {
	t.Parallel()
	o := store.Options{DatabaseURL: pgtest.DSN(t), MaxConns: 8, Master: pgtest.Master(t), Sealed: true}
	first := AsReplica(OpenFixture(t, o))
	body := json.RawMessage(`{"a":1}`)
	trigger := func(c Replica, job string) {
		_, err := c.For(c.Tenant).TriggerJob(t.Context(), job, jobs.TriggerRequest{Body: body})
		c.Must(err)
	}
	for _, job := range []string{"run", "defined"} {
		first.Create(job, Never, func(d *jobspec.Definition) {
			if job == "defined" {
				d.Target.Body = body
			}
		})
	}
	first.Create("well", Never)
	first.Create("listens", On("paid", ""))
	first.Create("flow", Never, Steps("a"))
	first.StartWorkflow("flow", string(body))
	trigger(first, "run")
	first.Trigger("defined")
	first.DueNow("due", func(d *jobspec.Definition) { d.Target.Body = body })
	first.Emit("paid", string(body))
	lost := Value[[]byte](first.Fixture, `SELECT sealed FROM punctual.data_keys WHERE payloads`)
	id := Value[int64](first.Fixture, `SELECT id FROM punctual.data_keys WHERE payloads`)
	first.Exec(`DELETE FROM punctual.data_keys WHERE payloads`)

	c := AsReplica(OpenFixture(t, o)) // it makes a key, and does not have the first
	for range 5 {
		trigger(c, "well")
	}
	c.Emit("paid", string(body))
	claim := func() (domain.Batch, error) { return c.Claims.ClaimReady(t.Context(), c.Asks(100, false)) }
	c.DueNow("due-well")
	due := func() (domain.Batch, error) { return c.Claims.ClaimDue(t.Context(), c.Asks(100, false)) }
	if a := claimUntil(c, 1, due)[0]; a.Job.Name != "due-well" {
		t.Errorf("%s is claimed", a.Job.Name)
	}
	ctx := Bounded(t)
	sent := map[string]int{}
	var step domain.Assignment
	for sent["well"] < 5 || sent["listens"] < 1 || step.RunID == uuid.Nil ||
		c.Count(`SELECT count(*) FROM punctual.set_aside`) < 2 {
		c.FanOut()
		batch, err := claim()
		c.Must(err)
		_, err = due()
		c.Must(err)
		for _, a := range batch.Runs {
			if a.Step != "" {
				step = a
				continue
			}
			if sent[a.Job.Name]++; a.Job.Name == "well" && c.SentBody(a) != string(body) {
				t.Errorf("%s is claimed, and sends %s", a.Job.Name, c.SentBody(a))
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("claimed are %v, and the step %q", sent, step.Step)
		}
	}
	if sent["well"] != 5 || sent["listens"] != 1 || len(sent) != 2 {
		t.Errorf("claimed are %v", sent)
	}
	if err := c.Claims.ReadGiven(t.Context(), &step); err == nil || !strings.Contains(err.Error(), "cannot be opened") {
		t.Errorf("a step is given an input that cannot be opened: %v", err)
	}
	for _, why := range Column[string](c.Fixture, `SELECT kind || ': ' || reason FROM punctual.set_aside`) {
		if !strings.Contains(why, "--encrypt-payloads) cannot be opened: data key") {
			t.Errorf("set aside: %s", why)
		}
	}
	if kinds := c.Text(`SELECT string_agg(kind, ' ' ORDER BY kind) FROM punctual.set_aside`); kinds != "event run run" {
		t.Errorf("set aside are %s", kinds)
	}

	// People see what they can, and write the body anew.
	list, _, err := c.Jobs.ListJobs(t.Context(), c.Tenant, jobs.Filter{})
	c.Must(err)
	if len(list) != 7 {
		t.Errorf("%d jobs are listed", len(list))
	}
	if shown := string(c.Get("defined").Definition.Target.Body); !strings.Contains(shown, "cannot be opened") {
		t.Errorf("the body is shown as %s", shown)
	}
	_, err = c.TryEdit("defined", func(d *jobspec.Definition) { d.Description = "x" })
	if err == nil || !strings.Contains(err.Error(), "give its body again") {
		t.Errorf("an edit that keeps the body: %v", err)
	}
	c.Pause("defined")
	c.Resumed("defined")
	c.WantCount(0, "versions have what is shown in the place of the body", `
		SELECT count(*) FROM punctual.job_versions WHERE definition #>> '{target,body}' LIKE '(a payload%'`)

	// The key is there again.
	c.Exec(`INSERT INTO punctual.data_keys (id, sealed, payloads) VALUES ($1, $2, true)`, id, lost)
	c.FinishAndRelease(Unsent(step, domain.GiveBack)) // as its replica does
	ctx = Bounded(t)
	found := map[string]int{}
	for len(found) < 5 && ctx.Err() == nil {
		retryNow(c)
		// A definition is tried each minute.
		c.Exec(`UPDATE punctual.ready SET due_at = now() WHERE due_at > now() AND waits = 'turn'`)
		c.Exec(`
			UPDATE punctual.schedules SET next_run_at = scheduled_for WHERE scheduled_for < now() AND next_run_at > now()`)
		c.Exec(`UPDATE punctual.events SET turn_at = now() WHERE turn_at > now()`)
		c.FanOut()
		batch, err := claim()
		c.Must(err)
		slots, err := due()
		c.Must(err)
		for _, a := range append(batch.Runs, slots.Runs...) {
			if found[a.Job.Name+a.Step]++; a.Job.Name != "listens" && a.Step == "" && c.SentBody(a) != string(body) {
				t.Errorf("%s sends %s", a.Job.Name, c.SentBody(a))
			}
		}
	}
	c.WantCount(0, "items are set aside", `SELECT count(*) FROM punctual.set_aside`)
	edited := c.Edit("defined", func(d *jobspec.Definition) { d.Target.Body = json.RawMessage(`{"b":2}`) })
	if string(edited.Definition.Target.Body) != `{"b":2}` {
		t.Errorf("the body is %s", edited.Definition.Target.Body)
	}
}
