package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/cron"
	"punctual/scheduler/domain"
	"punctual/store/archive"
	"punctual/store/audit"
	"punctual/store/days"
	"punctual/store/fleet"
	"punctual/store/freeze"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/runs"
)

// Outcome is the fate of a job at an instant. The list is closed.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded     Outcome = "succeeded"
	OutcomeDead          Outcome = "dead"
	OutcomeCancelled     Outcome = "cancelled"
	OutcomeInProgress    Outcome = "in_progress"    // the slot's run has not ended
	OutcomeSkipped       Outcome = "skipped"        // a recorded skip covers the slot, or its run was never sent
	OutcomeWaiting       Outcome = "waiting"        // due, and not claimed yet
	OutcomePaused        Outcome = "paused"         // a slot of a job that is paused now
	OutcomeUpcoming      Outcome = "upcoming"       // a slot that is still to come
	OutcomeNoSlot        Outcome = "no_slot"        // the job had no slot then
	OutcomeBeforeCreated Outcome = "before_created" // the job did not exist then
	OutcomeCompleted     Outcome = "completed"      // after the job's last slot
	OutcomeDeleted       Outcome = "deleted"        // after the job was deleted
	OutcomeUnknown       Outcome = "unknown"        // the history does not tell, or is not kept any more
	OutcomeUnaccounted   Outcome = "unaccounted"    // a slot with neither run nor skip: verify reports it as missing
)

// Explanation says what happened to a job at an instant.
type Explanation struct {
	At           time.Time        `json:"at" doc:"The instant asked about."`
	Slot         *time.Time       `json:"slot" doc:"The slot at that instant. Null: there is none."`
	Version      *int32           `json:"version" doc:"The job's version at that instant." example:"7"`
	Outcome      Outcome          `json:"outcome" enum:"succeeded,dead,cancelled,in_progress,skipped,waiting,paused,upcoming,no_slot,before_created,completed,deleted,unknown,unaccounted" doc:"The fate of the slot. succeeded, dead, cancelled, in_progress: the state of its run. skipped: a recorded skip covers it, or its run was never sent. waiting: due and not claimed yet. paused: it did not run, because the job is paused now. upcoming: in the future. no_slot, before_created, completed, deleted: why there is no slot at that instant. unknown: the history does not show it, or is no longer kept. unaccounted: there is neither a run nor a skip, which is a defect." example:"succeeded"`
	Text         string           `json:"explanation" doc:"The outcome in a sentence."`
	Run          *runs.Run        `json:"run" doc:"The run of the slot, or the recorded skip that covers it."`
	Pause        *Pause           `json:"pause" doc:"The pause in force at that instant."`
	Archive      *archive.Archive `json:"archive" doc:"Where the runs of that day are, if the outcome is unknown and they were archived before they were dropped. Null: they are here, or nowhere."`
	PreviousSlot *time.Time       `json:"previous_slot" doc:"The job's last slot before that instant."`
	NextSlot     *time.Time       `json:"next_slot" doc:"The job's first slot after that instant, computed from the definitions known now."`
}

// Pause is a period during which a job was paused.
type Pause struct {
	Since time.Time  `json:"since" doc:"When it began."`
	Ended *time.Time `json:"ended" doc:"When it ended. Null: the job is still paused."`
	Until *time.Time `json:"until" doc:"When it will end by itself, if it has not ended."`
	Note  string     `json:"note" doc:"Why, if the caller gave a note." example:"the warehouse moves"`
	By    *string    `json:"by" doc:"Who paused it, according to the audit log. Null: unknown." example:"key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)"`
}

// ExplainJob says what happened to a job at an instant. when computes the instant once the job's zone is known. A ref
// that is an id also finds a deleted job. ExplainJob returns pg.ErrNotFound when there is no such job.
func (h *History) ExplainJob(
	ctx context.Context, tenant int32, ref string, when func(zone *time.Location) (time.Time, error),
) (Explanation, error) {
	var e explaining
	err := h.db.ReadOnly(ctx, tenant, func(tx pgx.Tx) error {
		e = explaining{q: tx, tenant: tenant}
		if err := e.readJob(ctx, h.defaultJitter, ref); err != nil {
			return err
		}
		at, err := when(e.zone)
		if err != nil {
			return err
		}
		e.At = at.UTC()
		return e.explain(ctx)
	})
	pg.UTC(e.Slot, e.PreviousSlot, e.NextSlot)
	if p := e.Pause; p != nil {
		pg.UTC(&p.Since, p.Ended, p.Until)
	}
	return e.Explanation, err
}

