package events_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/events"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
)

// event returns what became of an event.
func event(c Fixture, name string, id uuid.UUID) events.EventDetails {
	c.T.Helper()
	d, err := c.Events.Get(c.T.Context(), c.Tenant, name, id, pg.Page{})
	Must(c.T, err)
	return d
}

// became returns the job, status and reason of each run of an event.
func became(c Fixture, name string, id uuid.UUID) map[string]string {
	c.T.Helper()
	all := map[string]string{}
	for _, r := range event(c, name, id).Runs {
		all[r.Job] = string(r.Status)
		if r.Reason != nil {
			all[r.Job] += " " + string(*r.Reason)
		}
	}
	return all
}

func wantMap(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestAnEventMakesARunOfEachSubscriber(t *testing.T) {
	c := NewReplica(t)
	own := func(d *jobspec.Definition) { d.Target.Body = json.RawMessage(`{"mine": true}`) }
	plain := c.Create("plain", On("invoice.paid", ""))
	c.Create("own", On("invoice.paid", ""), own)
	c.Create("german", On("invoice.paid", `{"country": ["DE", "AT"], "paid": true}`))
	c.Create("french", On("invoice.paid", `{"country": "FR"}`))
	c.Create("other", On("invoice.sent", ""))
	c.Create("paused", On("invoice.paid", ""))
	_, err := c.Jobs.PauseJob(t.Context(), c.Tenant, "paused", "", nil)
	Must(t, err)
	const body = `{"country": "DE", "paid": true, "text": "{{run}}"}`
	e := c.Emit("invoice.paid", body)
	if e.Subscribed != 5 {
		t.Errorf("%d subscribed", e.Subscribed)
	}
	c.WantCount(0, "runs", `SELECT count(*) FROM punctual.runs`)
	if n := c.FanOut(); n != 1 {
		t.Errorf("%d batches", n)
	}
	wantMap(t, "runs", became(c.Fixture, "invoice.paid", e.ID), map[string]string{
		"plain": "pending", "own": "pending", "german": "pending", "paused": "skipped paused",
	})
	if d := event(c.Fixture, "invoice.paid", e.ID); d.Made != 3 || d.Skipped != 1 || d.Unmatched != 1 || d.EndedAt == nil ||
		d.Statuses[domain.StatusPending] != 3 || string(d.Body) != body {
		t.Errorf("%+v", d)
	}
	sent := map[string]string{}
	for _, a := range c.ClaimReady(10).Runs {
		r := a.Request(domain.Origin{})
		sent[a.Job.Name] = string(r.Body)
		if a.Trigger != domain.TriggerEvent || a.CausedBy != e.ID || a.Event != "invoice.paid" ||
			a.RunID != domain.EventRunID(e.ID, a.Job.ID) || !domain.IDTime(a.RunID).Equal(domain.IDTime(e.ID)) ||
			a.DueAt.Truncate(time.Millisecond) != domain.IDTime(e.ID) {
			t.Errorf("%+v", a)
		}
		shown, err := c.Runs.GetRun(t.Context(), c.Tenant, a.RunID)
		Must(t, err)
		if s := shown.Sent.Sent(domain.Origin{}, time.Time{}); s.Headers["Punctual-Event"] != "invoice.paid" ||
			string(s.Body) != sent[a.Job.Name] {
			t.Errorf("shown: %+v", s)
		}
		c.Finish(Succeeded(a))
	}
	wantMap(t, "sent", sent, map[string]string{"plain": body, "german": body, "own": `{"mine":true}`})
	c.WantCount(0, "copies of the body", `SELECT count(*) FROM punctual.run_data WHERE body IS NOT NULL`)
	if got := c.Get(plain.ID.String()); got.State != domain.JobActive || got.NextRunAt != nil {
		t.Errorf("the job is %s, next at %v", got.State, got.NextRunAt)
	}
}

func TestSubscribersAreThoseOfTheInstantOfTheEvent(t *testing.T) {
	c := NewReplica(t)
	c.Create("left", On("a", ""))
	c.Create("paused-later", On("a", ""))
	c.Create("resumed-later", On("a", ""))
	c.Create("deleted", On("a", ""))
	c.Create("came", Never)
	pause := func(job string) {
		_, err := c.Jobs.PauseJob(t.Context(), c.Tenant, job, "", nil)
		Must(t, err)
	}
	pause("resumed-later")
	e := c.Emit("a", `1`)
	c.Edit("left", Never)
	pause("paused-later")
	_, err := c.Jobs.ResumeJob(t.Context(), c.Tenant, "resumed-later", "")
	Must(t, err)
	c.DeleteJob("deleted")
	c.Edit("came", On("a", ""))
	c.Create("new", On("a", ""))
	c.FanOut()
	wantMap(t, "runs", became(c.Fixture, "a", e.ID), map[string]string{
		"left": "pending", "paused-later": "pending", "resumed-later": "skipped paused", "deleted": "skipped job_deleted",
	})
}

// Nobody has ended the pause yet, but it was over when the event was emitted.
func TestAPauseThatIsOverSkipsNoEvent(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", On("a", ""))
	until := time.Now().Add(time.Hour)
	_, err := c.Jobs.PauseJob(t.Context(), c.Tenant, "job", "", &until)
	Must(t, err)
	c.Exec(`UPDATE punctual.jobs SET paused_until = now()`)
	e := c.Emit("a", `1`)
	c.FanOut()
	wantMap(t, "runs", became(c.Fixture, "a", e.ID), map[string]string{"job": "pending"})
}

// Several replicas, and several fan-outs of one replica, work on the same events.
func TestRacingFanOutsMakeEachRunOnce(t *testing.T) {
	c := NewReplica(t)
	const subscribers, emitted = 1200, 3
	c.Many(subscribers, "job", 0, On("a", ""))
	c.Exec(`UPDATE punctual.schedules SET scheduled_for = NULL, next_run_at = NULL, enabled = false`)
	c.Exec(`UPDATE punctual.job_versions SET tenant = $1, event = 'a'`, c.Tenant)
	var ids []uuid.UUID
	for range emitted {
		ids = append(ids, c.Emit("a", `1`).ID)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for left := true; left; {
				var err error
				if _, left, err = c.Events.FanOut(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	c.FanOut()
	for _, id := range ids {
		if d := event(c.Fixture, "a", id); d.Made != subscribers || d.Statuses[domain.StatusPending] != subscribers || d.EndedAt == nil {
			t.Errorf("%+v", d.Event)
		}
	}
	c.WantCount(subscribers*emitted, "runs", `SELECT count(*) FROM punctual.ready`)
	most := c.Count(`SELECT max(n) FROM (SELECT count(*) AS n FROM punctual.runs GROUP BY xmin::text) x`)
	if most > 500 {
		t.Errorf("a transaction has made %d runs", most)
	}
}

// A small event comes between the batches of a large one.
func TestEventsTakeTurns(t *testing.T) {
	c := NewReplica(t)
	c.Many(1100, "job", 0, On("large", ""))
	c.Exec(`UPDATE punctual.job_versions SET tenant = $1, event = 'large'`, c.Tenant)
	c.Create("small", On("small", ""))
	c.Emit("large", `1`)
	if _, left, err := c.Events.FanOut(t.Context()); err != nil || !left {
		t.Fatal(left, err)
	}
	small := c.Emit("small", `1`)
	for range 2 {
		_, _, err := c.Events.FanOut(t.Context())
		Must(t, err)
	}
	wantMap(t, "runs", became(c.Fixture, "small", small.ID), map[string]string{"small": "pending"})
	if n := c.Count(`SELECT count(*) FROM punctual.events WHERE turn_at IS NOT NULL`); n != 1 {
		t.Errorf("%d fan-outs are left", n)
	}
}

// However many events a tenant has emitted, the first of another tenant is the next but one.
func TestTenantsTakeTurnsWithTheirEvents(t *testing.T) {
	c := NewReplica(t)
	other := c
	other.Tenant = c.NewTenant("other").ID
	other.Create("quiet", On("quiet", ""))
	c.Create("busy", On("busy", ""))
	for range 50 {
		c.Emit("busy", `1`)
	}
	_, _, err := c.Events.FanOut(t.Context())
	Must(t, err)
	quiet := other.Emit("quiet", `1`)
	for range 2 {
		_, _, err := c.Events.FanOut(t.Context())
		Must(t, err)
	}
	if d := event(other.Fixture, "quiet", quiet.ID); d.Made != 1 || d.Pending {
		t.Errorf("the event of the other tenant: %+v", d.FanOut)
	}
	c.WantCount(48, "events are left", `SELECT count(*) FROM punctual.events WHERE turn_at IS NOT NULL`)
}

// Each of many filters looks at a body of many fields. Postgres ends a transaction in which that takes five seconds.
func TestABodyIsReadOnceForAllFilters(t *testing.T) {
	c := NewReplica(t)
	definitions := make([]jobspec.Definition, 500)
	for i := range definitions {
		definitions[i] = Definition(fmt.Sprint("job", i), On("big", fmt.Sprintf(`{"0": %d}`, i)))
	}
	_, err := c.CreateMany(jobs.ConflictError, definitions...)
	Must(t, err)
	var body strings.Builder
	for i := range 29_000 {
		fmt.Fprintf(&body, `,"%x":0`, i)
	}
	e := c.Emit("big", "{"+body.String()[1:]+"}")
	_, _, err = c.Events.FanOut(t.Context())
	Must(t, err)
	if d := event(c.Fixture, "big", e.ID); d.Made != 1 || d.Unmatched != 499 {
		t.Errorf("%+v", d.FanOut)
	}
}

func TestARunThatCannotBeMadeHoldsUpNoOther(t *testing.T) {
	c := NewReplica(t)
	var bad uuid.UUID
	for i := range 7 {
		job := c.Create(fmt.Sprint("job", i), On("bad", ""))
		if i == 2 {
			bad = job.ID
		}
	}
	c.Create("good", On("good", ""))
	undo := c.Before("INSERT", "runs", fmt.Sprintf(`
		IF NEW.job_id = '%s' THEN RAISE EXCEPTION 'no room'; END IF;`, bad))
	e, other := c.Emit("bad", `1`), c.Emit("good", `1`)
	_, _, err := c.Events.FanOut(t.Context())
	Must(t, err)
	_, _, err = c.Events.FanOut(t.Context())
	Must(t, err)
	if d := event(c.Fixture, "good", other.ID); d.Pending {
		t.Error("the other event waits for the one that fails")
	}
	turn := func(times int) {
		for range times {
			c.Exec(`UPDATE punctual.events SET turn_at = now() WHERE turn_at > now()`)
			_, _, err := c.Events.FanOut(t.Context())
			Must(t, err)
		}
	}
	turn(30)
	if d := event(c.Fixture, "bad", e.ID); d.Made != 6 || !d.Pending {
		t.Errorf("while one run cannot be made: %+v", d.FanOut)
	}
	undo()
	turn(3)
	if d := event(c.Fixture, "bad", e.ID); d.Made != 7 || d.Pending {
		t.Errorf("once it can: %+v", d.FanOut)
	}
}

func TestASubscriberThatIsLockedHoldsUpNoOther(t *testing.T) {
	c := NewReplica(t)
	first := c.Create("first", On("a", ""))
	c.Create("second", On("a", ""))
	e := c.Emit("a", `1`)
	stranger, err := c.Connect().Begin(t.Context())
	Must(t, err)
	Must(t, pg.Exec(t.Context(), stranger, `SELECT FROM punctual.jobs WHERE id = $1 FOR UPDATE`, first.ID))
	for range 2 {
		if wait, left, err := c.Events.FanOut(t.Context()); err != nil || !left {
			t.Fatal(wait, left, err)
		}
	}
	wantMap(t, "runs beside a lock", became(c.Fixture, "a", e.ID), map[string]string{"second": "pending"})
	Must(t, stranger.Rollback(t.Context()))
	c.FanOut()
	wantMap(t, "runs", became(c.Fixture, "a", e.ID), map[string]string{"first": "pending", "second": "pending"})
	if d := event(c.Fixture, "a", e.ID); d.Made != 2 || d.EndedAt == nil {
		t.Errorf("%+v", d.Event)
	}
}

// Half of the callers roll back.
func TestAnEventFromSQLExistsIfTheTransactionCommits(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", On("invoice.paid", `{"n": 4}`))
	role, app := c.App()
	const callers = 1000
	var all sync.WaitGroup
	for first, conn := range []*pgx.Conn{app, c.As(role), c.As(role), c.As(role)} {
		all.Go(func() {
			for i := first; i < callers; i += 4 {
				tx, err := conn.Begin(t.Context())
				Must(t, err)
				Ask[uuid.UUID](t, tx, `SELECT shop_jobs.emit('invoice.paid', body => $1)`, fmt.Sprintf(`{"n":  %d}`, i))
				if i/4%2 == 1 {
					Must(t, tx.Rollback(t.Context()))
				} else {
					Must(t, tx.Commit(t.Context()))
				}
			}
		})
	}
	all.Wait()
	c.WantCount(callers/2, "events", `SELECT count(*) FROM punctual.events WHERE emitted_by LIKE 'database:app%'`)
	if c.Exec(`DELETE FROM punctual.events WHERE body <> '{"n":  0}'`); c.Woken() {
		t.Error("the tick loop was woken without a run")
	}
	never := scheduler.LookInto{}
	c.Asked()
	if _, err := c.Claims.NextDue(t.Context(), never, false); err != nil || fmt.Sprint(c.Asked()) != "[events]" {
		t.Errorf("a look for due work does not ask for the fan-out: %v", err)
	}
	c.FanOut()
	c.WantCount(0, "runs", `SELECT count(*) FROM punctual.runs`)
	for _, refused := range []struct{ code, sql string }{
		{"PU422", `SELECT shop_jobs.emit('')`},
		{"PU422", `SELECT shop_jobs.emit(NULL)`},
		{"PU422", `SELECT shop_jobs.emit('a/b')`},
		{"PU422", `SELECT shop_jobs.emit('a', to_json(repeat('x', 262143)))`},
		{"42501", `SELECT punctual.emit_for(1, 'x', 'a', '1')`},
		{"42501", `SELECT punctual.write_event(1, 'a', '1', 'x')`},
	} {
		WantRefused(t, app, refused.code, refused.sql)
	}
}

func TestAReplayAndARerunSendTheBodyOfTheEvent(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", On("a", ""))
	c.Emit("a", `{"order": 42}`)
	c.FanOut()
	a := c.One(c.ClaimReady(10))
	c.Fixture.Finish(a, domain.Bury, domain.ReasonHTTP5xx)
	replay := c.Replay(a.RunID)
	again, err := c.For(c.Tenant).RerunRun(t.Context(), a.RunID, jobs.RerunRequest{})
	Must(t, err)
	for _, b := range c.ClaimReady(10).Runs {
		r := b.Request(domain.Origin{})
		if string(r.Body) != `{"order": 42}` || b.Event != "a" || b.RunID != replay.ID && b.RunID != again.ID {
			t.Errorf("%s sends %s", b.Trigger, r.Body)
		}
	}
}

func TestAnEventIsKeptAsLongAsItIsNeeded(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", On("a", ""))
	old := c.Clock().Add(-c.Options.FailureRetention - 48*time.Hour)
	age := func(e events.Emitted) {
		c.Exec(`UPDATE punctual.events SET id = punctual.run_id_at($2), emitted_at = $2 WHERE id = $1`, e.ID, old)
	}
	for name, keep := range map[string]string{
		"a run in ready": `WITH r AS (
			INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger, caused_by)
			SELECT punctual.run_id_at(now()), j.id, now(), now(), j.tenant, 1, 5, 'pending', 'manual', e.id
			FROM punctual.jobs j, punctual.events e RETURNING *)
			INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane) SELECT id, job_id, due_at, tenant, lane FROM r`,
		"a dead letter": `
			INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
				attempts, caused_by)
			SELECT gen_random_uuid(), j.id, j.tenant, 'job', 1, now(), 'event', 1, e.id
			FROM punctual.jobs j, punctual.events e`,
		"the fan-out": `UPDATE punctual.events SET turn_at = now(), ended_at = NULL`,
	} {
		e := c.Emit("a", `1`)
		c.Exec(`UPDATE punctual.events SET turn_at = NULL, ended_at = now()`)
		age(e)
		c.Exec(keep)
		if n, _, err := c.Events.Forget(t.Context()); err != nil || n != 0 {
			t.Errorf("%s: %d events are forgotten: %v", name, n, err)
		}
		c.Exec(`DELETE FROM punctual.ready`)
		c.Exec(`DELETE FROM punctual.dead_letters`)
		c.Exec(`UPDATE punctual.events SET turn_at = NULL, ended_at = now()`)
		if n, _, err := c.Events.Forget(t.Context()); err != nil || n != 1 {
			t.Errorf("without %s: %d events are forgotten: %v", name, n, err)
		}
	}
	c.Emit("a", `1`)
	if n, _, err := c.Events.Forget(t.Context()); err != nil || n != 0 {
		t.Errorf("%d young events are forgotten: %v", n, err)
	}
	age(c.Emit("b", `1`))
	c.Exec(`SELECT punctual.create_partitions($1::date, $1::date)`, old)
	if n, _, err := c.Events.Forget(t.Context()); err != nil || n != 0 {
		t.Errorf("%d events are forgotten whose day is kept: %v", n, err)
	}
}

func TestTheNamesOfEvents(t *testing.T) {
	c := NewReplica(t)
	c.Create("one", On("b", ""))
	c.Create("two", On("b", `{"x": 1}`))
	c.Create("three", On("d", ""))
	c.Emit("b", `1`)
	last := c.Emit("b", `1`)
	c.Emit("a", `1`)
	c.FanOut()
	found, _, err := c.Events.Names(t.Context(), c.Tenant, pg.Page{})
	Must(t, err)
	if len(found) != 3 || found[0].Name != "a" || found[1].Name != "b" || found[2].Name != "d" {
		t.Fatalf("%+v", found)
	}
	if b := found[1]; b.Subscribers != 2 || *b.LastID != last.ID || b.Events != 2 || b.Runs != 2 || b.Pending != 0 {
		t.Errorf("%+v", b)
	}
	_, next, err := c.Events.Names(t.Context(), c.Tenant, pg.Page{Limit: 2})
	Must(t, err)
	if found, _, err = c.Events.Names(t.Context(), c.Tenant, pg.Page{Limit: 2, Cursor: next}); err != nil ||
		len(found) != 1 || found[0].Name != "d" || found[0].LastID != nil {
		t.Errorf("after b: %+v, %v", found, err)
	}
	list, _, err := c.Events.List(t.Context(), c.Tenant, "b", pg.Page{})
	if err != nil || len(list) != 2 || list[0].ID != last.ID {
		t.Errorf("%+v, %v", list, err)
	}
	trial, err := c.Events.Try(t.Context(), c.Tenant, "b", json.RawMessage(`{"x": 2}`))
	if err != nil || fmt.Sprint(trial.Runs) != "[one]" || trial.Unmatched != 1 {
		t.Errorf("%+v, %v", trial, err)
	}
}

func TestAJobThatRunsAtEventsHasNoSlots(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", On("a", ""))
	if _, err := c.Letters.PlanBackfill(t.Context(), c.Tenant, letters.BackfillRequest{Job: "job"}); err == nil {
		t.Error("it can be backfilled")
	}
	if e := c.Explained("job", time.Now().Add(time.Hour)); e.Outcome != history.OutcomeNoSlot || e.NextSlot != nil {
		t.Errorf("%+v", e)
	}
	c.Emit("a", `1`)
	c.FanOut()
	c.One(c.ClaimReady(10))
	c.Date("job", jobs.DateRequest{})
	c.One(c.ClaimReady(10)) // it can be triggered all the same
}

func TestVerifyAccountsForTheSubscribersOfEvents(t *testing.T) {
	c := NewReplica(t)
	c.Create("one", On("a", ""))
	c.Create("two", On("a", `{"x": 1}`))
	c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '10 minutes'`)
	e := c.Emit("a", `{"x": 1}`)
	if said := c.Explained("one", time.Now()).Text; !strings.Contains(said, "its fan-out has yet to come to 2 subscribers") {
		t.Errorf("explain says %s", said)
	}
	if p, err := c.Events.CountPending(t.Context()); err != nil || p.Events != 1 || p.Oldest <= 0 {
		t.Errorf("%+v, %v", p, err)
	}
	f, err := c.Overview.Overview(t.Context(), c.Tenant)
	if err != nil || f.Events.Pending != 1 || f.Events.Oldest == nil {
		t.Errorf("%+v, %v", f.Events, err)
	}
	want := func(what string, wants ...string) {
		t.Helper()
		if got, _ := c.Verified(); fmt.Sprint(got) != fmt.Sprint(wants) {
			t.Errorf("%s: %q, want %q", what, got, wants)
		}
	}
	want("on its way")
	c.Exec(`UPDATE punctual.events SET turn_at = now() - interval '5 minutes'`)
	want("stuck", "overdue  x2")
	c.FanOut()
	want("fanned out")
	if n := c.Metric("punctual_events_pending"); n != "0" || c.Events.Ended() != 1 {
		t.Errorf("%s are pending, and %d have ended", n, c.Events.Ended())
	}
	two := domain.EventRunID(e.ID, c.Get("two").ID)
	c.Exec(`DELETE FROM punctual.ready WHERE run_id = $1`, two)
	c.Exec(`DELETE FROM punctual.runs WHERE id = $1`, two)
	want("a subscriber without its run", "missing two", "count  x2")
	c.Exec(`UPDATE punctual.events SET body = '{"x": 2}'`)
	want("the filter does not match", "count  x2")
	c.Exec(`UPDATE punctual.job_versions SET event = 'b' WHERE job_id = $1`, c.Get("one").ID)
	want("a run without subscription", "phantom one", "count  x2")
}

// Whatever order jobs and events come in, and whatever is edited in between, each subscriber has one row.
func TestEachSubscriberHasOneRowHoweverJobsChange(t *testing.T) {
	c := NewReplica(t)
	random := rand.New(rand.NewPCG(1, 2))
	state, want := map[string]string{}, map[uuid.UUID]map[string]string{}
	for i := range 60 {
		job := fmt.Sprint("job-", random.IntN(6))
		switch act := random.IntN(5); {
		case act == 0:
			e := c.Emit("a", `{"x": 1}`)
			want[e.ID] = map[string]string{}
			for job, is := range state {
				if is == "on" || is == "paused" {
					want[e.ID][job] = map[string]string{"on": "pending", "paused": "skipped paused"}[is]
				}
			}
		case state[job] == "":
			c.Create(job, On("a", ""))
			state[job] = "on"
		case act == 1:
			c.Edit(job, On("a", `{"x": 1}`))
			if state[job] != "paused" {
				state[job] = "on"
			}
		case act == 2 && state[job] == "on":
			_, err := c.Jobs.PauseJob(t.Context(), c.Tenant, job, "", nil)
			Must(t, err)
			state[job] = "paused"
		case act == 3 && state[job] == "paused":
			_, err := c.Jobs.ResumeJob(t.Context(), c.Tenant, job, "")
			Must(t, err)
			state[job] = "on"
		case act == 4 && state[job] == "on":
			c.Edit(job, On("a", fmt.Sprintf(`{"x": %d}`, i+2)))
			state[job] = "filtered"
		}
	}
	c.FanOut()
	for id, runs := range want {
		wantMap(t, id.String(), became(c.Fixture, "a", id), runs)
	}
	if len(want) < 5 {
		t.Errorf("%d events", len(want))
	}
}
