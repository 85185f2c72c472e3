package store

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

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

// then makes the end of a job's runs trigger others, given as "job" or "job when".
func then(others ...string) option {
	return func(d *domain.Definition) {
		d.Then = nil
		for _, other := range others {
			job, when, _ := strings.Cut(other, " ")
			d.Then = append(d.Then, domain.Link{Job: job, When: domain.LinkWhen(when)})
		}
	}
}

// caused returns the jobs that the end of a run has triggered, each with the status of its run and the reason of that.
func (c crud) caused(by uuid.UUID) string {
	c.t.Helper()
	return c.text(`
		SELECT coalesce(string_agg(concat_ws(' ', coalesce(j.name, 'gone'), r.status, r.reason), ', ' ORDER BY j.name), '')
		FROM punctual.runs r LEFT JOIN punctual.jobs j ON j.id = r.job_id
		WHERE r.caused_by = $1 AND r.trigger = 'chain'`, by)
}

func (c crud) wantCaused(by uuid.UUID, want string) {
	c.t.Helper()
	if got := c.caused(by); got != want {
		c.t.Errorf("run %s (%s) has triggered %q, want %q", by, c.run(by).Status, got, want)
	}
}

func TestEachEndOfARunTriggersWhatThenSays(t *testing.T) {
	bury := func(c claimer, reason domain.Reason) {
		o := ended(c.begun("load"), domain.Bury)
		o.Reason = reason
		c.finishAndRelease(o)
	}
	const ok, bad, other = "any pending, ok pending", "any pending, bad pending", "any pending"
	for name, end := range map[string]struct {
		end  func(c claimer)
		want string
		with []option
	}{
		"a success": {func(c claimer) { c.finishAndRelease(succeeded(c.begun("load"))) }, ok, nil},
		"a success of a gated run": {func(c claimer) {
			c.finishAndRelease(succeeded(c.begun("load")))
		}, ok, []option{forbid}},
		"an error of the target": {func(c claimer) { bury(c, domain.ReasonHTTP5xx) }, bad, nil},
		"a timeout":              {func(c claimer) { bury(c, domain.ReasonTimeout) }, bad, []option{forbid}},
		"an attempt that is to go on": {func(c claimer) {
			c.finishAndRelease(ended(c.begun("load"), domain.RetryRun))
		}, "", nil},
		"a run that is given back": {func(c claimer) {
			c.finishAndRelease(ended(c.begun("load"), domain.GiveBack))
		}, "", nil},
		"a run that expires unsent": {func(c claimer) {
			o := ended(c.begun("load"), domain.Expire)
			o.Reason = domain.ReasonExpired
			c.finishAndRelease(o)
		}, "", nil},
		"a cancel before it is sent": {func(c claimer) { c.cancel(c.trigger("load").ID) }, other, nil},
		"the delete of its job": {func(c claimer) {
			c.trigger("load")
			c.must(c.Jobs.DeleteJob(t.Context(), c.tenant, "load", nil, false))
		}, other, nil},
		"a completion by the target": {func(c claimer) {
			a := c.begun("load")
			c.accept(a)
			_, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
			c.must(err)
		}, ok, []option{byCallback}},
		"a cancel while it is sent": {func(c claimer) {
			a := c.begun("load")
			c.cancel(a.RunID)
			c.finishAndRelease(succeeded(a))
		}, other, nil},
		"a run that replaces it": {func(c claimer) {
			a := c.begun("load")
			c.trigger("load")
			c.claimReady(10)
			c.finishAndRelease(ended(a, domain.Cancel))
		}, other, []option{replacing}},
		"an attempt that is lost for the third time": {func(c claimer) {
			c.begun("load")
			for i := range 3 {
				c.lose(c.replica)
				c.recover()
				if i < 2 {
					c = asClaimer(c.crud)
					c.again()
				}
			}
		}, bad, nil},
		"a target that falls silent": {func(c claimer) {
			a := c.begun("load")
			c.accept(a)
			c.overdue(a.RunID)
		}, bad, []option{byCallback, func(d *domain.Definition) { d.Retry.MaxAttempts = 1 }}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			for _, target := range []string{"ok", "bad", "any"} {
				c.create(target)
			}
			c.create("load", append(end.with, then("ok", "bad failed", "any ended"))...)
			end.end(c)
			run := c.text(`SELECT r.id::text FROM punctual.runs r JOIN punctual.jobs j ON j.id = r.job_id
				WHERE j.name = 'load' ORDER BY r.id LIMIT 1`)
			c.wantCaused(uuid.MustParse(run), end.want)
		})
	}
}

