package store_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/claim"
	"punctual/store/freeze"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/limits"
	"punctual/store/pg"
	"punctual/store/runs"
)

// What the jobs of the model have in common, in hours.
const (
	modelRetry    = 1   // the longest backoff
	modelAfter    = 3   // max_backoff, which a Retry-After asks for
	modelSilence  = 1   // heartbeat_timeout
	modelDuration = 3   // max_duration
	modelWorkflow = 5   // the same of a workflow
	modelParked   = 1e6 // until a run at its gate or limit is looked at again: it is not
	modelExpiry   = 2   // expires_after of an approval
	modelFills    = 2   // how many past slots a job has, one a day
	modelPending  = 2   // max_pending_runs of a job that is edited to queue
	modelGuards   = 8   // for which the number of a dated run that has left guards its key; it is a day
	modelNoon     = 12  // hours after the beginning, at which a job has its slots
	modelSides    = 2   // how many kinds of jobs a filter can select
	modelGrace    = 1   // for steps that clean up, after max_duration; it is five minutes
)

// modelEvent is something that happens. Each kind uses some of the fields.
type modelEvent struct {
	do           string
	job, replica int
	run, of      uuid.UUID // the run that it makes, or is about; the run made again, or the skip that a slot may become
	claim        int       // which claim of the run it is about: the fence
	with         string    // how an attempt ended, who is frozen, what becomes of a dated run with the key; or a policy
	hours        int       // that pass, or until a dated run; or the limit
	key, seq     int       // of a dated run; seq 0: none. key: or an event's value, max_attempts, a version, a side
	latest       int       // hours for which replacements may put it off; 0: no bound. Of an edit: when slots are
	due          bool      // a slot is due when the job is edited
	from, set    int       // steps of a rerun that keeps some: which runs again, and which is taken as succeeded; -1: none
	made         map[modelCause]uuid.UUID
	filled       map[modelSlot]uuid.UUID // the runs that a backfill has made
}

// What an outcome means: that the attempt failed with a reason, or the end of the attempt.
var (
	modelFailures = map[string]domain.Reason{
		"500": domain.ReasonHTTP5xx, "503": domain.ReasonHTTP5xx, // with a Retry-After
		"timeout": domain.ReasonTimeout, "connect": domain.ReasonConnect,
	}
	modelEnds = map[string]modelEnd{
		"200":         {status: domain.StatusSucceeded},
		"202":         {status: domain.StatusSucceeded},
		"410":         {domain.StatusDead, domain.ReasonGone, domain.AttemptFailed},
		"interrupted": {status: domain.StatusRetrying, outcome: domain.AttemptInterrupted},
		"given back":  {status: domain.StatusPending},
		"expired":     {status: domain.StatusSkipped, reason: domain.ReasonExpired},
		"begun":       {status: domain.StatusSucceeded},
		"cancelled":   {domain.StatusCancelled, domain.ReasonCancelled, domain.AttemptCancelled},
	}
)

// lived is a store and its model. The same events happen to both.
type lived struct {
	Replica
	model    model
	jobs     []jobs.Record
	versions [][]int32 // of jobs: the numbers of the versions that the model knows
	reports  bool      // targets may end attempts in SQL
	replicas []uuid.UUID
	began    time.Time
	slots    int
	held     []*sending            // attempts whose outcomes are not written, also those of lost replicas
	over     []*sending            // attempts whose outcomes were written
	fences   map[uuid.UUID][]int64 // fencing tokens of each run, by claim
	highest  map[uuid.UUID]int64   // fencing token of each job
	names    []string              // ids, and what people call them
	log      []string
	wrong    string // what is wrong, whatever the model says
}

// sending is an attempt in the hands of a replica.
type sending struct {
	domain.Assignment
	claim   int
	started time.Time
	expired bool // nothing may be sent
	outcome domain.Outcome
	with    string
}

func (l *lived) begin(seed uint64) {
	l.Exec(`TRUNCATE punctual.changes, punctual.runs, punctual.run_data, punctual.attempts, punctual.ready, punctual.claims,
		punctual.cancels, punctual.dead_letters, punctual.operations, punctual.dated, punctual.dated_sequences,
		punctual.limits, punctual.reports, punctual.jobs CASCADE`)
	l.Exec(`DELETE FROM punctual.replicas`)
	l.Unfreeze(l.Tenant)
	l.Unfreeze(freeze.Deployment)
	*l = lived{
		Replica: l.Replica, model: model{limit: modelBound{most: 1}, guards: map[modelKey]modelGuard{}},
		began:  l.Clock().Truncate(time.Second),
		fences: map[uuid.UUID][]int64{}, highest: map[uuid.UUID]int64{}, reports: seed%2 == 0,
	}
	l.Exec(`UPDATE punctual.tenants SET reports_since = CASE WHEN $1 THEN now() - interval '1 min' END`, l.reports)
	l.Renewed()
	l.Must(l.limit(l.model.limit.most))
	for base := range modelJobs {
		l.model.create(base)
		l.create(l.model.jobs[base])
	}
	for range 3 {
		l.replicas = append(l.replicas, l.join())
	}
}

// create creates the next job of the model.
func (l *lived) create(j modelJob) {
	name := fmt.Sprintf("job%d-%s", j.base, j.policy)
	links := pg.Column(j.then, func(to modelLink) string {
		return l.jobs[to.job].Definition.Name + " " + string(to.when)
	})
	l.jobs = append(l.jobs, l.Create(name, l.defined(j.modelDefinition, j.base), Then(links...)))
	l.versions = append(l.versions, []int32{1})
	if j.missed { // the first claim would make it
		l.Exec(`INSERT INTO punctual.exclusive (job_id, gated) VALUES ($1, false)`, l.jobs[len(l.jobs)-1].ID)
	}
	l.call(l.jobs[len(l.jobs)-1].ID, fmt.Sprintf("%s(%d)", name, len(l.jobs)))
}

// defined is a definition as the model has it, of a job with one of its names.
func (l *lived) defined(as *modelDefinition, base int) Option {
	return func(d *jobspec.Definition) {
		as.define(d, l.began)
		Labelled("side", fmt.Sprint(base%modelSides))(d)
	}
}

