package audit_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
)

func TestEveryChangeHasOneEntryAndNothingElseHasAny(t *testing.T) {
	c := NewFixture(t)
	who := audit.Actor{Kind: audit.Token, Name: "alice", Address: netip.MustParseAddr("203.0.113.7"), RequestID: "r-1"}
	ctx := audit.WithActor(t.Context(), who)
	var since uuid.UUID
	var run, dead uuid.UUID
	key := store.Idempotency{Key: "k"}
	trigger := func(w store.Writer) error {
		r, err := w.TriggerJob(ctx, "a",
			jobs.TriggerRequest{Body: []byte(`"x"`), Headers: map[string]string{"X-Api-Key": "s3cret", "X-Team": "billing"}})
		run = r.ID
		return err
	}
	definition, described := Definition("a"), Definition("a", Described("other"))
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for _, k := range []struct {
		name          string
		work          func() error
		want          string // the actions, each with the name of its resource
		before, after string // of the last entry, where it matters
	}{
		{
			"a create", func() error {
				_, err := c.For(c.Tenant).CreateJob(ctx, jobs.NewJob{Definition: definition})
				return err
			},
			"job.create a", ``, `{"version":1,"state":"active","definition":{`,
		},
		{"a name that is taken", func() error {
			_, _ = c.For(c.Tenant).CreateJob(ctx, jobs.NewJob{Definition: definition})
			return nil
		}, "", ``, ``},
		{"a PUT that changes nothing", func() error {
			_, _, err := c.Jobs.PutJob(ctx, c.Tenant, "a", jobs.NewJob{Definition: definition}, nil, false)
			return err
		}, "", ``, ``},
		{"a PUT", func() error {
			_, _, err := c.Jobs.PutJob(ctx, c.Tenant, "a", jobs.NewJob{Definition: described}, nil, false)
			return err
		}, "job.update a", `{"version":1,"state":"active","definition":{`, `{"version":2,"state":"active","definition":{`},
		{"a PUT of a new name", func() error {
			_, _, err := c.Jobs.PutJob(ctx, c.Tenant, "b", jobs.NewJob{Definition: described}, nil, false)
			return err
		}, "job.create b", ``, `{"version":1,"state":"active","definition":{`},
		{"a batch", func() error {
			_, err := c.For(c.Tenant).CreateJobs(ctx, []jobs.NewJob{
				{Definition: called(described, "c")}, {Definition: definition}, {Definition: called(described, "b")},
			}, jobs.ConflictReplace)
			return err
		}, "job.update a, job.create c", ``, ``},
		{"a rename", func() error {
			_, err := c.Jobs.EditJob(ctx, c.Tenant, "c", nil,
				func(jobs.Record) (jobs.NewJob, error) { return jobs.NewJob{Definition: called(described, "d")}, nil })
			return err
		}, "job.update d", `{"version":1,`, `{"version":2,`},
		{"an edit that fails", func() error {
			_, _ = c.Jobs.EditJob(ctx, c.Tenant, "d", nil,
				func(jobs.Record) (jobs.NewJob, error) { return jobs.NewJob{Definition: definition}, nil })
			return nil
		}, "", ``, ``},
		{"an edit that pauses", func() error {
			_, err := c.Jobs.EditJob(ctx, c.Tenant, "d", nil,
				func(r jobs.Record) (jobs.NewJob, error) {
					return jobs.NewJob{Definition: r.Definition, Paused: new(true)}, nil
				})
			return err
		}, "job.pause d", `{"version":2,"state":"active"}`, `{"version":3,"state":"paused"}`},
		{
			"a pause", func() error { _, err := c.Jobs.PauseJob(ctx, c.Tenant, "a", "moving", &until); return err },
			"job.pause a", `{"version":3,"state":"active"}`,
			`{"version":4,"state":"paused","paused_until":"` + until.Format(time.RFC3339) + `","note":"moving"}`,
		},
		{
			"the same pause", func() error { _, err := c.Jobs.PauseJob(ctx, c.Tenant, "a", "moving", &until); return err },
			"", ``, ``,
		},
		{
			"a resume", func() error { _, err := c.Jobs.ResumeJob(ctx, c.Tenant, "a", "moved"); return err },
			"job.resume a",
			`{"version":4,"state":"paused","paused_until":"` + until.Format(time.RFC3339) + `","note":"moving"}`,
			`{"version":5,"state":"active","note":"moved"}`,
		},
		{"a trigger", func() error {
			_, _, err := c.Idempotent(ctx, c.Tenant, key,
				func(w store.Writer) (store.Answer, error) { return store.Answer{Status: 202}, trigger(w) })
			return err
		}, "run.trigger a", ``, `{"job_version":5,"headers":{"X-Api-Key":"***","X-Team":"billing"},"body_bytes":3}`},
		{"a replayed Idempotency-Key", func() error {
			_, _, err := c.Idempotent(ctx, c.Tenant, key,
				func(w store.Writer) (store.Answer, error) { return store.Answer{Status: 202}, trigger(w) })
			return err
		}, "", ``, ``},
		{
			"a cancel", func() error { _, err := c.Runs.CancelRun(ctx, c.Tenant, run); return err },
			"run.cancel a", `{"status":"pending"}`, `{"status":"cancelled","reason":"cancelled_by_user"}`,
		},
		{"a second cancel", func() error { _, err := c.Runs.CancelRun(ctx, c.Tenant, run); return err }, "", ``, ``},
		{"a resolution", func() error {
			dead = deadLetter(c, "a")
			_, err := c.Letters.ResolveDeadLetter(ctx, c.Tenant, dead, "by hand")
			return err
		}, "dead_letter.resolve a", `{"resolved":false}`, `{"resolved":true,"note":"by hand"}`},
		{
			"a second resolution", func() error { _, err := c.Letters.ResolveDeadLetter(ctx, c.Tenant, dead, "x"); return err },
			"", ``, ``,
		},
		{
			"a replay", func() error { _, err := c.For(c.Tenant).ReplayDeadLetter(ctx, deadLetter(c, "a"), "again"); return err },
			"dead_letter.replay a", `{"resolved":false}`, `{"resolved":true,"replayed_as":"`,
		},
		{
			"an operation and its end", func() error {
				deadLetter(c, "a")
				o, err := c.For(c.Tenant).StartOperation(ctx, letters.BulkRequest{Kind: letters.OperationReplay, Note: "all"})
				if err == nil {
					_, err = c.Letters.CancelOperation(ctx, c.Tenant, o.ID)
				}
				return err
			}, "operation.create , operation.cancel ", `{"kind":"replay","state":"running","matched":1,"done":0}`,
			`{"kind":"replay","state":"cancelled","matched":1,"done":0}`,
		},
		{"counting", func() error {
			_, err := c.Letters.CountDeadLetters(ctx, c.Tenant, letters.BulkRequest{Kind: letters.OperationReplay})
			return err
		}, "", ``, ``},
		{"a backfill", func() error {
			p, err := c.Letters.PlanBackfill(ctx, c.Tenant,
				letters.BackfillRequest{Job: "a", From: time.Now().Add(-2 * time.Hour), To: time.Now()})
			if err == nil {
				_, err = c.For(c.Tenant).StartBackfill(ctx, p)
			}
			return err
		}, "job.backfill a", ``, `{"operation":"`},
		{
			"a delete", func() error { return c.Jobs.DeleteJob(ctx, c.Tenant, "b", nil, false) },
			"job.delete b", `{"version":1,"state":"active","definition":{`, ``,
		},
	} {
		if err := k.work(); err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		var got []string
		var last audit.Entry
		for _, last = range c.Entries(&since) {
			got = append(got, fmt.Sprintf("%s %s", last.Action, OrEmpty(last.Name)))
			if last.ActorKind != who.Kind || OrEmpty(last.Actor) != who.Name ||
				OrEmpty(last.Address) != who.Address.String() || OrEmpty(last.RequestID) != who.RequestID {
				t.Errorf("%s: by %+v", k.name, last)
			}
		}
		if k.name == "a batch" && len(got) == 2 && got[0] > got[1] {
			got[0], got[1] = got[1], got[0] // their instants are equal, so either may come first
		}
		if k.name == "a batch" {
			k.want = "job.create c, job.update a"
		}
		if diff := cmp.Diff(k.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s: %s", k.name, diff)
		}
		if k.before+k.after != "" &&
			(!strings.HasPrefix(string(last.Before), k.before) || !strings.HasPrefix(string(last.After), k.after) ||
				k.before == "" && last.Before != nil || k.after == "" && last.After != nil) {
			t.Errorf("%s: from %s to %s", k.name, last.Before, last.After)
		}
	}
}

