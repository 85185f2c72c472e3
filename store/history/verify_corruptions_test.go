package history_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/limits"
)

// corruptions are changes that no release of Punctual makes, each with the kinds of violations that tell of it. Where
// several kinds are given, each of them must be among those found. nth is a run of a job, in the order of ids.
var corruptions = []struct {
	name, sql, want string
}{
	// The rows of runs.
	{"a slot's run is gone", `DELETE FROM punctual.runs WHERE id = nth('hourly', 3)`, "missing"},
	{"a slot has a second run", `INSERT INTO punctual.runs SELECT (jsonb_populate_record(r,
		jsonb_build_object('id', punctual.run_id_at(r.due_at), 'fence', nextval('punctual.fences')))).*
		FROM punctual.runs r WHERE id = nth('hourly', 3)`, "double"},
	{"a run is of another slot", `UPDATE punctual.runs SET scheduled_for = scheduled_for + interval '7 min',
		due_at = due_at + interval '7 min', claimed_at = claimed_at + interval '7 min',
		started_at = started_at + interval '7 min', finished_at = finished_at + interval '7 min'
		WHERE id = nth('hourly', 3)`, "missing phantom"},
	{"a run began before it was due", `UPDATE punctual.runs SET claimed_at = due_at - interval '5 s',
		started_at = due_at - interval '5 s' WHERE id = nth('hourly', 3)`, "early"},
	{"a run was claimed a millisecond early", `UPDATE punctual.runs SET claimed_at = due_at - interval '1 ms'
		WHERE id = nth('hourly', 3)`, "early"},
	{"a run was sent before it was due", `UPDATE punctual.runs
		SET started_at = due_at - interval '1 ms' WHERE id = nth('hourly', 3)`, "early"},
	{"a run by hand began before it was asked for", `UPDATE punctual.runs
		SET claimed_at = due_at - interval '1 min' WHERE id = nth('async', 1)`, "early"},
	{"the run of a chain began before it was made", `UPDATE punctual.runs
		SET claimed_at = created_at - interval '1 min' WHERE id = nth('down', 1)`, "early"},
	{"the run of an event began before it was made", `UPDATE punctual.runs
		SET claimed_at = created_at - interval '1 min' WHERE id = nth('subscriber', 1)`, "early"},
	{"a dated run began before its time", `UPDATE punctual.runs SET due_at = due_at + interval '1 hour'
		WHERE id = nth('dated', 1)`, "early"},
	{"a run ended before it started", `UPDATE punctual.runs SET finished_at = started_at - interval '1 s'
		WHERE id = nth('hourly', 3)`, "contrary"},
	{"a dead run ended before it started", `UPDATE punctual.runs SET finished_at = started_at - interval '1 min'
		WHERE id = nth('dead', 1)`, "contrary"},
	{"a success has a reason", `UPDATE punctual.runs SET reason = 'timeout' WHERE id = nth('hourly', 3)`, "contrary"},
	{"a death has no reason", `UPDATE punctual.runs SET reason = NULL WHERE id = nth('dead', 1)`, "contrary"},
	{"a success was never claimed", `UPDATE punctual.runs SET fence = NULL WHERE id = nth('hourly', 3)`, "contrary"},
	{"a run is of another tenant", `UPDATE punctual.runs SET tenant = 2 WHERE id = nth('hourly', 3)`, "contrary"},
	{"a run on time is marked as late", `UPDATE punctual.runs SET late = true WHERE id = nth('hourly', 3)`, "contrary"},
	{"a late run is not marked", `UPDATE punctual.runs SET claimed_at = due_at + interval '10 min',
		started_at = due_at + interval '10 min', finished_at = due_at + interval '11 min'
		WHERE id = nth('hourly', 3)`, "contrary"},
	{"a run is of no job", `UPDATE punctual.runs SET job_id = gen_random_uuid() WHERE id = nth('hourly', 3)`, "phantom"},
	{"a token is not greater than the one before", `UPDATE punctual.runs
		SET fence = (SELECT fence - 1 FROM punctual.runs WHERE id = nth('hourly', 2)) WHERE id = nth('hourly', 4)`, "contrary"},
	{"two runs have one token", `UPDATE punctual.runs
		SET fence = (SELECT fence FROM punctual.runs WHERE id = nth('allow', 2)) WHERE id = nth('hourly', 4)`, "contrary"},
	{"a run and an attempt of another have one token", `UPDATE punctual.runs
		SET fence = (SELECT min(fence) FROM punctual.attempts WHERE run_id = nth('retried', 1))
		WHERE id = nth('async', 1)`, "contrary"},
	{"a run does not end", `UPDATE punctual.runs SET status = 'running', finished_at = NULL,
		created_at = now() - interval '1 hour' WHERE id = nth('hourly', 3)`, "unended"},
	{"a pending run waits nowhere", `DELETE FROM punctual.ready WHERE run_id = nth('waits', 1)`, "unended"},

	// Skips.
	{"a skip is gone", `DELETE FROM punctual.runs WHERE id = nth('skips', 5)`, "missing"},
	{"a skip counts wrong", `UPDATE punctual.runs SET skipped_count = 3 WHERE id = nth('skips', 5)`, "count"},
	{"a skip reaches too far", `UPDATE punctual.runs SET skipped_first = skipped_first - interval '1 hour', skipped_count = 2
		WHERE id = nth('skips', 5)`, "double"},

	// Two at once.
	{"two runs of a job that forbids it overlap", `UPDATE punctual.runs SET finished_at = finished_at + interval '1 hour 10 s'
		WHERE id = nth('forbid', 2)`, "together"},
	{"two runs of a job whose runs queue overlap", `UPDATE punctual.runs SET finished_at = finished_at + interval '61 min'
		WHERE id = nth('queue', 2)`, "together"},
	{"two runs of a job whose runs wait overlap", `UPDATE punctual.runs SET claimed_at = claimed_at + interval '58 min',
		started_at = started_at + interval '58 min', late = true, finished_at = finished_at + interval '2 hours'
		WHERE id = nth('wait', 2)`, "together"},
	{"two runs of a job whose runs are replaced overlap", `UPDATE punctual.runs
		SET finished_at = finished_at + interval '90 min' WHERE id = nth('replace', 3)`, "together"},
	{"a run is open next to one from long ago that has not ended", `UPDATE punctual.runs
		SET status = 'running', finished_at = NULL WHERE id = nth('forbid', 2)`, "together"},
	{"more runs hold a limit than it allows", `UPDATE punctual.runs SET started_at = started_at - interval '1 min',
		finished_at = finished_at + interval '1 min' WHERE id = nth('limited', 1)`, "limit"},
	{"a limit has more holders than it allows", `INSERT INTO punctual.limit_holders (tenant, name, run_id)
		VALUES (1, 'warehouse', nth('works', 1)), (1, 'warehouse', nth('waits', 1))`, "limit"},

	// Gates and holders.
	{"a run that has ended holds a gate", `UPDATE punctual.exclusive SET active_run = nth('forbid', 5)
		WHERE job_id = job('forbid')`, "held"},
	{"a run that has ended holds a limit", `INSERT INTO punctual.limit_holders (tenant, name, run_id)
		VALUES (1, 'warehouse', nth('limited', 1))`, "held"},
	{"the lease of a run is gone", `DELETE FROM punctual.claims;
		UPDATE punctual.runs SET created_at = created_at - interval '1 hour' WHERE id = nth('works', 1)`, "unended"},

	// Workflows.
	{"a step has two runs", `INSERT INTO punctual.runs SELECT (jsonb_populate_record(r,
		jsonb_build_object('id', punctual.run_id_at(r.due_at), 'fence', nextval('punctual.fences')))).*
		FROM punctual.runs r WHERE id = step('flow', 1, 'a')`, "double"},
	{"a step's run is gone", `DELETE FROM punctual.runs WHERE id = step('flow', 1, 'b')`, "workflow"},
	{"a workflow has succeeded with a dead step", `UPDATE punctual.runs SET status = 'dead', reason = 'http_5xx'
		WHERE id = step('flow', 1, 'c')`, "workflow contrary"},
	{"a workflow is said to have succeeded", `UPDATE punctual.runs SET status = 'succeeded', reason = NULL
		WHERE id = flow(2)`, "workflow contrary"},
	{"a step ran though the one before it failed", `UPDATE punctual.runs SET status = 'succeeded', reason = NULL,
		claimed_at = now(), started_at = now(), fence = nextval('punctual.fences'), attempt = 1
		WHERE id = step('flow', 2, 'b')`, "workflow"},
	{"a step ran before the one before it had ended", `UPDATE punctual.runs SET finished_at = finished_at + interval '1 min'
		WHERE id = step('flow', 1, 'a')`, "workflow"},
	{"a step is of no workflow", `DELETE FROM punctual.runs WHERE id = flow(1)`, "contrary"},

	// Attempts.
	{"the attempts of a dead run are gone", `DELETE FROM punctual.attempts WHERE run_id = nth('dead', 1)`, "contrary"},
	{
		"the attempts of a run that was retried are gone", `DELETE FROM punctual.attempts WHERE run_id = nth('retried', 1)`,
		"contrary",
	},
	{"the attempt of a run that was cancelled is gone", `DELETE FROM punctual.attempts
		WHERE run_id = nth('cancelled', 1)`, "contrary"},
	{"an attempt has the token of the success", `UPDATE punctual.attempts
		SET fence = (SELECT fence FROM punctual.runs WHERE id = nth('retried', 1)) WHERE run_id = nth('retried', 1)`, "contrary"},
	{"an attempt has a greater token than its run", `UPDATE punctual.attempts SET fence = fence + 1000
		WHERE run_id = nth('retried', 1)`, "contrary"},
	{"an attempt ended before it started", `UPDATE punctual.attempts SET finished_at = started_at - interval '1 s'
		WHERE run_id = nth('dead', 1)`, "contrary"},
	{"an attempt has a later number than its run", `UPDATE punctual.attempts SET number = 7
		WHERE run_id = nth('dead', 1)`, "contrary"},
	{"an attempt is of no run", `UPDATE punctual.attempts SET run_id = punctual.run_id_at(now())
		WHERE run_id = nth('retried', 1)`, "contrary"},
	{"a run has fewer attempts than were made", `UPDATE punctual.runs SET attempt = 1 WHERE id = nth('dead', 2)`, "contrary"},

	// Dead letters.
	{"a dead run is said to have succeeded", `UPDATE punctual.runs
		SET status = 'succeeded', reason = NULL, http_status = 200, error = NULL WHERE id = nth('dead', 1)`, "contrary"},
	{"a success is said to be dead", `UPDATE punctual.runs SET status = 'dead', reason = 'timeout'
		WHERE id = nth('hourly', 3)`, "contrary"},
	{"a dead run is said to be cancelled", `UPDATE punctual.runs SET status = 'cancelled', reason = 'cancelled_by_user'
		WHERE id = nth('dead', 1)`, "contrary"},
	{"a dead letter is gone", `DELETE FROM punctual.dead_letters WHERE run_id = nth('dead', 1)`, "contrary"},
	{"a dead letter is of a success", `UPDATE punctual.dead_letters SET run_id = nth('async', 1)
		WHERE run_id = nth('dead', 1)`, "contrary"},
	{"a dead letter is of no run", `UPDATE punctual.dead_letters SET run_id = punctual.run_id_at(now())
		WHERE run_id = nth('dead', 1)`, "contrary"},
	{"a dead letter is of another job", `UPDATE punctual.dead_letters SET job_id = job('hourly')
		WHERE run_id = nth('dead', 1)`, "contrary"},
	{"a dead letter is of another tenant", `UPDATE punctual.dead_letters SET tenant = 2
		WHERE run_id = nth('dead', 1)`, "contrary"},
	{"a dead letter has another reason", `UPDATE punctual.dead_letters SET reason = 'tls'
		WHERE run_id = nth('dead', 1)`, "contrary"},
	{"a dead letter counts other attempts", `UPDATE punctual.dead_letters SET attempts = 9
		WHERE run_id = nth('dead', 1)`, "contrary"},
	{"a replay is not of its dead letter", `UPDATE punctual.dead_letters SET replayed_as = NULL
		WHERE run_id = nth('dead', 2)`, "contrary"},
	{"a dead letter was replayed as a run that is not there", `DELETE FROM punctual.runs WHERE trigger = 'replay'`, "contrary"},

	// Reports.
	{"a run is dead though its target reported success", `UPDATE punctual.runs SET status = 'dead', reason = 'timeout'
		WHERE id = nth('reported', 1)`, "contrary"},
	{"a run was cancelled though its target reported success", `UPDATE punctual.runs
		SET status = 'cancelled', reason = 'cancelled_by_user' WHERE id = nth('reported', 1)`, "contrary"},
	{"a run has succeeded though its target reported failure", `UPDATE punctual.reports SET outcome = 'failed'
		WHERE run_id = nth('reported', 1)`, "contrary"},
	{"a report is not applied", `UPDATE punctual.reports SET applied_at = NULL WHERE run_id = nth('reported', 1)`, "report"},
	{"a report has a greater token than its run", `UPDATE punctual.reports SET fence = fence + 1000
		WHERE run_id = nth('reported', 1)`, "contrary"},
	{"a report is of another tenant", `UPDATE punctual.reports SET tenant = 2 WHERE run_id = nth('reported', 1)`, "contrary"},

	// Chains and events.
	{"what an end triggered is gone", `DELETE FROM punctual.runs WHERE id = nth('down', 1)`, "chain"},
	{"a run was triggered by an end that triggers none", `UPDATE punctual.runs SET caused_by = nth('hourly', 3)
		WHERE id = nth('down', 1)`, "chain"},
	{"the run of an event is gone", `DELETE FROM punctual.runs WHERE id = nth('subscriber', 1)`, "missing count"},
	{"a run is of an event that makes none of its job", `UPDATE punctual.events SET body = '{"n": 2}'`, "phantom"},
	{"an event counts more runs than it has made", `UPDATE punctual.events SET made = made + 1`, "count"},
	{"an event counts fewer", `UPDATE punctual.events SET made = 0, unmatched = subscribed`, "count"},
	{"the fan-out of an event stands still", `UPDATE punctual.events SET ended_at = NULL,
		turn_at = now() - interval '1 hour'`, "overdue"},

	// What waits.
	{"a dated run is pending though it was claimed", `UPDATE punctual.dated SET run_id = nth('dated', 1),
		due_at = now() - interval '1 s'`, "double"},
	{"a dated run is of no job", `UPDATE punctual.dated SET job_id = gen_random_uuid()`, "phantom"},
	{"a dated run is overdue", `UPDATE punctual.dated SET due_at = now() - interval '1 hour',
		created_at = now() - interval '2 hours'`, "overdue"},
	{"what waits in ready is no run", `INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		VALUES (punctual.run_id_at(now()), job('waits'), now(), 1, 5)`, "contrary"},
	{"a run waits as that of another job", `UPDATE punctual.ready SET job_id = job('hourly')
		WHERE run_id = nth('waits', 1)`, "contrary"},
	{"a run waits as that of another tenant", `UPDATE punctual.ready SET tenant = 2
		WHERE run_id = nth('waits', 1)`, "contrary"},

	// Jobs, their versions and schedules.
	{"a schedule has passed over a slot", `UPDATE punctual.schedules SET scheduled_for = scheduled_for + interval '1 hour',
		next_run_at = next_run_at + interval '1 hour' WHERE job_id = job('hourly');
		UPDATE punctual.runs SET scheduled_for = scheduled_for - interval '1 hour' WHERE id = nth('hourly', 5)`, "missing"},
	{"a schedule stands still", `UPDATE punctual.schedules SET scheduled_for = scheduled_for - interval '1 hour',
		next_run_at = next_run_at - interval '1 hour' WHERE job_id = job('hourly');
		DELETE FROM punctual.runs WHERE id = nth('hourly', 5)`, "overdue"},
	{"a schedule is not enabled", `UPDATE punctual.schedules SET enabled = false WHERE job_id = job('hourly')`, "contrary"},
	{"a schedule is of another tenant", `UPDATE punctual.schedules SET tenant = 2 WHERE job_id = job('hourly')`, "contrary"},
	{"a schedule is of another version", `UPDATE punctual.schedules SET version = 7 WHERE job_id = job('hourly')`, "contrary"},
	{"a job is of another version than its newest", `UPDATE punctual.jobs SET version = 7
		WHERE id = job('hourly')`, "contrary"},
	{"a job is of another tenant", `UPDATE punctual.jobs SET tenant = 2 WHERE id = job('hourly')`, "contrary"},
	{"a definition was changed in place", `UPDATE punctual.job_versions SET definition =
		jsonb_set(definition::jsonb, '{schedule,every}', '"2h"')::json WHERE job_id = job('hourly')`, "phantom"},
	{"the versions of a job are gone", `DELETE FROM punctual.job_versions WHERE job_id = job('hourly')`, "phantom"},
	{"a job is gone", `DELETE FROM punctual.jobs WHERE id = job('hourly')`, "phantom"},

	// The feed of changes.
	{"the feed lacks a run that has ended", `DELETE FROM punctual.changes WHERE nth('async', 1) = ANY (runs)`, "feed"},
	{"the feed names another run", `UPDATE punctual.changes SET runs = ARRAY[nth('works', 1)]
		WHERE nth('async', 1) = ANY (runs)`, "feed"},
}