// limit sets how many runs may hold the limit at once; 0: no bound. Below 0 it is a rate: one run in an hour. For the
// store it is one in a second: see hourly.
func (l *lived) limit(most int) error {
	to := limits.Settings{MaxRunning: &most}
	if most <= 0 {
		to = limits.Settings{MaxStartsPerSecond: new(map[bool]int{true: 1, false: 100_000}[most < 0])}
	}
	_, _, err := l.Limits.Put(l.T.Context(), l.Tenant, modelLimit, to)
	return err
}

// join registers a replica.
func (l *lived) join() uuid.UUID {
	id := AsReplica(l.Fixture).ReplicaID
	l.call(id, fmt.Sprintf("replica%d", len(l.names)/2))
	return id
}

func (l *lived) call(id uuid.UUID, name string) { l.names = append(l.names, id.String(), name) }

// do lets an event happen to the store and to the model. It returns in what they differ afterwards.
func (l *lived) do(e modelEvent) string {
	before := l.model
	l.Exec(`UPDATE punctual.ready SET due_at = now()
		WHERE waits = 'turn' AND waits_on IS NOT NULL AND due_at BETWEEN now() - interval '30 min' AND now()`)
	due, start := l.due(), l.Clock()
	l.Woken()
	l.Asked()
	got := refusalOf(l.happens(&e))
	l.hourly(start)
	l.wakes(e, due)
	l.advance()
	l.endPauses()
	e.made = l.made()
	l.release()
	_, err := l.Claims.FreeGates(l.T.Context())
	l.Must(err)
	after, err := transition(before, e)
	want := refusalOf(err)
	if err != nil {
		after = before
	}
	l.model = after
	if of := &l.versions[e.job]; len(after.jobs[e.job].versions) > len(*of) {
		*of = append(*of, l.Get(l.jobs[e.job].ID.String()).Version)
	}
	for _, r := range after.runs {
		if before.run(r.id) == nil {
			l.call(r.id, fmt.Sprintf("run%d", len(after.runs)))
		}
	}
	l.log = append(l.log, fmt.Sprintf("%d h: %s %s", before.now, l.said(e), want))
	if got != want {
		return fmt.Sprintf("the store says %q, and the model %q", got, want)
	}
	return l.wrong + differing(l.modelled(), l.stored())
}

// hourly puts off by an hour what the rate of the limit has put off by a second since an instant.
func (l *lived) hourly(since time.Time) {
	if l.model.limit.rated {
		l.Exec(`
			WITH l AS (
			    UPDATE punctual.limits SET starts_at = now() + interval '1 hour' WHERE starts_at > $1 RETURNING starts_at)
			UPDATE punctual.ready y SET due_at = l.starts_at FROM l
			WHERE y.waits = 'turn' AND y.waits_on IS NOT NULL AND y.due_at > $1`, since)
	}
}

// release sets due what the limit has room for. Of those that a rate has put off, it lets in one after the other.
func (l *lived) release() {
	for left := true; left; {
		_, err := l.Claims.ReleaseLimits(l.T.Context())
		l.Must(err)
		left = l.model.limit.rated && l.Count(`
			SELECT count(*) FROM punctual.ready y JOIN punctual.limits l ON y.waits_on = l.name
			WHERE y.waits = 'limit' AND l.starts_at > now()`) > 0
	}
}

// made are the runs that runs and events have caused.
func (l *lived) made() map[modelCause]uuid.UUID {
	made := map[modelCause]uuid.UUID{}
	for _, run := range Column[[3]string](l.Fixture, `
		SELECT ARRAY[coalesce(parent_run, caused_by)::text, id::text, coalesce(substr(step, 5), job_id::text)]
		FROM punctual.runs WHERE step IS NOT NULL OR trigger IN ('chain', 'event')`) {
		job := slices.IndexFunc(l.jobs, func(j jobs.Record) bool { return j.ID.String() == run[2] })
		if step, err := strconv.Atoi(run[2]); err == nil {
			job = -1 - step
		}
		made[modelCause{uuid.MustParse(run[0]), job}] = uuid.MustParse(run[1])
	}
	return made
}

// advance lets workflows go on that somebody has marked, and then looks at all of them. Of those none should have stood
// still, but for one whose job was deleted while a replica had its approval: it is looked at once that waits.
func (l *lived) advance() {
	if !l.Wants(claim.ChoreWorkflows) && l.Count(`SELECT count(*) FROM punctual.workflows WHERE due`) > 0 {
		l.wrong += "a workflow is due, and nobody is asked to look\n"
	}
	before := l.Workflows.StoodStill()
	for _, all := range []bool{false, true} {
		if all {
			l.Exec(`UPDATE punctual.workflows SET looked_at = now() - interval '1 hour'`)
		}
		for left := true; left; {
			var err error
			_, left, err = l.Workflows.Advance(l.T.Context())
			l.Must(err)
		}
	}
	deleted := slices.ContainsFunc(l.model.jobs, func(j modelJob) bool { return j.deleted })
	if l.Workflows.StoodStill() > before && !deleted {
		l.wrong += "a workflow stood still\n"
	}
}

// endPauses ends the pauses whose time is over.
func (l *lived) endPauses() {
	for left := l.Count(`SELECT count(*) FROM punctual.jobs WHERE paused_until <= now()`) > 0; left; {
		wait, more, err := l.Jobs.EndDuePauses(l.T.Context())
		l.Must(err)
		left = more && wait == 0
	}
	l.FitDated()
}

// due are the runs that a claim may take now.
func (l *lived) due() []uuid.UUID {
	return Column[uuid.UUID](l.Fixture, `SELECT run_id FROM punctual.waiting
		WHERE waits = 'turn' AND due_at <= now()`)
}

// wakes finds fault with an event that makes runs due and wakes nobody. After a claim its replica looks again.
func (l *lived) wakes(e modelEvent, before []uuid.UUID) {
	if e.do == "pass" || e.do == "slot" || strings.HasPrefix(e.do, "claim") || l.Woken() {
		return
	}
	for _, run := range l.due() {
		if !slices.Contains(before, run) {
			l.wrong += fmt.Sprintf("%s is due, and nobody is woken\n", run)
		}
	}
}

// differing returns the lines that only one of the two has.
func differing(model, store []string) (text string) {
	for _, side := range []struct {
		name       string
		has, lacks []string
	}{{"model", model, store}, {"store", store, model}} {
		for _, line := range side.has {
			if !slices.Contains(side.lacks, line) {
				text += side.name + ": " + line + "\n"
			}
		}
	}
	return text
}

