package links_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

func TestEachEndOfARunTriggersWhatThenSays(t *testing.T) {
	t.Parallel()
	bury := func(c Replica, reason domain.Reason) {
		o := Ended(c.Begun("load"), domain.Bury)
		o.Reason = reason
		c.FinishAndRelease(o)
	}
	const ok, bad, other = "any pending, ok pending", "any pending, bad pending", "any pending"
	for name, end := range map[string]struct {
		end  func(c Replica)
		want string
		with []Option
	}{
		"a success": {func(c Replica) { c.FinishAndRelease(Succeeded(c.Begun("load"))) }, ok, nil},
		"a success of a gated run": {func(c Replica) {
			c.FinishAndRelease(Succeeded(c.Begun("load")))
		}, ok, []Option{Forbid}},
		"an error of the target": {func(c Replica) { bury(c, domain.ReasonHTTP5xx) }, bad, nil},
		"a timeout":              {func(c Replica) { bury(c, domain.ReasonTimeout) }, bad, []Option{Forbid}},
		"an attempt that is to go on": {func(c Replica) {
			c.FinishAndRelease(Ended(c.Begun("load"), domain.RetryRun))
		}, "", nil},
		"a run that is given back": {func(c Replica) {
			c.FinishAndRelease(Ended(c.Begun("load"), domain.GiveBack))
		}, "", nil},
		"a run that expires unsent": {func(c Replica) {
			o := Ended(c.Begun("load"), domain.Expire)
			o.Reason = domain.ReasonExpired
			c.FinishAndRelease(o)
		}, "", nil},
		"a cancel before it is sent": {func(c Replica) { c.Cancel(c.Trigger("load").ID) }, other, nil},
		"the delete of its job": {func(c Replica) {
			c.Trigger("load")
			c.Must(c.Jobs.DeleteJob(t.Context(), c.Tenant, "load", nil, false))
		}, other, nil},
		"a completion by the target": {func(c Replica) {
			a := c.Begun("load")
			c.Accept(a)
			_, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
			c.Must(err)
		}, ok, []Option{ByCallback}},
		"a cancel while it is sent": {func(c Replica) {
			a := c.Begun("load")
			c.Cancel(a.RunID)
			c.FinishAndRelease(Succeeded(a))
		}, other, nil},
		"a run that replaces it": {func(c Replica) {
			a := c.Begun("load")
			c.Trigger("load")
			c.ClaimReady(10)
			c.FinishAndRelease(Ended(a, domain.Cancel))
		}, other, []Option{Replacing}},
		"an attempt that is lost for the third time": {func(c Replica) {
			c.Begun("load")
			for i := range 3 {
				c.Lose(c.ReplicaID)
				c.Recover()
				if i < 2 {
					c = AsReplica(c.Fixture)
					c.Again()
				}
			}
		}, bad, nil},
		"a target that falls silent": {func(c Replica) {
			a := c.Begun("load")
			c.Accept(a)
			c.Overdue(a.RunID)
		}, bad, []Option{ByCallback, func(d *jobspec.Definition) { d.Retry.MaxAttempts = 1 }}},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			for _, target := range []string{"ok", "bad", "any"} {
				c.Create(target)
			}
			c.Create("load", append(end.with, Then("ok", "bad failed", "any ended"))...)
			end.end(c)
			run := c.Text(`SELECT r.id::text FROM punctual.runs r JOIN punctual.jobs j ON j.id = r.job_id
				WHERE j.name = 'load' ORDER BY r.id LIMIT 1`)
			c.WantCaused(uuid.MustParse(run), end.want)
		})
	}
}