func TestAChainedRunKnowsWhatHasEnded(t *testing.T) {
	c := newClaimer(t)
	body := func(text string) option {
		return func(d *domain.Definition) { d.Target.Body = json.RawMessage(text) }
	}
	c.create("none")
	c.create("get", func(d *domain.Definition) { d.Target.Method = "GET" })
	c.create("object", body(`{"to":"{{job}}","upstream":1}`))
	c.create("text", body(`"a text"`))
	c.create("load", then("none", "get", "object", "text"))
	a := c.begun("load")
	o := succeeded(a)
	o.Result = json.RawMessage(`{"rows":7,"form":"{{run}}"}`)
	c.finishAndRelease(o)
	upstream := fmt.Sprintf(`{"run":"%s","job":"load","status":"succeeded","reason":null,`+
		`"result":{"rows":7,"form":"{{run}}"}}`, a.RunID)
	want := map[string]string{
		"none": `{"upstream":` + upstream + `}`, "get": "", "object": `{"to":"object","upstream":` + upstream + `}`,
		"text": "a text",
	}
	b := c.claimReady(10)
	if len(b.Runs) != len(want) {
		t.Fatalf("%d runs, want %d", len(b.Runs), len(want))
	}
	for _, run := range b.Runs {
		r := run.Request(domain.Origin{})
		got := strings.NewReplacer(" : ", ":", ", ", ",", "{ ", "{", " }", "}").Replace(string(r.Body))
		if got != want[run.Job.Name] {
			t.Errorf("%s: body %s\nwant %s", run.Job.Name, got, want[run.Job.Name])
		}
		if run.CausedBy != a.RunID || run.Trigger != domain.TriggerChain {
			t.Errorf("%s: %s, caused by %s", run.Job.Name, run.Trigger, run.CausedBy)
		}
	}
}

// A run that waits may hold limits, and its end may trigger others. The replica that ends it needs no heartbeat for
// that.
func TestACancelAsksForWhatFollows(t *testing.T) {
	for name, end := range map[string]func(c claimer, run uuid.UUID){
		"cancelled": func(c claimer, run uuid.UUID) {
			_, err := c.Runs.CancelRun(t.Context(), c.tenant, run)
			must(t, err)
		},
		"deleted": func(c claimer, _ uuid.UUID) { must(t, c.Jobs.DeleteJob(t.Context(), c.tenant, "load", nil, true)) },
		"replaced": func(c claimer, _ uuid.UUID) {
			c.trigger("load")
			c.claimReady(10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			c.create("report")
			c.create("load", replacing, then("report ended"))
			a := c.begun("load")
			c.finish(failed(a))
			c.woken()
			c.asked()
			end(c, a.RunID)
			c.wantCaused(a.RunID, "report pending")
			if !c.woken() || !slices.Contains(c.asked(), claim.ChoreLimits) {
				t.Error("the loop that claims was not woken, or limits are not released")
			}
		})
	}
}