func (l *lived) said(e modelEvent) string {
	text := e.do
	switch e.do {
	case "limit":
		text += fmt.Sprintf(" %d", e.hours)
	case "emit":
		text += fmt.Sprintf(" value %d", e.key)
	case "date", "move", "undate":
		text += fmt.Sprintf(" %s key %d in %d h, sequence %d, not after %d h", l.jobs[e.job].Definition.Name, e.key, e.hours,
			e.seq, e.latest)
	case "edit":
		text += fmt.Sprintf(" %s %d attempts, slots at %d, one is due: %t", l.jobs[e.job].Definition.Name, e.key, e.latest,
			e.due)
	case "slot", "trigger", "pause", "resume", "delete", "create", "backfill", "roll back":
		text += fmt.Sprintf(" %s %d %d", l.jobs[e.job].Definition.Name, e.hours, e.key)
	case "pause many", "resume many":
		text += fmt.Sprintf(" of side %d, %d h", e.key, e.hours)
	case "claim", "claim ordered", "take over":
		text += " " + l.replicas[e.replica].String()
	case "pass":
		text += fmt.Sprintf(" %d h", e.hours)
	}
	if e.claim > 0 {
		text += fmt.Sprintf(" claim %d", e.claim)
	}
	for _, id := range []uuid.UUID{e.run, e.of} {
		if id != uuid.Nil {
			text += " " + id.String()
		}
	}
	return text + " " + e.with
}

func refusalOf(err error) string {
	if active, is := errors.AsType[*jobs.ActiveRunError](err); is {
		return "active " + active.Run.String()
	}
	_, late := errors.AsType[*runs.SupersededError](err)
	late = late || IsCode(err, "PU409")
	refusal, refused := errors.AsType[*jobspec.Refusal](err)
	switch {
	case err == nil:
		return ""
	case late:
		return errSuperseded.Error()
	case refused && (refusal.Code == "limit" || refusal.Code == "run_token"):
		return refusal.Code
	case errors.Is(err, store.ErrState), errors.Is(err, store.ErrNotFound):
		return errBadState.Error()
	}
	return err.Error()
}

// happens lets an event happen to the store, and adds to it what only the store knows: the ids of new runs.
func (l *lived) happens(e *modelEvent) error {
	ctx := l.T.Context()
	var run runs.Run
	var err error
	switch e.do {
	case "pass":
		l.pass(time.Duration(e.hours) * time.Hour)
	case "freeze":
		whose := map[string]int32{"tenant": l.Tenant, "deployment": freeze.Deployment}
		if of, is := whose[e.with]; is {
			_, err = l.Freezes.Freeze(ctx, of, "")
		} else {
			_, err = l.Freezes.Unfreeze(ctx, whose[l.model.frozen], "")
		}
	case "emit":
		e.run = l.Emit(modelEventName, fmt.Sprintf(`{"value": %d}`, e.key)).ID
		l.call(e.run, fmt.Sprintf("event%d", len(l.names)))
		l.FanOut()
	case "create":
		after := l.model
		after.jobs = slices.Clone(after.jobs)
		after.create(l.model.jobs[e.job].base)
		l.create(after.jobs[len(after.jobs)-1])
	case "delete":
		err = l.Jobs.DeleteJob(ctx, l.Tenant, l.jobs[e.job].ID.String(), nil, true)
		l.FitDated()
		for _, id := range Column[uuid.UUID](l.Fixture, `
			SELECT id FROM punctual.runs WHERE job_id = $1 AND reason = 'job_deleted' AND skipped_first IS NOT NULL`,
			l.jobs[e.job].ID) {
			e.of = id
		}
	case "pause":
		var until *time.Time
		if e.hours > 0 {
			until = new(l.Clock().Add(time.Duration(e.hours) * time.Hour))
		}
		_, err = l.Jobs.PauseJob(ctx, l.Tenant, l.jobs[e.job].ID.String(), "", until)
	case "pause many", "resume many":
		l.many(*e)
	case "edit":
		l.slot(e, e.due && !l.model.jobs[e.job].paused, func() {
			_, err = l.TryEdit(l.jobs[e.job].ID.String(), func(d *jobspec.Definition) {
				*d = Definition(d.Name, l.defined(e.edited(l.model.jobs[e.job]), l.model.jobs[e.job].base))
			})
		})
	case "roll back":
		_, err = l.Jobs.RestoreVersion(ctx, l.Tenant, l.jobs[e.job].ID.String(), l.versions[e.job][e.key], nil,
			func(jobspec.Definition) error { return nil })
	case "backfill":
		err = l.backfill(*e)
	case "operate":
		e.filled = l.operate()
	case "resume":
		_, err = l.Jobs.ResumeJob(ctx, l.Tenant, l.jobs[e.job].ID.String(), "")
		l.FitDated()
	case "limit":
		err = l.limit(e.hours)
	case "date", "move", "undate":
		e.run, err = l.date(*e)
	case "slot":
		l.slot(e, true, func() { l.take(l.at(e.replica).Claim(10, false)) })
	case "trigger":
		run, err = l.For(l.Tenant).TriggerJob(ctx, l.jobs[e.job].ID.String(), jobs.TriggerRequest{})
		e.run = run.ID
	case "rerun":
		run, err = l.For(l.Tenant).RerunRun(ctx, e.of, l.rerun(*e))
		e.run = run.ID
	case "approve", "reject":
		_, err = l.Runs.Decide(ctx, l.Tenant, e.run, e.do == "approve", "")
	case "replay":
		run, err = l.For(l.Tenant).ReplayDeadLetter(ctx, e.of, "")
		e.run = run.ID
	case "claim":
		l.take(l.at(e.replica).ClaimWaiting(domain.WorkReady, 100))
	case "claim ordered":
		l.take(l.at(e.replica).ClaimWaiting(domain.WorkOrdered, 100))
	case "answer":
		return l.answer(e)
	case "beat", "complete", "report", "report final":
		token := l.token(e)
		switch e.do {
		case "beat":
			_, err = l.Claims.HeartbeatRun(ctx, e.run, token, nil)
		case "complete":
			_, err = l.Runs.CompleteRun(ctx, e.run, token, nil)
		default:
			_, err = l.Runs.FailRun(ctx, e.run, token, "it is broken", e.do == "report")
		}
	case "tell success", "tell failure":
		err = l.tell(*e)
	case "listen":
		l.Exec(`UPDATE punctual.deployment SET back_at = '-infinity'`)
		l.Exec(`UPDATE punctual.replicas SET renewed_at = now()`)
		l.Listen()
	case "take over":
		l.takeOver(e.replica)
	case "cancel":
		_, err = l.Runs.CancelRun(ctx, l.Tenant, e.run)
	}
	return err
}