// explaining is the state of one call of ExplainJob.
type explaining struct {
	Explanation
	q        pg.Querier
	tenant   int32
	now      time.Time
	kept     time.Time // runs of slots before this are not kept
	job      uuid.UUID
	state    domain.JobState
	until    *time.Time       // end of the present pause
	over     *time.Time       // end of a pause that has run out, if no replica has ended it yet
	ended    *time.Time       // when the job was completed or deleted
	held     *fleet.HeldBack  // the limit that the tenant's due work waits for
	waiting  *runs.WaitingFor // what the run waits for
	unserved string           // the job's queue, if no live replica serves it
	short    string           // what a replica of the job's queue lacks
	aside    string           // why the job's next slot is set aside; empty: it is not
	frozen   string           // why nothing of the tenant is sent; empty: the tenant is not frozen
	zone     *time.Location
	history  domain.History
	backfill string           // what the slot's run waits for in a backfill; empty: no backfill is about to make it
	reported bool             // its target ended the run in a transaction of its own
	skip     *runs.Run        // the earlier skip of a slot whose run a backfill made
	pausers  map[int64]string // actors who paused the job, by the microsecond at which a version began
}

func (e *explaining) readJob(ctx context.Context, defaultJitter time.Duration, ref string) error {
	id, err := names.Find(ctx, e.q, e.tenant, ref)
	if err != nil {
		return err
	}
	e.job, e.history = id, domain.History{Job: id, DefaultJitter: defaultJitter}
	var next, kept *time.Time
	err = e.q.QueryRow(ctx, `
		SELECT punctual.job_state(j, s), j.paused_until, coalesce(punctual.completed_at(j, s), j.deleted_at),
		       s.scheduled_for, now(),
		       `+days.KeptSince+`,
		       coalesce((SELECT q.name
		                 FROM punctual.queues q
		                 WHERE q.id = j.queue AND NOT punctual.is_served(q.name)), ''),
		       coalesce((SELECT punctual.shortage(q.name) FROM punctual.queues q WHERE q.id = j.queue), ''),
		       coalesce(punctual.why_aside('slot', j.id), '')
		FROM punctual.jobs j
		LEFT JOIN punctual.schedules s ON s.job_id = j.id
		WHERE j.id = $1 AND j.tenant = $2`, id, e.tenant).
		Scan(&e.state, &e.until, &e.ended, &next, &e.now, &kept, &e.unserved, &e.short, &e.aside)
	if err != nil {
		return pg.Found(err, "job %q", ref)
	}
	if e.held, err = fleet.ReadHeldBack(ctx, e.q, e.tenant); err != nil {
		return err
	}
	freezes, err := freeze.Read(ctx, e.q, e.tenant)
	if err != nil {
		return err
	}
	if f, whose := freezes.Of(e.tenant); f != nil {
		e.frozen = f.Explain(whose)
	}
	e.history.Next, e.kept = pg.OrZero(next), pg.OrZero(kept)
	var broken error
	err = eachVersion(ctx, e.q, []uuid.UUID{id}, func(_ uuid.UUID, v domain.Version, err error) {
		e.history.Versions = append(e.history.Versions, v)
		broken = errors.Join(broken, err)
	})
	if err = errors.Join(err, broken, e.readPausers(ctx)); err != nil {
		return err
	}
	e.endPause()
	e.zone = time.UTC
	if n := len(e.history.Versions); n > 0 {
		if zone, err := cron.LoadZone(e.history.Versions[n-1].Schedule.Timezone); err == nil {
			e.zone = zone
		}
	}
	return nil
}

// endPause treats a pause that has run out as ended at its end, though no replica has written that yet.
func (e *explaining) endPause() {
	n := len(e.history.Versions)
	if n == 0 || e.state != domain.JobPaused || e.until == nil || e.until.After(e.now) {
		return
	}
	last := e.history.Versions[n-1]
	last.State, last.From, last.Note = domain.JobActive, *e.until, ""
	e.history.Versions = append(e.history.Versions, last)
	e.state, e.over, e.until = domain.JobActive, e.until, nil
}

func (e *explaining) explain(ctx context.Context) error {
	slot, found, err := e.history.Find(e.At)
	if err != nil {
		return err
	}
	if at, ok := e.history.Before(e.At); ok {
		e.PreviousSlot = &at
	}
	if at, ok := e.history.After(e.At); ok {
		e.NextSlot = &at
	}
	version, ok := e.history.At(e.At)
	if ok {
		e.Version = &version.Number
		e.Pause = e.pauseAt(e.At)
	}
	if found {
		e.Slot, e.Version = &slot.At, &slot.Version
	}
	if err := e.findRow(ctx, found); err != nil {
		return err
	}
	if found && (e.Run == nil || e.Run.Skipped != nil) {
		if err := e.findBackfill(ctx); err != nil {
			return err
		}
	}
	switch {
	case e.Run != nil:
		e.Slot = &e.At
		e.ran()
	case found:
		e.slotWithout(slot)
	default:
		e.noSlot(version, ok)
	}
	e.Text += e.backfill
	if err := e.findArchive(ctx); err != nil {
		return err
	}
	return errors.Join(e.findDated(ctx), e.findChained(ctx), e.findEvents(ctx))
}