func TestAChainedRunKnowsWhatHasEnded(t *testing.T) {
	c := NewReplica(t)
	body := func(text string) Option {
		return func(d *jobspec.Definition) { d.Target.Body = json.RawMessage(text) }
	}
	c.Create("none")
	c.Create("get", func(d *jobspec.Definition) { d.Target.Method = "GET" })
	c.Create("object", body(`{"to":"{{job}}","upstream":1}`))
	c.Create("text", body(`"a text"`))
	c.Create("load", Then("none", "get", "object", "text"))
	a := c.Begun("load")
	o := Succeeded(a)
	o.Result = json.RawMessage(`{"rows":7,"form":"{{run}} \u007b\u007Brun}} \\u007b{{"}`)
	c.FinishAndRelease(o)
	upstream := fmt.Sprintf(`{"run":"%s","job":"load","status":"succeeded","reason":null,`+
		`"result":{"rows":7,"form":"{{run}} {{run}} \\u007b{{"}}`, a.RunID)
	want := map[string]string{
		"none": `{"upstream":` + upstream + `}`, "get": "", "object": `{"to":"object","upstream":` + upstream + `}`,
		"text": "a text",
	}
	b := c.ClaimReady(10)
	if len(b.Runs) != len(want) {
		t.Fatalf("%d runs, want %d", len(b.Runs), len(want))
	}
	sends := func(run domain.Assignment) {
		t.Helper()
		r := run.Request(domain.Origin{})
		got := strings.NewReplacer(" : ", ":", ", ", ",", "{ ", "{", " }", "}", `\\`, `\\`, `\u007b`, "{", `\u007B`, "{").
			Replace(string(r.Body))
		if got != want[run.Job.Name] {
			t.Errorf("%s: body %s\nwant %s", run.Job.Name, got, want[run.Job.Name])
		}
	}
	for _, run := range b.Runs {
		sends(run)
		c.Finish(Buried(run))
		c.Replay(run.RunID)
		sends(c.One(c.ClaimReady(10)))
		_, err := c.For(c.Tenant).RerunRun(t.Context(), run.RunID, jobs.RerunRequest{})
		Must(t, err)
		sends(c.One(c.ClaimReady(10)))
		if run.CausedBy != a.RunID || run.Trigger != domain.TriggerChain {
			t.Errorf("%s: %s, caused by %s", run.Job.Name, run.Trigger, run.CausedBy)
		}
	}
}

func TestAChainIsToldWhyItLacksAResult(t *testing.T) {
	c := NewReplica(t)
	c.Create("next")
	c.Create("load", Then("next"))
	o := Succeeded(c.Begun("load"))
	o.ResultNote = "it is too large"
	c.FinishAndRelease(o)
	a := c.One(c.ClaimReady(10))
	var sent struct{ Upstream map[string]any }
	c.Must(json.Unmarshal(a.Request(domain.Origin{}).Body, &sent))
	if result, has := sent.Upstream["result"]; !has || result != nil || sent.Upstream["result_note"] != o.ResultNote {
		t.Errorf("it is sent %v", sent.Upstream)
	}
}

// A run that waits may hold limits, and its end may trigger others. The replica that ends it needs no heartbeat for
// that.
func TestACancelAsksForWhatFollows(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c Replica, run uuid.UUID){
		"cancelled": func(c Replica, run uuid.UUID) {
			_, err := c.Runs.CancelRun(t.Context(), c.Tenant, run)
			Must(t, err)
		},
		"deleted": func(c Replica, _ uuid.UUID) { Must(t, c.Jobs.DeleteJob(t.Context(), c.Tenant, "load", nil, true)) },
		"replaced": func(c Replica, _ uuid.UUID) {
			c.Trigger("load")
			c.ClaimReady(10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			c.Create("report")
			c.Create("load", Replacing, Then("report ended"))
			a := c.Begun("load")
			c.Finish(Failed(a))
			c.Woken()
			c.Asked()
			end(c, a.RunID)
			c.WantCaused(a.RunID, "report pending")
			if !c.Woken() || !slices.Contains(c.Asked(), claim.ChoreLimits) {
				t.Error("the loop that claims was not woken, or limits are not released")
			}
		})
	}
}

func TestAnEndTriggersOnceHoweverOftenItIsWritten(t *testing.T) {
	c := NewReplica(t)
	c.Create("report")
	c.Create("load", Then("report"))
	a := c.Begun("load")
	for range 2 { // the second time as after a commit whose answer was lost
		c.Finish(Succeeded(a))
	}
	c.Lose(c.ReplicaID)
	c.Recover()
	c.Finish(Ended(a, domain.Bury))
	c.WantCaused(a.RunID, "report pending")
	if !c.Woken() {
		t.Error("the loop that claims was not woken")
	}
	other := AsReplica(c.Fixture)
	report := other.One(other.ClaimReady(10))
	other.FinishAndRelease(Succeeded(report))
	c.WantCaused(a.RunID, "report succeeded")
}