// many pauses or resumes the jobs of a side.
func (l *lived) many(e modelEvent) {
	change := Changing(jobs.PauseMany, jobs.Filter{Labels: map[string]string{"side": fmt.Sprint(e.key)}})
	if e.do == "resume many" {
		change.Action = jobs.ResumeMany
	} else if e.hours > 0 {
		change.Until = new(l.Clock().Add(time.Duration(e.hours) * time.Hour))
	}
	l.StartJobs(change)
	for l.Count(`SELECT count(*) FROM punctual.operations WHERE state = 'running' AND kind <> 'backfill'`) > 0 {
		l.Exec(`UPDATE punctual.operations SET next_at = now() + interval '1 hour' * (kind = 'backfill')::integer`)
		l.Batch()
	}
	l.FitDated()
}

// tell ends an attempt in SQL, as a target that shares the database does.
func (l *lived) tell(e modelEvent) error {
	call := `SELECT punctual.complete_for($1, $2, $3, NULL)`
	if e.do == "tell failure" {
		call = `SELECT punctual.fail_for($1, $2, $3, 'it is broken')`
	}
	if err := pg.Exec(l.T.Context(), l.DB.Chores, call, l.Tenant, e.run, l.fences[e.run][e.claim-1]); err != nil {
		return err
	}
	_, err := l.Reports.Apply(l.T.Context())
	return err
}

// backfill begins a backfill.
func (l *lived) backfill(e modelEvent) error {
	p, err := l.Letters.PlanBackfill(l.T.Context(), l.Tenant, letters.BackfillRequest{
		Job: l.jobs[e.job].ID.String(), From: l.began.Add(-modelFills * 24 * time.Hour), To: l.began.Add(-time.Hour),
		Rerun: e.with == "again", OneAtATime: e.hours > 0,
	})
	if err == nil {
		_, err = l.For(l.Tenant).StartBackfill(l.T.Context(), p)
	}
	return err
}

// operate does a batch of the backfill. It returns the runs that this has made, by slot.
func (l *lived) operate() (filled map[modelSlot]uuid.UUID) {
	before := Column[uuid.UUID](l.Fixture, `SELECT id FROM punctual.runs WHERE trigger = 'backfill'`)
	l.Exec(`UPDATE punctual.operations SET next_at = now() WHERE state = 'running'`)
	for {
		ready := Column[bool](l.Fixture, `SELECT next_at <= now() FROM punctual.operations WHERE state = 'running'`)
		if len(ready) == 0 || !ready[0] {
			break
		}
		_, _, err := l.Letters.Operate(l.T.Context())
		l.Must(err)
	}
	filled = map[modelSlot]uuid.UUID{}
	for _, run := range Column[uuid.UUID](l.Fixture, `SELECT id FROM punctual.runs WHERE trigger = 'backfill'`) {
		if !slices.Contains(before, run) {
			at := Column[time.Time](l.Fixture, `SELECT scheduled_for FROM punctual.runs WHERE id = $1`, run)[0]
			hour := int(at.Sub(l.began)/time.Hour) + modelFills*24
			filled[modelSlot{hour % 24, hour / 24}] = run
		}
	}
	return filled
}

// rerun is the request of a rerun.
func (l *lived) rerun(e modelEvent) (r jobs.RerunRequest) {
	if e.with != "partly" {
		return r
	}
	if e.from >= 0 {
		r.Steps.From = []string{fmt.Sprint("step", e.from)}
	}
	if e.set >= 0 {
		r.Steps.Set = map[string]domain.SetStep{fmt.Sprint("step", e.set): {}}
	}
	return r
}

// date writes, moves or removes a dated run.
func (l *lived) date(e modelEvent) (uuid.UUID, error) {
	job := l.jobs[e.job].ID.String()
	r := jobs.DateRequest{
		Delay: time.Duration(e.hours) * time.Hour, Key: fmt.Sprint("key", e.key), OnConflict: jobs.KeyConflict(e.with),
		NotAfter: time.Duration(e.latest) * time.Hour,
	}
	if e.seq > 0 {
		r.Sequence = new(int64(e.seq))
	}
	var to jobs.Dated
	var err error
	switch e.do {
	case "date":
		to, err = l.For(l.Tenant).TriggerAt(l.T.Context(), job, r)
	case "move":
		to, err = l.Jobs.MoveDated(l.T.Context(), l.Tenant, job, r)
	default:
		_, err = l.Jobs.CancelDated(l.T.Context(), l.Tenant, job, r.Key, false)
	}
	return to.Run, err
}

func (l *lived) at(replica int) Replica {
	c := l.Replica
	c.ReplicaID = l.replicas[replica]
	return c
}

// slot makes a slot due, if it is to, while something happens. Should nobody heed it, it is due no longer.
func (l *lived) slot(e *modelEvent, due bool, while func()) {
	if l.slots++; !due || l.model.jobs[e.job].onEvent || l.model.jobs[e.job].deleted {
		while()
		return
	}
	job, slot := l.jobs[e.job].ID, l.began.Add(time.Duration(l.slots-600)*time.Second)
	const set = `UPDATE punctual.schedules SET scheduled_for = $2, next_run_at = $3 WHERE job_id = $1`
	l.Exec(set, job, slot, time.Now())
	while()
	far := l.began.Add(5000 * time.Hour)
	l.Exec(set, job, far, far)
	e.run = domain.SlotRunID(job, slot)
	for _, id := range Column[uuid.UUID](l.Fixture, `
		SELECT id FROM punctual.runs WHERE job_id = $1 AND skipped_first = $2`, job, slot) {
		e.of = id
	}
}