func TestAnEndTriggersOnceHoweverOftenItIsWritten(t *testing.T) {
	c := newClaimer(t)
	c.create("report")
	c.create("load", then("report"))
	a := c.begun("load")
	for range 2 { // the second time as after a commit whose answer was lost
		c.finish(succeeded(a))
	}
	c.lose(c.replica)
	c.recover()
	c.finish(ended(a, domain.Bury))
	c.wantCaused(a.RunID, "report pending")
	if !c.woken() {
		t.Error("the loop that claims was not woken")
	}
	other := asClaimer(c.crud)
	report := other.one(other.claimReady(10))
	other.finishAndRelease(succeeded(report))
	c.wantCaused(a.RunID, "report succeeded")
}

func TestWhatCannotBeTriggeredIsRecordedWithTheTarget(t *testing.T) {
	c := newClaimer(t)
	ctx := t.Context()
	c.create("paused")
	_, err := c.Jobs.PauseJob(ctx, c.tenant, "paused", "", nil)
	must(t, err)
	c.create("deleted")
	c.create("gone")
	busy := c.create("busy", forbid)
	c.create("load", then("paused", "deleted", "gone", "busy"))
	a := c.begun("load")
	active := c.begun("busy")
	wantError(t, c.Jobs.DeleteJob(ctx, c.tenant, "deleted", nil, false), pg.ErrState)
	must(t, c.Jobs.DeleteJob(ctx, c.tenant, "deleted", nil, true))
	must(t, c.Jobs.DeleteJob(ctx, c.tenant, "gone", nil, true))
	c.exec(`DELETE FROM punctual.jobs WHERE name = 'gone'`)
	c.finish(succeeded(a))
	c.claimReady(10)
	c.wantCaused(a.RunID,
		"busy skipped overlap, deleted skipped job_deleted, paused skipped paused, gone skipped job_deleted")
	list, _, err := c.Runs.ListRuns(ctx, c.tenant, runs.Filter{JobID: &busy.ID, Reason: domain.ReasonOverlap})
	must(t, err)
	if len(list) != 1 || *list[0].BlockedBy != active.RunID || *list[0].CausedBy != a.RunID {
		t.Errorf("%+v", list)
	}
	if broken := c.get("load").Broken; len(broken) != 2 {
		t.Errorf("broken links: %v", broken)
	}
	c.edit("load", func(d *domain.Definition) { d.Description = "the links stay" })
}

// The delete of the target has not seen the run, as it was caused by a transaction that was still open.
func TestAChainedRunOfAJobThatIsDeletedMeanwhileIsNotSent(t *testing.T) {
	c := newClaimer(t)
	c.create("report")
	c.create("load", then("report"))
	a := c.begun("load")
	c.finish(succeeded(a))
	c.exec(`UPDATE punctual.jobs SET state = 'deleted', named = false, deleted_at = now() WHERE name = 'report'`)
	if b := c.claimReady(10); len(b.Runs) > 0 {
		t.Errorf("sent: %+v", b.Runs)
	}
	c.wantCaused(a.RunID, "report cancelled job_deleted")
}

func TestRepetitionsTriggerAsWasAskedFor(t *testing.T) {
	c := newClaimer(t)
	c.create("report")
	c.create("load", then("report ended"))
	dead := c.begun("load")
	c.finishAndRelease(ended(dead, domain.Bury))
	end := func(id uuid.UUID, want string) {
		t.Helper()
		for _, a := range c.claimReady(10).Runs {
			c.finishAndRelease(succeeded(a))
		}
		c.wantCaused(id, want)
	}
	end(c.replay(dead.RunID).ID, "report pending")
	for _, chain := range []bool{false, true} {
		run, err := c.For(c.tenant).RerunRun(t.Context(), dead.RunID, jobs.RerunRequest{Chain: chain})
		must(t, err)
		end(run.ID, map[bool]string{true: "report pending"}[chain])
	}
}