// findArchive adds where the runs of the day are, if the database does not know the fate of the slot any more.
func (e *explaining) findArchive(ctx context.Context) (err error) {
	if e.Outcome != OutcomeUnknown {
		return nil
	}
	if e.Archive, err = archive.Of(ctx, e.q, e.At); err != nil || e.Archive == nil {
		return err
	}
	e.Text += fmt.Sprintf(" The runs of %s were archived at %s by the command %q; `punctual runs import` reads them back.",
		e.Archive.Day, pg.Stamp(e.Archive.ArchivedAt), e.Archive.Command)
	return nil
}

// findDated adds a sentence about a dated run of the job that is, or was, due within a minute of the instant.
func (e *explaining) findDated(ctx context.Context) error {
	from, to := domain.FirstRunID(e.At.Add(-time.Minute)), domain.FirstRunID(e.At.Add(time.Minute))
	rows := pg.Query(ctx, e.q, `
		SELECT d.key, d.run_id, d.due_at,
		       CASE WHEN d.waits = 'aside' THEN 'aside' WHEN d.due_at <= now() THEN 'due' ELSE '' END
		FROM punctual.dated d
		WHERE d.job_id = $1 AND d.run_id >= $2 AND d.run_id < $3
		UNION ALL
		SELECT o.key, r.id, r.due_at, r.status
		FROM punctual.runs r
		JOIN punctual.run_data o ON o.run_id = r.id AND o.run_id >= $2 AND o.run_id < $3
		WHERE r.job_id = $1 AND r.id >= $2 AND r.id < $3 AND o.key IS NOT NULL
		ORDER BY 2
		LIMIT 1`, e.job, from, to)
	err := pg.Each4(rows, func(key string, run uuid.UUID, due time.Time, state string) {
		e.Text += " " + e.dated(key, run, due, state)
	})
	return pg.Wrap("looking for dated runs", err)
}

// findEvents adds a sentence about an event that has not come to the job yet, though the job has subscribed to it.
func (e *explaining) findEvents(ctx context.Context) error {
	if len(e.history.Versions) == 0 {
		return nil
	}
	event := e.history.Versions[len(e.history.Versions)-1].Schedule.Event
	rows := pg.Query(ctx, e.q, `
		SELECT e.id, e.subscribed - e.made - e.skipped - e.unmatched
		FROM punctual.events e
		WHERE e.turn_at IS NOT NULL AND e.tenant = $1 AND e.name = $2 AND (e.after IS NULL OR e.after < $3)
		ORDER BY e.id
		LIMIT 1`, e.tenant, event, e.job)
	err := pg.Each2(rows, func(id uuid.UUID, left int) {
		e.Text += fmt.Sprintf(" Event %s %s is pending: its fan-out has yet to come to %s, this job among them.",
			event, id, counted(left, "subscriber"))
	})
	return pg.Wrap("looking for events", err)
}

// pauseAt returns the pause in force at an instant. It spans the paused versions around that instant.
func (e *explaining) pauseAt(at time.Time) *Pause {
	var p *Pause
	for _, v := range e.history.Versions {
		paused := v.State == domain.JobPaused
		switch {
		case paused && p == nil:
			p = &Pause{Since: v.From, Note: v.Note, By: e.pauser(v)}
		case paused && !v.From.After(at):
			if by := e.pauser(v); by != nil || v.Note != "" {
				p.Note, p.By = v.Note, by // the job was paused again, with another note
			}
		case !paused && p != nil:
			if v.From.After(at) {
				p.Ended = new(v.From)
				return p
			}
			p = nil
		}
		if p != nil && p.Since.After(at) {
			return nil
		}
	}
	if p == nil || e.until != nil && !at.Before(*e.until) {
		return nil
	}
	p.Until = e.until
	return p
}

// ofJob is the key of the runs of the job.
var ofJob = days.Job(`$1::uuid`)