// unseen are changes that nothing on record can tell. docs/guarantees.md says so.
var unseen = []struct{ name, sql string }{
	{"a run by hand is gone", `DELETE FROM punctual.runs WHERE id = nth('plain', 1);
		DELETE FROM punctual.changes WHERE nth('plain', 1) = ANY (runs)`},
	{"a dated run is gone since its claim", `DELETE FROM punctual.runs WHERE id = nth('dated', 1);
		DELETE FROM punctual.run_data WHERE run_id = nth('dated', 1);
		DELETE FROM punctual.changes WHERE nth('dated', 1) = ANY (runs)`},
	{"a pending dated run is gone", `DELETE FROM punctual.dated`},
	{"a body was changed", `UPDATE punctual.run_data SET body = 'x'`},
	{"a result was changed", `UPDATE punctual.run_data SET result = '1'`},
	{"an answer was changed", `UPDATE punctual.runs SET http_status = 204 WHERE id = nth('hourly', 3)`},
	{"who asked for a run was changed", `UPDATE punctual.runs SET triggered_by = 'nobody' WHERE id = nth('plain', 1)`},
	{"an audit entry is gone", `DELETE FROM punctual.audit_log WHERE job_id = job('hourly')`},
	{"a notice is gone", `DELETE FROM punctual.notices`},
	{"counted hours were changed", `UPDATE punctual.hourly_runs SET succeeded = succeeded + 1`},
	{"usage was changed", `UPDATE punctual.daily_usage SET runs = runs + 1`},
	{"an answer to an Idempotency-Key is gone", `DELETE FROM punctual.idempotency_keys`},
	{"the feed has a run twice", `INSERT INTO punctual.changes (feed, tenant, runs)
		SELECT feed, tenant, runs FROM punctual.changes LIMIT 1`},
}