func TestLinksAreWrittenWithTheDefinition(t *testing.T) {
	c := newClaimer(t)
	ctx := t.Context()
	c.create("b")
	c.create("a", then("b", "b failed"))
	links := func() string {
		t.Helper()
		return c.text(`
			SELECT coalesce(string_agg(concat_ws(' ', a.name, b.name, l.run_when), ', ' ORDER BY l.position), '')
			FROM punctual.links l JOIN punctual.jobs a ON a.id = l.job_id JOIN punctual.jobs b ON b.id = l.target_id`)
	}
	want := func(stored, shown string) {
		t.Helper()
		if got := links(); got != stored {
			t.Errorf("stored %q, want %q", got, stored)
		}
		if got := fmt.Sprint(c.get("a").Definition.Then); got != shown {
			t.Errorf("shown %s, want %s", got, shown)
		}
	}
	want("a b succeeded, a b failed", "[{b } {b failed}]")
	c.edit("b", func(d *domain.Definition) { d.Name = "new-b" })
	want("a new-b succeeded, a new-b failed", "[{new-b } {new-b failed}]")
	if job, _ := c.put(definition("a", then("new-b", "new-b failed"))); job.Version != 1 {
		t.Errorf("the same definition is version %d", job.Version)
	}
	c.edit("a", then("new-b ended"))
	want("a new-b ended", "[{new-b ended}]")
	v, err := c.Jobs.GetVersion(ctx, c.tenant, "a", 2, 1)
	must(t, err)
	entries, _, err := c.Audit.List(ctx, c.tenant, audit.Filter{Job: "a", Page: pg.Page{Limit: 1}})
	must(t, err)
	must(t, c.Jobs.NameLinks(ctx, c.tenant, entries))
	changed := v.Differences[0]
	for _, text := range []json.RawMessage{v.Definition, changed.Before, changed.After, entries[0].After} {
		if !strings.Contains(string(text), `"new-b"`) {
			t.Errorf("a former version or a change does not name the job: %s", text)
		}
	}
	_, err = c.Jobs.RestoreVersion(ctx, c.tenant, "a", 1, nil, func(domain.Definition) error { return nil })
	must(t, err)
	want("a new-b succeeded, a new-b failed", "[{new-b } {new-b failed}]")
	c.edit("a", then())
	want("", "[]")
	wantError(t, c.Jobs.DeleteJob(ctx, c.tenant, "new-b", nil, false), nil)
}

// The jobs of a batch may name each other, whichever comes first, and those that exist.
func TestABatchMayNameItsOwnJobs(t *testing.T) {
	c := newCRUD(t)
	c.create("old")
	for _, on := range []jobs.OnConflict{jobs.ConflictError, jobs.ConflictReplace} {
		_, err := c.createMany(on, definition("x", then("y", "old")), definition("y", then("z")), definition("z"))
		must(t, err)
		c.wantCount(3, "links", `SELECT count(*) FROM punctual.links`)
		if on == jobs.ConflictError {
			for _, job := range []string{"x", "y", "z"} {
				must(t, c.Jobs.DeleteJob(t.Context(), c.tenant, job, nil, false))
			}
			c.exec(`DELETE FROM punctual.jobs WHERE state = 'deleted'`)
		}
	}
	results, err := c.createMany(jobs.ConflictReplace,
		definition("z"), definition("y", then("z")), definition("x", then("y", "old")))
	must(t, err)
	for _, r := range results {
		if r.Result != jobs.BatchUnchanged {
			t.Errorf("%s is %s", r.Name, r.Result)
		}
	}
	_, err = c.createMany(jobs.ConflictReplace, definition("z", then("new")), definition("new", then("x")))
	blames := domain.BlamesOf(err)
	if len(blames) != 1 || !strings.HasPrefix(blames[0].Field, "jobs[") || !strings.Contains(blames[0].Message, "circle") {
		t.Errorf("error %v, blames %v", err, blames)
	}
}