// take hands what was claimed to its replica.
func (l *lived) take(b domain.Batch) {
	before := maps.Clone(l.highest)
	for _, a := range b.Runs {
		if a.Fence <= before[a.Job.ID] {
			l.wrong += fmt.Sprintf("the fencing token of %s is %d after %d\n", a.RunID, a.Fence, before[a.Job.ID])
		}
		l.highest[a.Job.ID] = max(a.Fence, l.highest[a.Job.ID])
		l.fences[a.RunID] = append(l.fences[a.RunID], a.Fence)
		l.held = append(l.held, &sending{
			Assignment: a, claim: len(l.fences[a.RunID]), started: a.Lease.ClaimedAt, expired: a.Expired(a.Lease.ClaimedAt),
		})
		if r := l.model.run(a.RunID); r != nil && l.model.expired(r, 0) != a.Expired(a.Lease.ClaimedAt) {
			l.wrong += fmt.Sprintf("%s is expired: %t\n", a.RunID, a.Expired(a.Lease.ClaimedAt))
		}
	}
}

// answer writes the outcome of an attempt. If it was written before, it is written again.
func (l *lived) answer(e *modelEvent) error {
	is := func(s *sending) bool { return s.RunID == e.run && s.claim == e.claim }
	var released []uuid.UUID
	var s *sending
	if at := slices.IndexFunc(l.held, is); at >= 0 {
		s = l.held[at]
		s.with, s.outcome = e.with, l.outcome(s, e.with)
		l.held, l.over = slices.Delete(l.held, at, at+1), append(l.over, s)
		if s.Lease.Remaining--; s.Lease.Remaining == 0 {
			released = append(released, s.Lease.ID)
		}
	} else {
		s = l.over[slices.IndexFunc(l.over, is)]
	}
	late, err := l.Claims.Finish(l.T.Context(), []domain.Outcome{s.outcome}, released)
	if late > 0 {
		return errSuperseded
	}
	return err
}

func (l *lived) outcome(s *sending, with string) domain.Outcome {
	now, result := l.Clock(), wire.Result{Sent: true}
	switch with {
	case "begun":
		o := domain.Outcome{Assignment: s.Assignment, Verdict: domain.Await, StartedAt: s.started, FinishedAt: now}
		o.RetryIn = s.Job.MaxDuration.Value()
		return o
	case "given back":
		return domain.Outcome{Assignment: s.Assignment, Verdict: domain.GiveBack, FinishedAt: now}
	case "expired":
		return domain.Outcome{
			Assignment: s.Assignment, Verdict: domain.Expire, Reason: domain.ReasonExpired, FinishedAt: now,
		}
	case "cancelled":
		return domain.Outcome{
			Assignment: s.Assignment, Verdict: domain.Cancel, Reason: domain.ReasonCancelled, StartedAt: s.started,
			FinishedAt: now,
		}
	case "interrupted":
		return domain.JudgeInterrupted(s.Assignment, s.started, now, errors.New("the replica stops"))
	case "timeout", "connect":
		result.Reason, result.Sent = wire.Reason(with), with == "timeout"
	case "410":
		result.Status, result.Reason = 410, wire.Reason(domain.ReasonHTTP4xx)
	case "500":
		result.Status, result.Reason = 500, wire.Reason(domain.ReasonHTTP5xx)
	case "503":
		result.Status, result.Reason = 503, wire.Reason(domain.ReasonHTTP5xx)
		result.RetryAfter = modelAfter * time.Hour
	default:
		result.Status, _ = strconv.Atoi(with)
	}
	return domain.Judge(s.Assignment, result, s.started, now)
}

func (l *lived) token(e *modelEvent) string {
	for _, s := range slices.Concat(l.held, l.over) {
		if s.RunID == e.run && s.claim == e.claim {
			return s.RunToken
		}
	}
	return ""
}

// takeOver lets a replica stand still until another one ends its claims. A new replica comes in its place.
func (l *lived) takeOver(replica int) {
	watcher := l.at((replica + 1) % len(l.replicas))
	lost := slices.DeleteFunc(watcher.Renewed().Others, func(h scheduler.Heartbeat) bool {
		return h.Replica != l.replicas[replica]
	})
	for n := 1; n > 0; {
		var err error
		n, err = l.Replicas.Recover(l.T.Context(), lost)
		Must(l.T, err)
	}
	l.replicas[replica] = l.join()
}

// pass lets whole hours pass: it moves what is to come into the past. The time that the test itself takes is a part of
// an hour, so what is due in an hour is due once an hour has passed, and not before.
func (l *lived) pass(by time.Duration) {
	l.Exec(`UPDATE punctual.ready SET due_at = due_at - $1::interval`, by)
	l.Exec(`UPDATE punctual.dated
		SET due_at = due_at - $1::interval, latest_at = latest_at - $1::interval, created_at = created_at - $1::interval`, by)
	l.Exec(`UPDATE punctual.jobs SET paused_until = paused_until - $1::interval`, by)
	l.Exec(`UPDATE punctual.limits SET starts_at = starts_at - $1::interval`, by)
	l.Exec(`UPDATE punctual.dated_sequences SET left_at = left_at - $1::interval`, by*24/modelGuards)
	l.Exec(`UPDATE punctual.runs
		SET due_at = due_at - $1::interval, created_at = created_at - $1::interval, started_at = started_at - $1::interval,
			accepted_at = accepted_at - $1::interval, next_attempt_at = next_attempt_at - $1::interval
		WHERE finished_at IS NULL`, by)
	l.Exec(`UPDATE punctual.runs SET finished_at = finished_at - $1::interval
		WHERE parent_run IN (SELECT run_id FROM punctual.workflows)`, by)
	for _, s := range l.held {
		s.DueAt, s.started = s.DueAt.Add(-by), s.started.Add(-by)
	}
}