func called(d jobspec.Definition, name string) jobspec.Definition {
	d.Name = name
	return d
}

// deadLetter writes an open dead letter of a job.
func deadLetter(c Fixture, job string) uuid.UUID {
	c.T.Helper()
	id := domain.NewRunID(time.Now())
	c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			attempts)
		SELECT $1, id, tenant, name, 1, now(), 'schedule', 1
		FROM punctual.jobs
		WHERE name = $2 AND state = 'active'`, id, job)
	return id
}

func TestAPauseThatRunsOutIsTheSystems(t *testing.T) {
	c := NewFixture(t)
	ctx := audit.WithActor(t.Context(), audit.Actor{Kind: audit.Command, Name: "bob"})
	job := c.Create("job")
	slot, until := Began.Add(30*time.Minute), Began.Add(time.Hour)
	if _, err := c.Jobs.PauseJob(ctx, c.Tenant, "job", "moving", &until); err != nil {
		t.Fatal(err)
	}
	if e := c.Explained("job", slot); e.Pause == nil || OrEmpty(e.Pause.By) != "command bob" ||
		!strings.Contains(e.Text, ", by command bob (moving)") {
		t.Errorf("%+v", e)
	}
	c.Exec(`UPDATE punctual.jobs SET paused_until = now() WHERE id = $1`, job.ID)
	if n := c.ResumeDue(); n != 1 {
		t.Fatalf("%d", n)
	}
	log, _, err := c.Audit.List(t.Context(), c.Tenant, audit.Filter{Job: "job", Page: pg.Page{Limit: 1}})
	if err != nil || len(log) != 1 || log[0].Action != audit.JobResume ||
		log[0].ActorKind != audit.System || log[0].Actor != nil {
		t.Errorf("%+v, %v", log, err)
	}
}

func TestListAuditSelects(t *testing.T) {
	c := NewFixture(t)
	before := time.Now().Add(-time.Minute)
	job := c.Create("a")
	c.Create("b")
	c.Edit("b", func(d *jobspec.Definition) { d.Name = "c" })
	alice := audit.WithActor(t.Context(), audit.Actor{Kind: audit.Token, Name: "alice"})
	Must(t, c.Jobs.DeleteJob(alice, c.Tenant, "c", nil, false))
	keyID := uuid.New()
	c.Exec(`INSERT INTO punctual.api_keys (id, tenant, name, prefix, hash, role, created_by)
		VALUES ($1, $2, 'deploy', 'punctual_x', sha256('x'), 'admin', 'test')`, keyID, c.Tenant)
	ctx := audit.WithActor(t.Context(), audit.Actor{Kind: audit.Key, Name: keyID.String()})
	err := c.DB.Callers.InTx(ctx, c.Tenant, func(tx *pg.Tx) error {
		return audit.Write(ctx, tx, c.Tenant,
			audit.Change{Action: audit.SecretPut, Name: "billing-token", After: map[string]int{"version": 1}})
	})
	Must(t, err)
	for _, k := range []struct {
		name   string
		filter audit.Filter
		want   string
	}{
		{"all", audit.Filter{}, "secret.put billing-token, job.delete c, job.update c, job.create b, job.create a"},
		{"an action", audit.Filter{Action: audit.JobDelete}, "job.delete c"},
		{"a kind", audit.Filter{Resource: "secret"}, "secret.put billing-token"},
		{"a token's subject", audit.Filter{Actor: "alice"}, "job.delete c"},
		{"a key's id", audit.Filter{Actor: keyID.String()}, "secret.put billing-token"},
		{"a key's name", audit.Filter{Actor: "deploy"}, "secret.put billing-token"},
		{"a job by name, under its other name too", audit.Filter{Job: "c"}, "job.delete c, job.update c, job.create b"},
		{"a name that no job has any more", audit.Filter{Job: "b"}, "job.create b"},
		{"a job by id", audit.Filter{Job: job.ID.String()}, "job.create a"},
		{"an id", audit.Filter{ResourceID: &job.ID}, "job.create a"},
		{"a name", audit.Filter{Name: "billing-token"}, "secret.put billing-token"},
		{"since then", audit.Filter{From: before, Action: audit.JobUpdate}, "job.update c"},
		{"until then", audit.Filter{To: before}, ""},
		{"a page", audit.Filter{Page: pg.Page{Limit: 2}}, "secret.put billing-token, job.delete c"},
	} {
		log, next, err := c.Audit.List(t.Context(), c.Tenant, k.filter)
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		var got []string
		for _, r := range log {
			got = append(got, fmt.Sprintf("%s %s", r.Action, OrEmpty(r.Name)))
		}
		if diff := cmp.Diff(k.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s: %s", k.name, diff)
		}
		if k.filter.Limit > 0 {
			rest, next, err := c.Audit.List(t.Context(), c.Tenant, audit.Filter{Page: pg.Page{Cursor: next}})
			if err != nil || len(rest) != 3 || next != "" {
				t.Errorf("the rest: %d, %q, %v", len(rest), next, err)
			}
		}
		_ = next
	}
	other := c.Intruder()
	if log, _, err := other.Audit.List(t.Context(), other.Tenant, audit.Filter{}); err != nil || len(log) != 0 {
		t.Errorf("another tenant reads %d entries, %v", len(log), err)
	}
}

func TestTheAuditLogHasNoSecrets(t *testing.T) {
	t.Parallel()
	c := OpenFixture(t, store.Options{DatabaseURL: pgtest.DSN(t)})
	secret := func(d *jobspec.Definition) { d.Target.Headers = map[string]string{"Authorization": "Bearer s3cret"} }
	c.Create("a", secret)
	c.Edit("a", Described("x"))
	if _, err := c.CreateMany(jobs.ConflictError, Definition("b", secret)); err != nil {
		t.Fatal(err)
	}
	c.DeleteJob("a")
	c.WantCount(4, "entries are masked", `SELECT count(*) FROM punctual.audit_log a WHERE a::text LIKE '%***%'`)
	c.WantCount(0, "entries hold a secret",
		`SELECT count(*) FROM punctual.audit_log a WHERE a::text LIKE '%s3cret%'`)
}

// The owner, a tenant or a superuser changes the audit log. It is refused.
//
// By update, delete and truncate.
//
//prove:tenants
func TestTheAuditLogIsOnlyAddedTo(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	c.Create("a")
	for who, q := range map[string]pg.Querier{
		"whom Punctual connects as": c.DB.Callers, "a tenant": c.DB.Callers.Reader(c.Tenant),
		"a superuser": c.Superuser(pgtest.Server(t)),
	} {
		for _, sql := range []string{
			`UPDATE punctual.audit_log SET actor = 'nobody'`, `DELETE FROM punctual.audit_log`, `TRUNCATE punctual.audit_log`,
			`WITH on_ AS (SELECT set_config('punctual.forgetting', 'on', true)) DELETE FROM punctual.audit_log USING on_`,
		} {
			if err := pg.Exec(ctx, q, sql); !Denied(err) {
				t.Errorf("%s: %s: %v", who, sql, err)
			}
		}
	}
	for _, sql := range []string{
		`ALTER TABLE punctual.audit_log DISABLE TRIGGER ALL`, `ALTER TABLE punctual.audit_log OWNER TO CURRENT_USER`,
		`SET ROLE punctual_audit`, `DROP TRIGGER audit_log_is_append_only ON punctual.audit_log`,
	} {
		if err := pg.Exec(ctx, c.DB.Callers, sql); !Denied(err) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	c.WantCount(1, "entries", `SELECT count(*) FROM punctual.audit_log`)
}

func TestOldEntriesAreForgottenAndNeverThoseOfThirtyDays(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	other := c.Intruder()
	for tenant, days := range map[int32][]int{c.Tenant: {29, 31, 400}, other.Tenant: {29, 31, 400, 500}} {
		for _, n := range days {
			at := time.Now().AddDate(0, 0, -n)
			var b pgx.Batch
			deleted := audit.Change{Action: audit.JobDelete, Name: fmt.Sprint(n)}
			Must(t, audit.Queue(t.Context(), &b, tenant, at, deleted))
			Must(t, c.DB.Callers.SendBatch(t.Context(), &b).Close())
		}
	}
	const ages = `SELECT string_agg(name, ' ' ORDER BY tenant, at DESC) FROM punctual.audit_log`
	for _, k := range []struct {
		retention time.Duration
		want      string
	}{
		{audit.DefaultRetention, "a 29 31 29 31"}, {time.Second, "a 29 29"},
	} {
		if _, _, err := audit.New(c.DB, k.retention).Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := c.Text(ages); left != k.want {
			t.Errorf("after %s: %q, want %q", k.retention, left, k.want)
		}
	}
	c.WantCount(0, "more entries", `SELECT punctual.forget_audit_log('1 day', 1)`)
}