func TestWhatCannotBeTriggeredIsRecordedWithTheTarget(t *testing.T) {
	c := NewReplica(t)
	ctx := t.Context()
	c.Create("paused")
	_, err := c.Jobs.PauseJob(ctx, c.Tenant, "paused", "", nil)
	Must(t, err)
	c.Create("deleted")
	c.Create("gone")
	busy := c.Create("busy", Forbid)
	c.Create("load", Then("paused", "deleted", "gone", "busy"))
	a := c.Begun("load")
	active := c.Begun("busy")
	WantError(t, c.Jobs.DeleteJob(ctx, c.Tenant, "deleted", nil, false), pg.ErrState)
	Must(t, c.Jobs.DeleteJob(ctx, c.Tenant, "deleted", nil, true))
	Must(t, c.Jobs.DeleteJob(ctx, c.Tenant, "gone", nil, true))
	c.Exec(`DELETE FROM punctual.jobs WHERE name = 'gone'`)
	c.Finish(Succeeded(a))
	c.ClaimReady(10)
	c.WantCaused(a.RunID,
		"busy skipped overlap, deleted skipped job_deleted, paused skipped paused, gone skipped job_deleted")
	list, _, err := c.Runs.ListRuns(ctx, c.Tenant, runs.Filter{JobID: &busy.ID, Reason: domain.ReasonOverlap})
	Must(t, err)
	if len(list) != 1 || *list[0].BlockedBy != active.RunID || *list[0].CausedBy != a.RunID {
		t.Errorf("%+v", list)
	}
	if broken := c.Get("load").Broken; len(broken) != 2 {
		t.Errorf("broken links: %v", broken)
	}
	c.Edit("load", func(d *jobspec.Definition) { d.Description = "the links stay" })
}

// The delete of the target has not seen the run, as it was caused by a transaction that was still open.
func TestAChainedRunOfAJobThatIsDeletedMeanwhileIsNotSent(t *testing.T) {
	c := NewReplica(t)
	c.Create("report")
	c.Create("load", Then("report"))
	a := c.Begun("load")
	c.Finish(Succeeded(a))
	c.Exec(`UPDATE punctual.jobs SET state = 'deleted', named = false, deleted_at = now() WHERE name = 'report'`)
	if b := c.ClaimReady(10); len(b.Runs) > 0 {
		t.Errorf("sent: %+v", b.Runs)
	}
	c.WantCaused(a.RunID, "report cancelled job_deleted")
}

func TestRepetitionsTriggerAsWasAskedFor(t *testing.T) {
	c := NewReplica(t)
	c.Create("report")
	c.Create("load", Then("report ended"))
	dead := c.Begun("load")
	c.FinishAndRelease(Ended(dead, domain.Bury))
	end := func(id uuid.UUID, want string) {
		t.Helper()
		for _, a := range c.ClaimReady(10).Runs {
			c.FinishAndRelease(Succeeded(a))
		}
		c.WantCaused(id, want)
	}
	end(c.Replay(dead.RunID).ID, "report pending")
	for _, chain := range []bool{false, true} {
		run, err := c.For(c.Tenant).RerunRun(t.Context(), dead.RunID, jobs.RerunRequest{Chain: chain})
		Must(t, err)
		end(run.ID, map[bool]string{true: "report pending"}[chain])
	}
}