// stored describes the runs and gates of the store.
func (l *lived) stored() []string {
	return Column[string](l.Fixture, `
		SELECT concat_ws(' ', r.id, r.trigger, r.status, r.reason, 'attempt ' || r.attempt, 'fence ' || r.fence,
			CASE WHEN r.status <> 'running' THEN NULL WHEN r.accepted_at IS NOT NULL THEN 'accepted'
				ELSE 'at ' || r.replica END,
			CASE WHEN y.waits = 'gate' THEN 'at its gate' END, CASE WHEN y.waits_on IS NOT NULL THEN 'at the limit' END,
			CASE WHEN y.waits <> 'gate' AND y.waits_on IS NULL
				THEN 'ready in ' || greatest(0, ceil(extract(epoch FROM y.due_at - now()) / 3600)) END,
			'blocked by ' || r.blocked_by,
			CASE WHEN d.resolved_at IS NULL THEN 'letter' ELSE 'resolved letter' END || ' of ' || d.attempts || ' '
				|| d.reason || coalesce(' replayed as ' || d.replayed_as, ''),
			a.all,
			CASE WHEN (r.status = 'retrying') <> (r.next_attempt_at IS NOT NULL) THEN 'WRONG next_attempt_at' END,
			CASE WHEN r.status = 'running' AND r.accepted_at IS NULL
					AND NOT punctual.is_claimed(r.id, r.replica, r.claimed_at) THEN 'WRONG: nobody has it' END,
			CASE WHEN r.status = 'running' AND r.accepted_at IS NULL AND r.reason IN ('cancelled_by_user', 'replaced')
					AND NOT EXISTS (SELECT FROM punctual.cancels c WHERE c.run_id = r.id AND c.replica = r.replica)
				THEN 'WRONG: nobody is told' END)
		FROM punctual.runs r
		LEFT JOIN punctual.ready y ON y.run_id = r.id
		LEFT JOIN punctual.dead_letters d ON d.run_id = r.id
		LEFT JOIN (SELECT run_id, string_agg(concat_ws(' ', '|', fence, number, outcome, reason), ' ' ORDER BY fence) AS all
			FROM punctual.attempts GROUP BY run_id) a ON a.run_id = r.id
		UNION ALL
		SELECT concat_ws(' ', 'gate', e.job_id, CASE WHEN NOT e.gated THEN 'open' END, 'active ' || e.active_run,
			'waiting ' || e.waiting_run)
		FROM punctual.exclusive e
		UNION ALL
		SELECT concat_ws(' ', 'dated', d.run_id, d.job_id, d.key,
			'in ' || greatest(0, ceil(extract(epoch FROM d.due_at - now()) / 3600)), 'sequence ' || d.sequence)
		FROM punctual.dated d
		UNION ALL
		SELECT concat_ws(' ', 'holds', h.run_id) FROM punctual.limit_holders h
		ORDER BY 1`)
}