// findRow reads the run of the slot, or the skip that covers it. It looks the run up by the slot's id, so it finds the
// run whatever the history says. Skips are written soon after their slots, and ids are in order of time.
func (e *explaining) findRow(ctx context.Context, slot bool) error {
	found, err := runs.Query(ctx, e.q, ` WHERE r.id = $1 AND r.job_id = $2`, domain.SlotRunID(e.job, e.At), e.job)
	backfilled := err == nil && len(found) > 0 && found[0].Trigger == domain.TriggerBackfill
	if err == nil && slot && (len(found) == 0 || backfilled) {
		var skips []runs.Run
		search := days.Search{Index: days.MadeLater, Since: e.At.Add(-runs.ClockSlack)}
		err = search.Forth(ctx, e.q, func(ctx context.Context, q pg.Querier, w days.Window) (_ bool, err error) {
			skips, err = runs.Query(ctx, q, `
				WHERE `+w.Of(`r`, ofJob)+` AND r.id >= $2
				  AND r.skipped_first <= $3
				  AND r.skipped_last >= $3 AND r.trigger = 'schedule'`+
				ofJob.Order(`r`, days.OldestFirst)+` LIMIT 1`, e.job, domain.FirstRunID(search.Since), e.At)
			return len(skips) > 0, err
		})
		if backfilled && len(skips) > 0 {
			e.skip = &skips[0]
		}
		found = append(found, skips...)
	}
	if err != nil || len(found) == 0 || !slot && !found[0].ScheduledFor.Equal(e.At) {
		return err
	}
	e.Run = &found[0]
	if _, err = runs.ReadDetails(ctx, e.q, e.Run); err != nil {
		return err
	}
	if e.Run.TooLate() {
		due := e.Run.DueAt
		if e.Run.Skipped != nil {
			due = e.history.Due(e.At)
		}
		if e.Run.Cause, err = runs.CauseOf(ctx, e.q, e.tenant, e.Run.ID, due); err != nil {
			return err
		}
	}
	if e.Run.Skipped == nil && e.Run.Status != domain.StatusSkipped {
		if err = runs.ReadSteps(ctx, e.q, e.Run); err != nil {
			return err
		}
	}
	if e.waiting, err = runs.WaitsFor(ctx, e.q, e.tenant, e.Run.ID); err != nil || e.Run.Status != domain.StatusSucceeded {
		return err
	}
	e.reported, err = pg.One(ctx, e.q, pgx.RowTo[bool], `
		SELECT EXISTS (SELECT FROM punctual.reports WHERE run_id = $1 AND outcome = 'succeeded')`, e.Run.ID)
	return pg.Wrap("reading what the target reported", err)
}

// findBackfill looks for a backfill that is yet to make the slot's run.
func (e *explaining) findBackfill(ctx context.Context) error {
	var operation uuid.UUID
	var previous *uuid.UUID
	var of *time.Time
	err := e.q.QueryRow(ctx, `
		SELECT o.id, r.id, r.scheduled_for
		FROM punctual.operations o
		LEFT JOIN LATERAL punctual.runs_of(ARRAY[o.last_run]) r ON r.finished_at IS NULL
		WHERE o.job_id = $1 AND o.tenant = $2 AND o.state = 'running' AND o.kind = 'backfill'
		  AND o.next_slot <= $3 AND o.last_slot >= $3
		ORDER BY o.id LIMIT 1`, e.job, e.tenant, e.At).Scan(&operation, &previous, &of)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	e.backfill = fmt.Sprintf(" Backfill %s makes its run", operation)
	if previous != nil {
		e.backfill += fmt.Sprintf(" when run %s of the slot %s and those after it have ended", previous, instantOf(of))
	}
	e.backfill += "."
	return pg.Wrap("looking for backfills of job "+e.job.String(), err)
}

// readPausers reads the actors who paused the job, by the instant of the pause. A job has about as many entries as
// versions.
func (e *explaining) readPausers(ctx context.Context) error {
	rows := pg.Query(ctx, e.q, `
		SELECT a.at, a.actor_kind, coalesce(a.actor, ''), coalesce(k.name, '')
		FROM `+audit.Tables+`
		WHERE a.job_id = $1 AND a.tenant = $2 AND a.after ->> 'state' = 'paused'
		  AND (a.action = 'job.pause' OR a.before ->> 'state' IS DISTINCT FROM 'paused')`, e.job, e.tenant)
	e.pausers = map[int64]string{}
	err := pg.Each4(rows, func(at time.Time, kind audit.ActorKind, actor, key string) {
		e.pausers[at.UnixMicro()] = audit.Text(kind, actor, key)
	})
	return pg.Wrap("reading who paused job "+e.job.String(), err)
}

// pauser returns the actor who paused the job by a version of it, for people. Nil: that is not known.
func (e *explaining) pauser(v domain.Version) *string {
	return pg.OrNull(e.pausers[v.From.UnixMicro()])
}