func TestVerifySeesWhatWasCorrupted(t *testing.T) {
	c := NewReplica(t)
	liveAll(c)
	k := &keeper{t: t, super: c.Superuser(pgtest.Server(t))}
	k.keep()
	if found := verified(c); len(found) > 0 {
		t.Fatalf("before anything is corrupted: %s", strings.Join(found, "\n"))
	}
	for i, test := range corruptions {
		if testing.Short() && i%4 > 0 { // `make prove` has all
			continue
		}
		k.exec(test.sql)
		found := verified(c)
		for want := range strings.FieldsSeq(test.want) {
			if !slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, want+" ") }) {
				t.Errorf("%s: no violation %q among %q", test.name, want, found)
			}
		}
		k.restore(test.sql)
	}
	for _, test := range unseen {
		k.exec(test.sql)
		if found := verified(c); len(found) > 0 {
			t.Errorf("%s: %q, though docs/guarantees.md says that it cannot tell", test.name, found)
		}
		k.restore(test.sql)
	}
	if found := verified(c); len(found) > 0 {
		t.Fatalf("when all is as it was: %s", strings.Join(found, "\n"))
	}
}

// verified returns what verify finds, with the least patience.
func verified(c Replica) []string {
	c.T.Helper()
	var found []string
	_, _ = c.Verified(func(o *history.VerifyOptions) {
		o.Grace = time.Millisecond
		report := o.Report
		o.Report = func(v history.Violation) error {
			found = append(found, string(v.Kind)+" "+v.Job+": "+v.Detail)
			return report(v)
		}
	})
	return found
}