// modelled describes the runs and gates of the model.
func (l *lived) modelled() (lines []string) {
	for _, r := range l.model.runs {
		words := []string{r.id.String(), string(r.trigger), string(r.status)}
		add := func(is bool, format string, args ...any) {
			if is {
				words = append(words, fmt.Sprintf(format, args...))
			}
		}
		fence := func(claim int) int64 {
			if of := l.fences[r.id]; claim <= len(of) {
				return of[claim-1]
			}
			return 0
		}
		add(r.reason != "", "%s", r.reason)
		add(true, "attempt %d", r.attempt)
		if r.claims > 0 {
			add(true, "fence %d", fence(r.claims))
		}
		add(r.accepted, "accepted")
		add(r.status == domain.StatusRunning && !r.accepted, "at %s", l.replicas[r.replica])
		add(r.parked, "at its gate")
		add(r.atLimit, "at the limit")
		add(r.inReady && !r.parked && !r.atLimit, "ready in %d", max(0, r.ready-l.model.now))
		add(r.blockedBy != uuid.Nil, "blocked by %s", r.blockedBy)
		add(r.letter == "open", "letter of %d %s", r.attempt, r.reason)
		add(r.letter == "resolved", "resolved letter of %d %s replayed as %s", r.attempt, r.reason, r.replay)
		for _, a := range r.records {
			add(true, "| %d %d %s", fence(a.claim), a.number, a.outcome)
			add(a.reason != "", "%s", a.reason)
		}
		lines = append(lines, strings.Join(words, " "))
		if r.holds && !r.status.Final() {
			lines = append(lines, "holds "+r.id.String())
		}
	}
	for _, d := range l.model.dated {
		line := fmt.Sprintf("dated %s %s key%d in %d", d.id, l.jobs[d.job].ID, d.key, max(0, d.due-l.model.now))
		if d.seq > 0 {
			line += fmt.Sprint(" sequence ", d.seq)
		}
		lines = append(lines, line)
	}
	for i, j := range l.model.jobs {
		if !j.missed && !slices.ContainsFunc(j.versions, (*modelDefinition).gates) {
			continue
		}
		line := "gate " + l.jobs[i].ID.String()
		if !j.gated {
			line += " open"
		}
		if j.active != uuid.Nil {
			line += " active " + j.active.String()
		}
		if j.waiting != uuid.Nil {
			line += " waiting " + j.waiting.String()
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// step draws an event that may happen now.
func (l *lived) step(seed uint64, step int) (e modelEvent) {
	random := rand.New(rand.NewPCG(seed, uint64(step)))
	e.job, e.replica = l.model.current(jobOf(seed, random)), random.IntN(len(l.replicas))
	j := l.model.jobs[e.job]
	run := func(which func(*modelRun) bool) uuid.UUID {
		of := slices.DeleteFunc(slices.Clone(l.model.runs), func(r *modelRun) bool { return !which(r) })
		if len(of) == 0 {
			return uuid.Nil
		}
		return of[random.IntN(len(of))].id
	}
	alive := func(r *modelRun) bool { return !r.status.Final() }
	final := func(r *modelRun) bool { return r.status.Final() }
	whole := func(r *modelRun) bool { return final(r) && r.isWorkflow() }
	dead := func(r *modelRun) bool { return r.letter != "" && !r.limited }
	undecided := run(func(r *modelRun) bool { return r.approves() && r.accepted })
	called := slices.DeleteFunc(slices.Concat(l.over, l.held), func(s *sending) bool {
		return l.model.run(s.RunID).sendsNothing()
	})
	over := func(of []*sending) []*sending { // those that have ended, which replicas or targets do not know
		running := func(s *sending) bool { return l.model.run(s.RunID).status == domain.StatusRunning }
		all := slices.DeleteFunc(slices.Clone(of), func(s *sending) bool {
			return running(s) && l.model.run(s.RunID).claims == s.claim
		})
		if again := slices.DeleteFunc(slices.Clone(all), func(s *sending) bool { return !running(s) }); len(again) > 0 {
			return again // another attempt is under way
		}
		return all
	}
	calls := slices.DeleteFunc(slices.Clone(called), func(s *sending) bool { // others may not call
		return !l.model.run(s.RunID).async && step%4 > 0
	})
	unsent := slices.DeleteFunc(slices.Clone(l.held), func(s *sending) bool { // workflows and approvals
		return !l.model.run(s.RunID).sendsNothing()
	})
	mayFill := l.model.fill == nil && !j.onEvent
	late, calledLate, toldLate := over(l.held), over(calls), over(called)
	call := func(of []*sending, do ...string) { // of one of the last few attempts
		s := of[len(of)-1-random.IntN(min(6, len(of)))]
		e.do, e.run, e.claim = Pick(random, do...), s.RunID, s.claim
	}
	about := func(do string, run uuid.UUID) { e.do, e.run = do, run }
	again := func(do string, of uuid.UUID) {
		e.do, e.of, e.job = do, of, l.model.run(of).job
		e.keepSteps(&l.model, random)
	}
	only := func(weight int, may bool) int { return weight * map[bool]int{true: 1}[may] }
	draws := []struct {
		weight int // how likely it is
		draw   func()
	}{
		{only(16, j.tolerance == 0), func() { e.do = "slot" }},
		{16, func() { e.do = "trigger" }},
		{24 + only(40, j.tolerance > 0), func() { e.date(&l.model, random) }},
		{2 + only(8, j.limited), func() { e.do, e.hours = "limit", Pick(random, -1, 0, 1, 2, 1+l.model.limit.most%2) }},
		{only(70, j.deleted), func() { e.do = "create" }},
		{only(30, j.onEvent), func() { e.do, e.key = "emit", 1+random.IntN(2) }},
		{36, func() { e.do = "claim" }},
		{10 + only(10, l.model.fill != nil), func() { e.do = "claim ordered" }},
		{only(44, len(l.held) > 0), func() { e = l.answerOf(Pick(random, l.held...), random) }},
		{only(150, len(unsent) > 0), func() { e = l.answerOf(Pick(random, unsent...), random) }},
		{only(4, len(l.over) > 0), func() {
			s := l.over[random.IntN(len(l.over))]
			e.do, e.run, e.claim, e.with = "answer", s.RunID, s.claim, s.with
		}},
		{only(12, len(late) > 0), func() { e = l.answerOf(Pick(random, late...), random) }},
		{only(12, len(calls) > 0), func() { call(calls, "beat", "beat", "complete", "report", "report final") }},
		{only(12, len(calledLate) > 0), func() { call(calledLate, "beat", "complete", "report", "report final") }},
		{only(10, len(called) > 0 && l.reports), func() { call(called, "tell success", "tell failure") }},
		{only(10, len(toldLate) > 0 && l.reports), func() { call(toldLate, "tell success", "tell failure") }},
		{14, func() { e.do, e.hours = "pass", Pick(random, 1, 1, 2, 2, modelDuration, 5) }},
		{4, func() { e.do = "listen" }},
		{only(8, l.model.fill != nil), func() { e.do = "operate" }},
		{6, func() { e.loseReplica(&l.model, random) }},
		{only(8, run(alive) != uuid.Nil), func() { about("cancel", run(alive)) }},
		{only(2, run(final) != uuid.Nil), func() { about("cancel", run(final)) }},
		{only(1, run(alive) != uuid.Nil), func() { again("rerun", run(alive)) }},
		{only(3, run(final) != uuid.Nil), func() { again("rerun", run(final)) }},
		{only(12, run(whole) != uuid.Nil), func() { again("rerun", run(whole)) }},
		{only(6, run(dead) != uuid.Nil), func() { again("replay", run(dead)) }},
		{only(80, undecided != uuid.Nil), func() { about(Pick(random, "approve", "reject"), undecided) }},
		{only(3, mayFill) + only(24, mayFill && !j.gated), func() {
			e.do, e.with, e.hours = "backfill", Pick(random, "", "", "again"), random.IntN(2)
		}},
		{1, func() { e.do = "delete" }},
		{only(3, l.model.frozen == ""), func() { e.do, e.with = "freeze", Pick(random, "tenant", "deployment") }},
		{only(8, l.model.frozen != ""), func() { e.do = "freeze" }}, // nothing
		{3, func() { e.do, e.hours = "pause", Pick(random, 0, 0, 1, 3) }},
		{only(10, j.paused), func() { e.do = "resume" }},
		{1, func() { e.do, e.key, e.hours = "pause many", random.IntN(modelSides), random.IntN(2) }},
		{1, func() { e.do, e.key = "resume many", random.IntN(modelSides) }},
		{only(10, l.editable(j)), func() {
			e.do, e.key = "edit", 1+random.IntN(3)
			e.latest, e.due = Pick(random, 0, modelNoon, modelNoon+6), random.IntN(3) == 0
			e.with = string(Pick(random, jobspec.PolicyAllow, jobspec.PolicyForbid, jobspec.PolicyReplace, jobspec.PolicyWait,
				jobspec.PolicyQueue))
		}},
		{only(5, len(j.versions) > 1), func() { e.do, e.key = "roll back", random.IntN(len(j.versions)) }},
	}
	all := 0
	for _, d := range draws {
		all += d.weight
	}
	n := random.IntN(all)
	for _, d := range draws {
		if n -= d.weight; n < 0 {
			d.draw()
			return e
		}
	}
	return e
}

// jobOf draws one of the four jobs of a history: one of them has steps.
func jobOf(seed uint64, random *rand.Rand) int {
	plain := slices.IndexFunc(modelJobs, func(d modelDefinition) bool { return len(d.steps) > 0 })
	if n := int(random.Uint64N(4)); n < 3 {
		return (int(seed)*3 + n) % plain
	}
	return plain + int(seed)%(len(modelJobs)-plain)
}

// editable reports whether a job may be edited here: its links name the jobs that there were, and missed slots go in
// order under one policy only.
func (l *lived) editable(j modelJob) bool { return len(modelJobs[j.base].then) == 0 && !j.missed }

// date draws what is done to a dated run.
func (e *modelEvent) date(m *model, random *rand.Rand) {
	e.do, e.key, e.hours = Pick(random, "date", "date", "date", "move", "undate"), random.IntN(2), random.IntN(4)
	if n := len(m.dated); n > 0 && random.IntN(2) > 0 { // it is one that waits
		of := m.dated[random.IntN(n)]
		e.job, e.key = of.job, of.key
	}
	if e.seq = Pick(random, 0, 1, 1, 2, 3); e.do == "date" {
		e.with, e.latest = Pick(random, "keep", "replace", "replace"), Pick(random, 0, max(1, e.hours+random.IntN(2)))
	}
}

// loseReplica draws a replica that is lost, more likely one that has a run which was lost before.
func (e *modelEvent) loseReplica(m *model, random *rand.Rand) {
	e.do = "take over"
	again := slices.DeleteFunc(slices.Clone(m.runs), func(r *modelRun) bool {
		return r.status != domain.StatusRunning || len(r.records) == 0 ||
			r.records[len(r.records)-1].outcome != domain.AttemptLost
	})
	if len(again) > 0 {
		e.replica = again[random.IntN(len(again))].replica
	}
}

// keepSteps draws which steps of a workflow a rerun keeps.
func (e *modelEvent) keepSteps(m *model, random *rand.Rand) {
	e.from, e.set = -1, -1
	if of := m.run(e.of); of != nil && of.isWorkflow() && random.IntN(4) > 0 {
		steps := len(of.steps)
		e.with, e.from, e.set = "partly", random.IntN(steps+1)-1, random.IntN(steps+1)-1
		if e.from == e.set {
			e.from, e.set = 0, -1
		}
	}
}

// answerOf draws how an attempt ends.
func (l *lived) answerOf(s *sending, random *rand.Rand) modelEvent {
	e := modelEvent{do: "answer", run: s.RunID, claim: s.claim}
	r := l.model.run(s.RunID)
	switch async := r.async; {
	case r.sendsNothing():
		e.with = Pick(random, "begun", "begun", "begun", "begun", "given back")
	case s.expired:
		e.with = Pick(random, "expired", "expired", "given back")
	case r.step >= 0 && random.IntN(3) > 0:
		e.with = "200"
	case r.claims == s.claim && r.asked() && random.IntN(2) == 0:
		e.with = "cancelled"
	case async && random.IntN(2) == 0:
		e.with = "202"
	default:
		e.with = Pick(random, "200", "200", "202", "500", "500", "500", "500", "503", "410", "timeout", "connect",
			"connect", "interrupted", "given back")
	}
	return e
}

// rest lets everything come to its end: nothing waits for ever.
func (l *lived) rest() string {
	var events []modelEvent
	if l.model.frozen != "" {
		events = append(events, modelEvent{do: "freeze"})
	}
	for side := range modelSides {
		events = append(events, modelEvent{do: "resume many", key: side})
	}
	for range 100 {
		for _, s := range l.held {
			with := "200"
			if s.expired {
				with = "expired"
			}
			if l.model.run(s.RunID).sendsNothing() {
				with = "begun"
			}
			events = append(events, modelEvent{do: "answer", run: s.RunID, claim: s.claim, with: with})
		}
		for _, do := range []string{"operate", "claim", "claim ordered", "listen"} {
			events = append(events, modelEvent{do: do})
		}
		for _, e := range events {
			if diff := l.do(e); diff != "" {
				return diff
			}
		}
		if len(l.held)+len(l.model.dated) == 0 && l.model.fill == nil &&
			!slices.ContainsFunc(l.model.runs, func(r *modelRun) bool { return !r.status.Final() }) {
			l.NothingLeft()
			return ""
		}
		if events = nil; len(l.held) == 0 {
			events = []modelEvent{{do: "pass", hours: 1}}
		}
	}
	return "something waits for ever"
}

// play plays the given steps of the history of a seed. It returns in what store and model differ.
func (l *lived) play(seed uint64, steps []int) (diff string, played int) {
	l.begin(seed)
	for n, step := range steps {
		if diff = l.do(l.step(seed, step)); diff != "" {
			return diff, n + 1
		}
	}
	return l.rest(), len(steps)
}

// shrink leaves steps out as long as store and model differ.
func (l *lived) shrink(seed uint64, steps []int) []int {
	tries := 0
	for size := len(steps) / 2; size > 0; size /= 2 {
		for at := 0; at < len(steps) && tries < 40; tries++ {
			less := slices.Delete(slices.Clone(steps), at, min(at+size, len(steps)))
			if diff, played := l.play(seed, less); diff != "" {
				steps = less[:played]
			} else {
				at += size
			}
		}
	}
	return steps
}

// Random histories of all that happens to runs. After each event the store agrees with a pure model
// (store/model_test.go).
//
// In the end nothing waits. The jobs have every overlap policy, limits, queues, chains, events, dated runs, backfills,
// workflows and approvals. The events are slots, triggers, reruns, replays, outcomes, calls of targets and their
// reports in SQL, decisions, cancels, freezes, pauses of one job and of many, edits also of schedules, limits and
// rates, rollbacks, deletes, jobs created again under their names, replicas that are lost, and outcomes that are
// written too late.
//
//prove:claims
func TestARunsLifeIsThatOfItsModel(t *testing.T) {
	t.Parallel()
	seed, seeds, length := uint64(1), 60, 200 // the same histories each time; SEED=… tries others
	if testing.Short() {
		seeds = 7 // in which each of modelJobs is
	}
	if text := os.Getenv("SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	if text := os.Getenv("SEEDS"); text != "" {
		seeds, _ = strconv.Atoi(text)
	}
	for n := range uint64(seeds) {
		t.Run(fmt.Sprint(seed+n), func(t *testing.T) {
			l := &lived{Replica: NewReplica(t)}
			l.KeepChanges(time.Hour)
			steps := make([]int, length)
			for i := range steps {
				steps[i] = i
			}
			diff, played := l.play(seed+n, steps)
			if diff == "" {
				l.WantRecorded()
				t.Log(strings.NewReplacer(l.names...).Replace(strings.Join(append(l.log, l.stored()...), "\n")))
				return
			}
			first := strings.NewReplacer(l.names...).Replace(diff)
			steps = l.shrink(seed+n, steps[:played])
			diff, _ = l.play(seed+n, steps)
			said := strings.NewReplacer(l.names...)
			t.Errorf("SEED=%d: after %d steps\n%s\nof which these are enough:\n%s\n%s", seed+n, played, first,
				said.Replace(strings.Join(l.log, "\n")), said.Replace(diff))
		})
	}
}