func TestLinksThatCannotBeAreRefused(t *testing.T) {
	c := newCRUD(t)
	c.create("c")
	c.create("b", then("c"))
	c.create("a", then("b"))
	stranger := c.newTenant("other")
	theirs, err := c.For(stranger.ID).CreateJob(t.Context(), jobs.NewJob{Definition: definition("theirs")})
	must(t, err)
	edits := func(o option) func() error { return func() error { _, err := c.tryEdit("c", o); return err } }
	creates := func(o option) func() error { return func() error { _, err := c.tryCreate("d", o); return err } }
	for _, r := range []struct {
		why    string
		write  func() error
		field  string
		reason string
	}{
		{"closes a circle", edits(then("a")), "then[0].job", "closes a circle: c → a → b → c"},
		{"is the job itself", edits(then(c.get("c").ID.String())), "then[0].job", "closes a circle: c → c"},
		{"does not exist", creates(then("a", "e")), "then[1].job", `there is no job "e"`},
		{"is unknown", creates(then(uuid.Max.String())), "then[0].job", "there is no job"},
		{"is another tenant's", creates(then(theirs.ID.String())), "then[0].job", "there is no job"},
	} {
		err := r.write()
		blames := domain.BlamesOf(err)
		if len(blames) != 1 || blames[0].Field != r.field || !strings.Contains(blames[0].Message, r.reason) {
			t.Errorf("%s: error %v, blames %v", r.why, err, blames)
		}
	}
	c.wantCount(2, "links", `SELECT count(*) FROM punctual.links`)
	c.wantCount(3, "jobs", `SELECT count(*) FROM punctual.jobs WHERE tenant = $1`, c.tenant)
}

func TestAChainHasAtMostFiftyJobs(t *testing.T) {
	c := newCRUD(t)
	chain := func(from, to int) (all []domain.Definition) {
		for i := from; i < to; i++ {
			all = append(all, definition(fmt.Sprintf("j%d", i), then(fmt.Sprintf("j%d", i+1))))
		}
		return append(all, definition(fmt.Sprintf("j%d", to)))
	}
	_, err := c.createMany(jobs.ConflictError, chain(1, 25)...)
	must(t, err)
	_, err = c.createMany(jobs.ConflictError, chain(26, 51)...)
	must(t, err)
	if _, err := c.tryEdit("j25", then("j26")); !strings.Contains(fmt.Sprint(err), "51 jobs would follow each other") {
		t.Errorf("51 jobs: %v", err)
	}
	c.edit("j50", then())
	c.edit("j25", then("j26"))
}

// Of edits that would close a circle together, one is refused.
func TestRacingEditsCloseNoCircle(t *testing.T) {
	c := newCRUD(t)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		c.create(name)
	}
	times := 30
	if testing.Short() {
		times = 10
	}
	for range times {
		errs := make(chan error, len(names))
		for i, name := range names {
			go func() {
				_, err := c.tryEdit(name, then(names[(i+1)%len(names)]))
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
			c.edit(name, then())
		}
	}
}

// A delete and an edit that names the job race: no link leads to a deleted job.
func TestNoRaceLeavesABrokenLink(t *testing.T) {
	c := newCRUD(t)
	c.create("load")
	for range 20 {
		c.create("report")
		deleted := make(chan error, 1)
		go func() {
			deleted <- c.Jobs.DeleteJob(context.WithoutCancel(t.Context()), c.tenant, "report", nil, false)
		}()
		_, edited := c.tryEdit("load", then("report"))
		if err := <-deleted; err == nil == (edited == nil) || err != nil && !errors.Is(err, pg.ErrState) {
			t.Fatalf("deleted: %v; edited: %v", err, edited)
		}
		c.edit("load", then())
		err := c.Jobs.DeleteJob(t.Context(), c.tenant, "report", nil, false)
		if err != nil && !errors.Is(err, pg.ErrNotFound) {
			t.Fatal(err)
		}
	}
}