// keeper keeps a copy of all tables, changes them as no application can, and restores them.
type keeper struct {
	t     *testing.T
	super *pgx.Conn
}

func (k *keeper) exec(sql string) {
	k.t.Helper()
	if _, err := k.super.Exec(k.t.Context(), sql); err != nil {
		k.t.Fatalf("%s: %v", sql, err)
	}
}

func (k *keeper) keep() {
	k.exec(`SET session_replication_role = replica; SET search_path = kept; CREATE SCHEMA kept;
		CREATE FUNCTION kept.job(name text) RETURNS uuid LANGUAGE sql AS
			$$ SELECT id FROM punctual.jobs j WHERE j.name = $1 $$;
		CREATE FUNCTION kept.nth(job text, n integer) RETURNS uuid LANGUAGE sql AS
			$$ SELECT id FROM punctual.runs WHERE job_id = kept.job($1) ORDER BY id OFFSET n - 1 LIMIT 1 $$;
		CREATE FUNCTION kept.flow(n integer) RETURNS uuid LANGUAGE sql AS
			$$ SELECT id FROM punctual.runs WHERE job_id = kept.job('flow') AND step IS NULL ORDER BY id OFFSET n - 1 LIMIT 1 $$;
		CREATE FUNCTION kept.step(job text, n integer, name text) RETURNS uuid LANGUAGE sql AS
			$$ SELECT id FROM punctual.runs WHERE parent_run = kept.flow(n) AND step = $3 ORDER BY id LIMIT 1 $$;
		DO $$ DECLARE name text; BEGIN
			FOR name IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'punctual'::regnamespace
				AND c.relkind IN ('r', 'p') AND NOT c.relispartition LOOP
				EXECUTE format('CREATE TABLE kept.%1$I AS TABLE ONLY punctual.%1$I', name);
				IF EXISTS (SELECT FROM pg_partitioned_table WHERE partrelid = to_regclass('punctual.' || name)) THEN
					EXECUTE format('INSERT INTO kept.%1$I SELECT * FROM punctual.%1$I', name);
				END IF;
			END LOOP;
		END $$`)
	k.t.Cleanup(func() {
		_, err := k.super.Exec(context.WithoutCancel(k.t.Context()), `DROP SCHEMA kept CASCADE`)
		Must(k.t, err)
	})
}