func TestLinksAreWrittenWithTheDefinition(t *testing.T) {
	c := NewReplica(t)
	ctx := t.Context()
	c.Create("b")
	c.Create("a", Then("b", "b failed"))
	links := func() string {
		t.Helper()
		return c.Text(`
			SELECT coalesce(string_agg(concat_ws(' ', a.name, b.name, l.run_when), ', ' ORDER BY l.position), '')
			FROM punctual.links l JOIN punctual.jobs a ON a.id = l.job_id JOIN punctual.jobs b ON b.id = l.target_id`)
	}
	want := func(stored, shown string) {
		t.Helper()
		if got := links(); got != stored {
			t.Errorf("stored %q, want %q", got, stored)
		}
		if got := fmt.Sprint(c.Get("a").Definition.Then); got != shown {
			t.Errorf("shown %s, want %s", got, shown)
		}
	}
	want("a b succeeded, a b failed", "[{b } {b failed}]")
	c.Edit("b", func(d *jobspec.Definition) { d.Name = "new-b" })
	want("a new-b succeeded, a new-b failed", "[{new-b } {new-b failed}]")
	if job, _ := c.Put(Definition("a", Then("new-b", "new-b failed"))); job.Version != 1 {
		t.Errorf("the same definition is version %d", job.Version)
	}
	c.Edit("a", Then("new-b ended"))
	want("a new-b ended", "[{new-b ended}]")
	v, err := c.Jobs.GetVersion(ctx, c.Tenant, "a", 2, 1)
	Must(t, err)
	entries, _, err := c.Audit.List(ctx, c.Tenant, audit.Filter{Job: "a", Page: pg.Page{Limit: 1}})
	Must(t, err)
	Must(t, c.Jobs.NameLinks(ctx, c.Tenant, entries))
	changed := v.Differences[0]
	for _, text := range []json.RawMessage{v.Definition, changed.Before, changed.After, entries[0].After} {
		if !strings.Contains(string(text), `"new-b"`) {
			t.Errorf("a former version or a change does not name the job: %s", text)
		}
	}
	_, err = c.Jobs.RestoreVersion(ctx, c.Tenant, "a", 1, nil, func(jobspec.Definition) error { return nil })
	Must(t, err)
	want("a new-b succeeded, a new-b failed", "[{new-b } {new-b failed}]")
	c.Edit("a", Then())
	want("", "[]")
	WantError(t, c.Jobs.DeleteJob(ctx, c.Tenant, "new-b", nil, false), nil)
}

// The jobs of a batch may name each other, whichever comes first, and those that exist.
func TestABatchMayNameItsOwnJobs(t *testing.T) {
	c := NewFixture(t)
	c.Create("old")
	for _, on := range []jobs.OnConflict{jobs.ConflictError, jobs.ConflictReplace} {
		_, err := c.CreateMany(on, Definition("x", Then("y", "old")), Definition("y", Then("z")), Definition("z"))
		Must(t, err)
		c.WantCount(3, "links", `SELECT count(*) FROM punctual.links`)
		if on == jobs.ConflictError {
			for _, job := range []string{"x", "y", "z"} {
				Must(t, c.Jobs.DeleteJob(t.Context(), c.Tenant, job, nil, false))
			}
			c.Exec(`DELETE FROM punctual.jobs WHERE state = 'deleted'`)
		}
	}
	results, err := c.CreateMany(jobs.ConflictReplace,
		Definition("z"), Definition("y", Then("z")), Definition("x", Then("y", "old")))
	Must(t, err)
	for _, r := range results {
		if r.Result != jobs.BatchUnchanged {
			t.Errorf("%s is %s", r.Name, r.Result)
		}
	}
	_, err = c.CreateMany(jobs.ConflictReplace, Definition("z", Then("new")), Definition("new", Then("x")))
	blames := jobspec.BlamesOf(err)
	if len(blames) != 1 || !strings.HasPrefix(blames[0].Field, "jobs[") || !strings.Contains(blames[0].Message, "circle") {
		t.Errorf("error %v, blames %v", err, blames)
	}
}