// A batch that ends runs of A and F holds the gate of F. Another one ends a run of B, whose end triggers F: it needs no
// gate but B's.
func TestFinishesTakeNoGateOfTheJobsThatTheyTrigger(t *testing.T) {
	c := newClaimer(t)
	c.create("f", forbid)
	c.create("b", forbid, then("f"))
	c.create("a", forbid, then("b"))
	var all []domain.Assignment
	for _, job := range []string{"a", "b", "f"} {
		all = append(all, c.begun(job))
	}
	tx, err := c.Pool().Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), `SELECT FROM punctual.exclusive WHERE job_id = $1 FOR NO KEY UPDATE`, all[2].Job.ID)
	must(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM punctual.jobs WHERE id = $1 FOR UPDATE`, all[2].Job.ID)
	must(t, err)
	if _, err := c.Claims.Finish(t.Context(), []domain.Outcome{succeeded(all[1])}, nil); err != nil {
		t.Fatal(err)
	}
	c.wantCaused(all[1].RunID, "f pending")
}

func TestExplainFollowsAChain(t *testing.T) {
	c := newClaimer(t)
	c.create("report")
	c.create("load", then("report"))
	died := c.begun("load")
	o := ended(died, domain.Bury)
	o.Reason, o.Error = domain.ReasonHTTP5xx, "the target answered 503"
	c.finishAndRelease(o)
	explains := func(job string, want ...string) {
		t.Helper()
		text := c.explained(job, c.now()).Text
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %s\nwant %q", job, text, part)
			}
		}
	}
	explains("report", "It was not triggered, because run "+died.RunID.String()+" of job load died at ",
		": http_5xx (the target answered 503).")
	going := c.begun("load")
	explains("report", "It is triggered when a run of job load ends: run "+going.RunID.String()+" is running.")
	c.finishAndRelease(succeeded(going))
	report := c.run(uuid.MustParse(c.text(`SELECT id::text FROM punctual.runs WHERE caused_by = $1`, going.RunID)))
	explains("report", "Run "+report.ID.String()+" was triggered because run "+going.RunID.String(),
		" of job load succeeded at ", "; it is pending.")
}

func TestRunsAreFoundByTheirCause(t *testing.T) {
	c := newClaimer(t)
	c.create("report")
	c.create("mail")
	c.create("load", then("report", "mail"))
	all := []domain.Assignment{c.begun("load"), c.begun("load")}
	c.finish(succeeded(all[0]), succeeded(all[1]))
	for _, a := range all {
		list, next, err := c.Runs.ListRuns(t.Context(), c.tenant, runs.Filter{Cause: &a.RunID})
		must(t, err)
		if len(list) != 2 || next != "" || *list[0].CausedBy != a.RunID || *list[1].CausedBy != a.RunID {
			t.Errorf("%d runs: %+v", len(list), list)
		}
	}
}

func TestVerifyFindsEndsThatTriggeredTooLittleOrTooMuch(t *testing.T) {
	c := newClaimer(t)
	c.create("report")
	c.create("load", then("report"))
	first, second := c.begun("load"), c.begun("load")
	c.finish(succeeded(first), ended(second, domain.Bury))
	found := func(want ...string) {
		t.Helper()
		var got []string
		_, err := c.History.Verify(t.Context(), history.VerifyOptions{
			From: c.now().Add(-time.Hour), To: c.now().Add(time.Minute),
			Report: func(v history.Violation) error {
				got = append(got, fmt.Sprint(v.Kind, " ", v.Job, " ", v.Runs[0]))
				return nil
			},
		})
		must(t, err)
		if !slices.Equal(got, want) {
			t.Errorf("violations %q, want %q", got, want)
		}
	}
	found()
	report := c.text(`SELECT id::text FROM punctual.runs WHERE caused_by = $1`, first.RunID)
	c.exec(`UPDATE punctual.runs SET caused_by = $2 WHERE id = $1::uuid`, report, second.RunID)
	found("chain report " + report)
	c.exec(`DELETE FROM punctual.runs WHERE id = $1::uuid`, report)
	c.exec(`DELETE FROM punctual.ready WHERE run_id = $1::uuid`, report)
	found("chain load " + first.RunID.String())
	c.edit("load", then()) // what counts is the definition that the run had
	found("chain load " + first.RunID.String())
}