var changedTable = regexp.MustCompile(`(?:UPDATE|INTO|DELETE FROM) punctual\.(\w+)`)

// restore restores the tables that a statement has changed.
func (k *keeper) restore(sql string) {
	k.t.Helper()
	for _, table := range changedTable.FindAllStringSubmatch(sql, -1) {
		k.exec(`DELETE FROM punctual.` + table[1] + `;
			INSERT INTO punctual.` + table[1] + ` OVERRIDING SYSTEM VALUE SELECT * FROM kept.` + table[1])
	}
}

// liveAll is a life with all that leaves rows behind: slots of jobs of each policy, retries, deaths, replays, skips,
// chains, events, dated runs, workflows, reports and limits. Slots are of the last hours, all else is of now.
func liveAll(c Replica) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.tenants SET reports_since = now() - interval '1 min' WHERE id = $1`, c.Tenant)
	c.Exec(`UPDATE punctual.replicas SET renewed_at = 'infinity', started_at = now() - interval '1 hour'`)
	c.Exec(`INSERT INTO punctual.tenants (name) VALUES ('other')`)
	c.KeepChanges(24 * time.Hour)
	for _, policy := range []jobspec.ConcurrencyPolicy{"allow", "forbid", "wait", "replace", "queue"} {
		c.Lived(string(policy), Overlapping(policy))
	}
	c.Lived("hourly")
	skips, slots := c.Lived("skips")
	c.Exec(`DELETE FROM punctual.runs WHERE id = $1`, domain.SlotRunID(skips, slots[4]))
	c.SkippedAt(skips, slots[4], slots[4], 1)
	c.Exec(`UPDATE punctual.runs SET claimed_at = due_at + interval '10 ms', started_at = due_at + interval '20 ms',
		finished_at = due_at + interval '2 s', replica = $1 WHERE status = 'succeeded'`, c.ReplicaID)

	for _, name := range []string{"plain", "async", "reported"} {
		c.Create(name, Never)
	}
	c.FinishAndRelease(Succeeded(c.Begun("plain")))
	c.FinishAndRelease(Succeeded(c.Begun("async")))
	a := c.Begun("reported")
	c.Exec(`SELECT punctual.complete_for($1, $2, $3, '{"rows": 7}')`, c.Tenant, a.RunID, a.Fence)
	c.FinishAndRelease(Failed(a))

	c.Create("retried", Never)
	c.FinishAndRelease(Failed(c.Begun("retried")))
	c.FinishAndRelease(Succeeded(c.Again()))
	c.Create("dead", Never)
	for range 2 {
		c.FinishAndRelease(Failed(c.Begun("dead")))
		c.FinishAndRelease(Buried(c.Again()))
	}
	c.Replay(Column[uuid.UUID](c.Fixture, `SELECT run_id FROM punctual.dead_letters ORDER BY run_id`)[1])
	c.FinishAndRelease(Succeeded(c.One(c.ClaimReady(10))))
	c.Create("cancelled", Never)
	a = c.Begun("cancelled")
	c.Cancel(a.RunID)
	c.FinishAndRelease(Cancelled(a))

	c.Create("down", Never)
	c.Create("up", Never, Then("down"))
	c.FinishAndRelease(Succeeded(c.Begun("up")))
	c.FinishAndRelease(Succeeded(c.One(c.ClaimReady(10))))
	c.Create("subscriber", On("order", `{"n": 1}`))
	c.Create("other-subscriber", On("order", `{"n": 3}`))
	c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '1 hour' WHERE event IS NOT NULL`)
	c.Emit("order", `{"n": 1}`)
	c.FanOut()
	c.FinishAndRelease(Succeeded(c.One(c.ClaimReady(10))))
	c.Create("dated", Never)
	c.Date("dated", jobs.DateRequest{Key: "now", Delay: 0})
	c.FinishAndRelease(Succeeded(c.One(c.ClaimReady(10))))
	c.Date("dated", jobs.DateRequest{Key: "later", Delay: time.Hour})

	c.Create("flow", Never, Steps("a", "b<a", "c<b"))
	for _, outcome := range []Ending{Succeeded, Died} {
		c.StartWorkflow("flow", "")
		for range 3 {
			for _, a := range c.ClaimSteps() {
				c.FinishAndRelease(outcome(a))
			}
		}
		c.GoOn()
	}

	one := 1
	_, _, err := c.Limits.Put(c.T.Context(), c.Tenant, "warehouse", limits.Settings{MaxRunning: &one})
	c.Must(err)
	c.Exec(`UPDATE punctual.limits SET created_at = now() - interval '1 hour', updated_at = now() - interval '1 hour'`)
	c.Create("limited", Never, func(d *jobspec.Definition) { d.Limits = []string{"warehouse"} })
	for range 2 {
		c.FinishAndRelease(Succeeded(c.Begun("limited")))
		_, err := c.Claims.ReleaseLimits(c.T.Context())
		c.Must(err)
	}

	c.Create("works", Never, Forbid)
	c.Begun("works")
	c.Create("waits", Never)
	c.Trigger("waits")
}