func TestLinksThatCannotBeAreRefused(t *testing.T) {
	c := NewFixture(t)
	c.Create("c")
	c.Create("b", Then("c"))
	c.Create("a", Then("b"))
	stranger := c.NewTenant("other")
	theirs, err := c.For(stranger.ID).CreateJob(t.Context(), jobs.NewJob{Definition: Definition("theirs")})
	Must(t, err)
	edits := func(o Option) func() error { return func() error { _, err := c.TryEdit("c", o); return err } }
	creates := func(o Option) func() error { return func() error { _, err := c.TryCreate("d", o); return err } }
	for _, r := range []struct {
		why    string
		write  func() error
		field  string
		reason string
	}{
		{"closes a circle", edits(Then("a")), "then[0].job", "closes a circle: c → a → b → c"},
		{"is the job itself", edits(Then(c.Get("c").ID.String())), "then[0].job", "closes a circle: c → c"},
		{"does not exist", creates(Then("a", "e")), "then[1].job", `there is no job "e"`},
		{"is unknown", creates(Then(uuid.Max.String())), "then[0].job", "there is no job"},
		{"is another tenant's", creates(Then(theirs.ID.String())), "then[0].job", "there is no job"},
	} {
		err := r.write()
		blames := jobspec.BlamesOf(err)
		if len(blames) != 1 || blames[0].Field != r.field || !strings.Contains(blames[0].Message, r.reason) {
			t.Errorf("%s: error %v, blames %v", r.why, err, blames)
		}
	}
	c.WantCount(2, "links", `SELECT count(*) FROM punctual.links`)
	c.WantCount(3, "jobs", `SELECT count(*) FROM punctual.jobs WHERE tenant = $1`, c.Tenant)
}

func TestAChainHasAtMostFiftyJobs(t *testing.T) {
	c := NewFixture(t)
	chain := func(from, to int) (all []jobspec.Definition) {
		for i := from; i < to; i++ {
			all = append(all, Definition(fmt.Sprintf("j%d", i), Then(fmt.Sprintf("j%d", i+1))))
		}
		return append(all, Definition(fmt.Sprintf("j%d", to)))
	}
	_, err := c.CreateMany(jobs.ConflictError, chain(1, 25)...)
	Must(t, err)
	_, err = c.CreateMany(jobs.ConflictError, chain(26, 51)...)
	Must(t, err)
	if _, err := c.TryEdit("j25", Then("j26")); !strings.Contains(fmt.Sprint(err), "51 jobs would follow each other") {
		t.Errorf("51 jobs: %v", err)
	}
	c.Edit("j50", Then())
	c.Edit("j25", Then("j26"))
}

// Of edits that would close a circle together, one is refused.
func TestRacingEditsCloseNoCircle(t *testing.T) {
	c := NewFixture(t)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		c.Create(name)
	}
	times := 30
	if testing.Short() {
		times = 10
	}
	for range times {
		errs := make(chan error, len(names))
		for i, name := range names {
			go func() {
				_, err := c.TryEdit(name, Then(names[(i+1)%len(names)]))
				errs <- err
			}()
		}
		refused := 0
		for range names {
			if err := <-errs; err != nil {
				if refused++; !strings.Contains(err.Error(), "closes a circle") {
					t.Fatal(err)
				}
			}
		}
		if refused != 1 {
			t.Fatalf("%d of 3 edits were refused, want 1", refused)
		}
		for _, name := range names {
			c.Edit(name, Then())
		}
	}
}

// A delete and an edit that names the job race: no link leads to a deleted job.
func TestNoRaceLeavesABrokenLink(t *testing.T) {
	c := NewFixture(t)
	c.Create("load")
	for range 20 {
		c.Create("report")
		deleted := make(chan error, 1)
		go func() {
			deleted <- c.Jobs.DeleteJob(context.WithoutCancel(t.Context()), c.Tenant, "report", nil, false)
		}()
		_, edited := c.TryEdit("load", Then("report"))
		if err := <-deleted; err == nil == (edited == nil) || err != nil && !errors.Is(err, pg.ErrState) {
			t.Fatalf("deleted: %v; edited: %v", err, edited)
		}
		c.Edit("load", Then())
		err := c.Jobs.DeleteJob(t.Context(), c.Tenant, "report", nil, false)
		if err != nil && !errors.Is(err, pg.ErrNotFound) {
			t.Fatal(err)
		}
	}
}

// A batch that ends runs of A and F holds the gate of F. Another one ends a run of B, whose end triggers F: it needs no
// gate but B's.
func TestFinishesTakeNoGateOfTheJobsThatTheyTrigger(t *testing.T) {
	c := NewReplica(t)
	c.Create("f", Forbid)
	c.Create("b", Forbid, Then("f"))
	c.Create("a", Forbid, Then("b"))
	var all []domain.Assignment
	for _, job := range []string{"a", "b", "f"} {
		all = append(all, c.Begun(job))
	}
	tx, err := c.Pool().Begin(t.Context())
	Must(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), `SELECT FROM punctual.exclusive WHERE job_id = $1 FOR NO KEY UPDATE`, all[2].Job.ID)
	Must(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM punctual.jobs WHERE id = $1 FOR UPDATE`, all[2].Job.ID)
	Must(t, err)
	if _, err := c.Claims.Finish(t.Context(), []domain.Outcome{Succeeded(all[1])}, nil); err != nil {
		t.Fatal(err)
	}
	c.WantCaused(all[1].RunID, "f pending")
}

func TestExplainFollowsAChain(t *testing.T) {
	c := NewReplica(t)
	c.Create("report")
	c.Create("load", Then("report"))
	died := c.Begun("load")
	o := Ended(died, domain.Bury)
	o.Reason, o.Error = domain.ReasonHTTP5xx, "the target answered 503"
	c.FinishAndRelease(o)
	explains := func(job string, want ...string) {
		t.Helper()
		text := c.Explained(job, c.Clock()).Text
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %s\nwant %q", job, text, part)
			}
		}
	}
	explains("report", "It was not triggered, because run "+died.RunID.String()+" of job load died at ",
		": http_5xx (the target answered 503).")
	going := c.Begun("load")
	explains("report", "It is triggered when a run of job load ends: run "+going.RunID.String()+" is running.")
	c.FinishAndRelease(Succeeded(going))
	report := c.Run(uuid.MustParse(c.Text(`SELECT id::text FROM punctual.runs WHERE caused_by = $1`, going.RunID)))
	explains("report", "Run "+report.ID.String()+" was triggered because run "+going.RunID.String(),
		" of job load succeeded at ", "; it is pending.")
}

func TestRunsAreFoundByTheirCause(t *testing.T) {
	c := NewReplica(t)
	c.Create("report")
	c.Create("mail")
	c.Create("load", Then("report", "mail"))
	all := []domain.Assignment{c.Begun("load"), c.Begun("load")}
	c.Finish(Succeeded(all[0]), Succeeded(all[1]))
	for _, a := range all {
		list, next, err := c.Runs.ListRuns(t.Context(), c.Tenant, runs.Filter{Cause: &a.RunID})
		Must(t, err)
		if len(list) != 2 || next != "" || *list[0].CausedBy != a.RunID || *list[1].CausedBy != a.RunID {
			t.Errorf("%d runs: %+v", len(list), list)
		}
	}
}

func TestVerifyFindsEndsThatTriggeredTooLittleOrTooMuch(t *testing.T) {
	c := NewReplica(t)
	c.Create("report")
	c.Create("load", Then("report"))
	first, second := c.Begun("load"), c.Begun("load")
	c.Finish(Succeeded(first), Buried(second))
	found := func(want ...string) {
		t.Helper()
		var got []string
		_, err := c.History.Verify(t.Context(), history.VerifyOptions{
			From: c.Clock().Add(-time.Hour), To: c.Clock().Add(time.Minute),
			Report: func(v history.Violation) error {
				got = append(got, fmt.Sprint(v.Kind, " ", v.Job, " ", v.Runs[0]))
				return nil
			},
		})
		Must(t, err)
		if !slices.Equal(got, want) {
			t.Errorf("violations %q, want %q", got, want)
		}
	}
	found()
	report := c.Text(`SELECT id::text FROM punctual.runs WHERE caused_by = $1`, first.RunID)
	c.Exec(`UPDATE punctual.runs SET caused_by = $2 WHERE id = $1::uuid`, report, second.RunID)
	found("chain report " + report)
	c.Exec(`DELETE FROM punctual.runs WHERE id = $1::uuid`, report)
	c.Exec(`DELETE FROM punctual.ready WHERE run_id = $1::uuid`, report)
	found("chain load " + first.RunID.String())
	c.Edit("load", Then()) // what counts is the definition that the run had
	found("chain load " + first.RunID.String())
}
