package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	. "punctual/internal/storetest"
	"punctual/migrations"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// Half of the callers roll back.
func TestARunFromSQLExistsIfTheTransactionCommits(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("send-reminder", Never)
	role, app := c.App()
	c.Exec(`CREATE TABLE public.orders (id int); GRANT ALL ON public.orders TO ` + role)
	callers := 10_000
	if testing.Short() {
		callers = 400
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	runs := map[uuid.UUID]bool{}
	for first, conn := range []*pgx.Conn{app, c.As(role), c.As(role), c.As(role)} {
		all.Go(func() {
			for i := first; i < callers; i += 4 {
				tx, err := conn.Begin(t.Context())
				Must(t, err)
				Must(t, pg.Exec(t.Context(), tx, `INSERT INTO public.orders VALUES ($1)`, i))
				run := Ask[uuid.UUID](t, tx, `
					SELECT shop_jobs.trigger('send-reminder', body => '{"order":  42}', key => $1)`, fmt.Sprint(i))
				if i/4%2 == 1 {
					Must(t, tx.Rollback(t.Context()))
					continue
				}
				Must(t, tx.Commit(t.Context()))
				mu.Lock()
				runs[run] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var claimed []domain.Assignment
	for more := c.ClaimReady(500).Runs; len(more) > 0; more = c.ClaimReady(500).Runs {
		claimed = append(claimed, more...)
	}
	if orders := c.Count(`SELECT count(*) FROM public.orders`); len(claimed) != callers/2 || orders != callers/2 {
		t.Errorf("%d runs and %d orders of %d callers", len(claimed), orders, callers)
	}
	for _, a := range claimed {
		if !runs[a.RunID] || a.Job.ID != job.ID || string(a.Body) != `{"order":  42}` {
			t.Errorf("%+v", a)
		}
		delete(runs, a.RunID)
	}
	if by := *c.Run(claimed[0].RunID).TriggeredBy; by != "database:"+role+"/"+role {
		t.Errorf("triggered by %s", by)
	}
}

// The work of an attempt and its end are one transaction of the target, whatever the target answers then.
func TestATargetEndsItsAttemptThroughItsGrant(t *testing.T) {
	c := NewReplica(t)
	role, app := c.App()
	c.Exec(`CREATE TABLE public.effects (run uuid, fence bigint); GRANT ALL ON public.effects TO ` + role)
	c.Exec(`UPDATE punctual.tenants SET reports_since = reports_since - interval '1 min' WHERE id = $1`, c.Tenant)
	c.Renewed()
	c.Create("invoice", Never)
	Ask[uuid.UUID](t, app, `SELECT shop_jobs.trigger('invoice')`)
	a := c.One(c.ClaimReady(10))
	tx, err := app.Begin(t.Context())
	Must(t, err)
	Must(t, pg.Exec(t.Context(), tx, `INSERT INTO public.effects VALUES ($1, $2)`, a.RunID, a.Fence))
	Must(t, pg.Exec(t.Context(), tx, `SELECT shop_jobs.complete(run => $1, fencing_token => $2, result => '{"rows": 7}')`,
		a.RunID, a.Fence))
	Must(t, tx.Commit(t.Context()))
	c.Finish(Failed(a))
	if run := c.Run(a.RunID); run.Status != domain.StatusSucceeded {
		t.Errorf("the run is %s", run.Status)
	}
	WantRefused(t, app, "PU409", `SELECT shop_jobs.fail($1, $2, 'too late')`, a.RunID, a.Fence)
}

func TestEachFunctionOfAGrant(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("send-reminder", Never)
	role, app := c.App()
	pending := func(key string) jobs.DatedRun {
		t.Helper()
		d, err := c.Jobs.GetDated(t.Context(), c.Tenant, "send-reminder", key)
		Must(t, err)
		return d
	}
	soon := func(d jobs.DatedRun, in time.Duration) {
		t.Helper()
		if off := d.DueAt.Sub(c.Clock().Add(in)); off > time.Second || off < -10*time.Second {
			t.Errorf("%s is due %s beside now + %s", d.Key, off, in)
		}
	}
	run := Ask[uuid.UUID](t, app, `
		SELECT shop_jobs.run_in('send-reminder', interval '1 hour', body => '"text"', key => 'in',
		not_after => '2 h', sequence => 5, expires_after => '1 min', headers => '{"X-Order": "{{run}}"}')`)
	d := pending("in")
	soon(d, time.Hour)
	if d.Run != run || *d.Sequence != 5 || d.ExpiresAfter.Value() != time.Minute || d.LatestAt == nil {
		t.Errorf("%+v", d)
	}
	if again := Ask[uuid.UUID](t, app, `SELECT shop_jobs.run_in($1, '2 h', key => 'in')`, job.ID.String()); again != run {
		t.Errorf("kept: %s, want %s", again, run)
	}
	if moved := Ask[uuid.UUID](t, app, `
		SELECT shop_jobs.run_at('send-reminder', $1, key => 'in', on_conflict => 'replace')`,
		c.Clock().Add(20*time.Minute)); moved != pending("in").Run {
		t.Errorf("moved: %s", moved)
	}
	soon(pending("in"), 20*time.Minute)
	WantRefused(t, app, "PU409", `SELECT shop_jobs.trigger('send-reminder', key => 'in', on_conflict => 'error')`)

	many, err := pgx.CollectRows(pg.Query(t.Context(), app, `SELECT key, run, due_at FROM shop_jobs.run_many($1)`, `[
		{"job": "send-reminder", "key": "b", "delay": "1h30m", "body": {"a":  1}, "expires_after": null},
		{"job": "send-reminder", "key": "a", "at": "2100-01-01T00:00:00+01:00", "headers": {"X-A": "b"}, "sequence": 7},
		{"job": "send-reminder"},
		{"job": "send-reminder", "key": "in", "on_conflict": "keep"}]`), pgx.RowToStructByPos[struct {
		Key   string
		Run   uuid.UUID
		DueAt time.Time
	}])
	Must(t, err)
	if len(many) != 4 || many[0].Key != "b" || many[1].Key != "a" || many[3].Run != pending("in").Run ||
		many[1].DueAt.UTC().Format(time.RFC3339) != "2099-12-31T23:00:00Z" {
		t.Errorf("%+v", many)
	}
	soon(pending("b"), 90*time.Minute)
	if a := c.One(c.ClaimReady(10)); a.RunID != many[2].Run {
		t.Errorf("claimed: %+v", a)
	}

	for _, call := range []string{`complete(gen_random_uuid(), 1, '{}')`, `fail(gen_random_uuid(), 1, 'no stock')`} {
		WantRefused(t, app, "PU404", `SELECT shop_jobs.`+call)
	}
	c.WantCount(1, "tenants whose targets may report", `
		SELECT count(*) FROM punctual.tenants WHERE reports_since IS NOT NULL`)
	for i, want := range []bool{true, false} {
		if got := Ask[bool](t, app, `SELECT shop_jobs.cancel('send-reminder', 'b')`); got != want {
			t.Errorf("cancel %d: %t", i, got)
		}
	}
	if got := c.Text(`SELECT string_agg(action || ' ' || name || ' ' || actor_kind || ' ' || actor, ';')
		FROM punctual.audit_entries WHERE actor_kind = 'database'`); got !=
		"run.cancel send-reminder database "+role+"/"+role {
		t.Errorf("the audit log says %q", got)
	}
}

// sqlRefusals are calls that are refused, each with the SQLSTATE, the field and a word of the hint.
var sqlRefusals = []struct{ call, code, field, hint string }{
	{`run_in('send-remindr', '1 h')`, "PU404", "job", "is send-reminder."}, // the one before it
	{`run_in('0199c9a2-7b3c-7d10-9c3e-2f6f3f1d5a01', '1 h')`, "PU404", "job", ""},
	{`run_in(NULL, '1 h')`, "PU422", "job", "name"},
	{`run_in('send-reminder', NULL)`, "PU422", "at", "trigger"},
	{`run_in('send-reminder', '-1 s')`, "PU422", "delay", "interval"},
	{`run_in('send-reminder', '11 years')`, "PU422", "delay", "interval"},
	{`run_at('send-reminder', NULL)`, "PU422", "at", "trigger"},
	{`run_at('send-reminder', 'infinity')`, "PU422", "at", ""},
	{`run_at('send-reminder', '-infinity')`, "PU422", "at", "past"},
	{`run_at('send-reminder', now() - interval '25 h')`, "PU422", "at", "past"},
	{`trigger('send-reminder', key => '')`, "PU422", "key", "Leave it out"},
	{`trigger('send-reminder', key => repeat('x', 256))`, "PU422", "key", "Leave it out"},
	{`trigger('send-reminder', key => '..')`, "PU422", "key", "path"},
	{`run_many('[{"job": "send-reminder", "key": "."}]')`, "PU422", "runs[0].key", "path"},
	{`trigger('send-reminder', on_conflict => 'move')`, "PU422", "on_conflict", "replace"},
	{`trigger('send-reminder', expires_after => '0')`, "PU422", "expires_after", "interval"},
	{`run_in('send-reminder', '0', not_after => '0')`, "PU422", "not_after", "interval"},
	{`trigger('send-reminder', json_build_object('a', repeat('x', 262144)))`, "PU422", "body", "key"},
	{`trigger('send-reminder', '{"a": ["\ud800"]}')`, "PU422", "body", "key"},
	{`run_many('[{"job": "send-reminder", "body": "\u0000"}]')`, "PU422", "runs[0]", "character"},
	{`emit('order', ('{"a": ' || repeat('[', 64) || repeat(']', 64) || '}')::json)`, "PU422", "body", "key"},
	{`complete(gen_random_uuid(), 1, '1e400')`, "PU422", "result", "elsewhere"},
	{`complete(gen_random_uuid(), 1, (repeat('[', 12000) || repeat(']', 12000))::json)`, "PU422", "result", "elsewhere"},
	{`trigger('send-reminder', headers => '[]')`, "PU422", "headers", "X-Order"},
	{`trigger('send-reminder', headers => '{"X-A": 1}')`, "PU422", "headers.X-A", "strings"},
	{`cancel('send-remind', 'k')`, "PU404", "job", "is send-reminder."}, // the one after it
	{`trigger('send')`, "PU404", "job", "is send-alpha."},
	{`trigger('send-zebra-x')`, "PU404", "job", "is send-zebra-y."},
	{`trigger('zebra')`, "PU404", "job", "is send-zebra-y."}, // nothing is like it
	{`cancel('send-reminder', NULL)`, "PU422", "key", "key"},
	{`run_many(NULL)`, "PU422", "runs", "job"},
	{`run_many('{}')`, "PU422", "runs", "job"},
	{`run_many((SELECT json_agg(1) FROM generate_series(1, 1001)))`, "PU422", "runs", "again"},
	{`run_many('[1]')`, "PU422", "runs[0]", "job"},
	{`run_many('[{"job": "send-reminder"}, {"job": "send-remindr"}]')`, "PU404", "runs[1].job", "send-reminder"},
	{`run_many('[{"job": "send-reminder", "dely": "1h"}]')`, "PU422", "runs[0].dely", "delay"},
	{`run_many('[{"job": 1}]')`, "PU422", "runs[0].job", "string"},
	{`run_many('[{"job": "send-reminder", "delay": "soon"}]')`, "PU422", "runs[0].delay", "1h30m"},
	{`run_many('[{"job": "send-reminder", "delay": "-1h"}]')`, "PU422", "runs[0].delay", "interval"},
	{`run_many('[{"job": "send-reminder", "at": "tomorrow"}]')`, "PU422", "runs[0].at", "offset"},
	{`run_many('[{"job": "send-reminder", "at": "2026-12-01T09:00:00"}]')`, "PU422", "runs[0].at", "offset"},
	{`run_many('[{"job": "send-reminder", "at": "2026-13-01T09:00:00Z"}]')`, "PU422", "runs[0].at", "offset"},
	{
		`run_many('[{"job": "send-reminder", "at": "2100-01-01T00:00:00Z", "delay": "1h"}]')`, "PU422", "runs[0].delay",
		"two",
	},
	{`run_many('[{"job": "send-reminder", "sequence": "5"}]')`, "PU422", "runs[0].sequence", "number"},
	{`run_many('[{"job": "send-reminder", "sequence": 1.5}]')`, "PU422", "runs[0].sequence", "whole"},
	{`run_many('[{"job": "send-reminder", "headers": {"Host": "a"}}]')`, "PU422", "runs[0].headers.Host", ""},
}

func TestARefusalInSQLNamesTheFieldAndWhatIsRight(t *testing.T) {
	c := NewFixture(t)
	for _, name := range []string{"a", "send-alpha", "send-reminder", "send-zebra", "send-zebra-y"} {
		c.Create(name, Never)
	}
	_, app := c.App()
	for _, r := range sqlRefusals {
		got := WantRefused(t, app, r.code, `SELECT shop_jobs.`+r.call)
		if got.ColumnName != r.field || !strings.HasPrefix(got.Message, r.field+": ") ||
			!strings.Contains(got.Detail, r.field) ||
			got.Hint == "" || !strings.Contains(got.Hint, r.hint) {
			t.Errorf("%s: %s (%s; %s), column %s", r.call, got.Message, got.Detail, got.Hint, got.ColumnName)
		}
	}
	c.WantCount(0, "runs", `SELECT count(*) FROM punctual.dated`)
}

// SQL and the API refuse the same bodies and headers.
func TestSQLRefusesTheRequestsThatTheAPIRefuses(t *testing.T) {
	c := NewFixture(t)
	c.Create("job", Never)
	_, app := c.App()
	long := strings.Repeat("x", 256<<10)
	bodies := []string{
		`1`, `null`, `"{{run}}"`, `"{{runs}}"`, `"{{run"`, `"{{{{run"`, `"{{{run}}"`, `"{{{{{run}}"`,
		`"{{scheduled_for|date}}"`,
		`"{{scheduled_for_local|unix_ms}} {{job}}"`, `"{{scheduled_for|dates}}"`, `"{{run|date}}"`, `{"{{x}}": "{{run}}"}`,
		`{"a": [1, {"b": "\u007b\u007bx}}"}]}`, `{"a": "\u007b\u007brun}}"}`, `"` + long[:len(long)-2] + `"`,
		`"` + long + `"`,
		`"` + long[:len(long)-100] + `{{job}}"`, `"` + long[:len(long)-300] + `{{job}}"`, `"\u0000"`, "{ \"a\" :\n2 }",
	}
	headers := []map[string]string{
		{},
		{"X-A": "b"},
		{"x-a": "", "x-b": ""},
		{"X-A": "1", "x-a": "2"},
		{"": "a"},
		{"X A": "b"},
		{"X:": "b"},
		{"é": "b"},
		{"X": " b"},
		{"X": "b\t"},
		{"X": "b\tc"},
		{"X": "b\nc"},
		{"X": "\x7f"},
		{"X": "é"},
		{"X": "{{run}}"},
		{"X": "{{walk}}"},
		{"X": long[:8192]},
		{"X": long[:8193]},
		{"X": long[:8150] + "{{job}}"},
		{long[:256]: "a"},
		{long[:257]: "a"},
		{"Authorization": "a"},
		{"Content-Type": "a/b"},
		{"Te": "a"},
		{"Tea": "a"},
		{"webhook": "a"},
		{"Webhook-Id": "a"},
		{"PUNCTUAL_RUN": "a"},
		{"Proxy-Authorization": "a"},
		{"Content_Length": "1"},
		{"Idempotency-Key": "a"},
		{"Host": "a"},
		{"Upgrade": "a"},
		{"HTTP2-Settings": "a"},
		{"Expect": "a"},
		{"Traceparent": "a"},
		{"Trailer": "a"},
		{"Transfer-Encoding": "a"},
		{"Connection": "a"},
		{"Keep-Alive": "a"},
		{"Tracestate": "a"},
	}
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprint("X-", i)] = "a"
	}
	headers = append(headers, many)
	good := 0
	check := func(body *string, given map[string]string) {
		t.Helper()
		var raw json.RawMessage
		var text *string
		if body != nil {
			raw = json.RawMessage(*body)
		}
		if given != nil {
			encoded, err := json.Marshal(given)
			Must(t, err)
			text = new(string(encoded))
		}
		_, err := app.Exec(t.Context(), `
			SELECT shop_jobs.trigger('job', $1::text::json, headers => $2::text::json)`, body, text)
		problems := jobspec.ValidateRequest("", given, raw)
		if fault := jobspec.UnfitJSON(raw); fault != "" {
			problems = append(problems, jobspec.Blame("body", "%s", fault))
		}
		failed, _ := errors.AsType[*pgconn.PgError](err)
		switch {
		case err == nil && len(problems) == 0:
			good++
		case err == nil || len(problems) == 0:
			t.Errorf("%.80s %.80v: SQL says %v, the API %.200v", raw, given, err, problems)
		case failed.Code != "PU422":
			t.Errorf("%.80s %.80v: %v", raw, given, err)
		}
	}
	for _, key := range []string{"a", "...", "a/b", "ä?#&", "", ".", "..", "a\nb", "\x7f", "\u0085", long[:255], long[:256]} {
		_, err := app.Exec(t.Context(), `SELECT shop_jobs.trigger('job', key => $1)`, key)
		if fault := domain.KeyFault(key); (err == nil) != (fault == "") {
			t.Errorf("the key %.80q: SQL says %v, the API %q", key, err, fault)
		} else if err == nil {
			good++
		}
	}
	for _, body := range bodies {
		check(&body, nil)
	}
	for _, h := range headers {
		check(nil, h)
	}
	if good < 20 {
		t.Errorf("only %d are good", good)
	}
	c.WantCount(good, "runs", `SELECT count(*) FROM punctual.dated`)
	c.WantCount(1, "bodies with their bytes", `
		SELECT count(*) FROM punctual.dated WHERE body = convert_to(E'{ "a" :\n2 }', 'UTF8')`)
}

func TestOnlyTheGrantedRoleMakesRunsInSQL(t *testing.T) {
	c := NewFixture(t)
	c.Create("theirs", Never)
	role, app := c.App()
	other := c.NewTenant("other")
	d := c
	d.Tenant = other.ID
	d.Create("ours", Never)
	otherRole, stranger := c.Login("stranger")
	Must(t, c.Grant("other", "other_jobs", otherRole))

	const denied = "42501"
	WantRefused(t, stranger, denied, `SELECT shop_jobs.trigger('theirs')`)
	c.Exec(`GRANT USAGE ON SCHEMA shop_jobs TO ` + otherRole)
	WantRefused(t, stranger, denied, `SELECT shop_jobs.trigger('theirs')`)
	WantRefused(t, stranger, "PU404", `SELECT other_jobs.trigger('theirs')`)
	for _, call := range []string{
		`punctual.run_for(1, 'x', 'theirs', now(), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`,
		`punctual.run_many_for(1, 'x', '[]')`, `punctual.cancel_for(1, 'x', 'theirs', 'k')`,
		`punctual.make_schema(1, 'mine', 'x')`, `punctual.drop_schema('shop_jobs', true)`, `punctual.end_grant('shop_jobs')`, `punctual.renew_grants()`,
		`punctual.date_run(1, 'x', '', 'x', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`,
		`punctual.job_named(1, 'theirs', 'x')`,
	} {
		WantRefused(t, app, denied, `SELECT `+call)
		// USAGE of the schema alone does not help.
		c.Exec(`GRANT USAGE ON SCHEMA punctual TO ` + role)
		WantRefused(t, app, denied, `SELECT `+call)
		c.Exec(`REVOKE USAGE ON SCHEMA punctual FROM ` + role)
	}
	WantRefused(t, app, denied, `CREATE FUNCTION shop_jobs.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'`)

	// A pooler's role that switches to the granted one, and back.
	pooler, pooled := c.Login("pooler")
	c.Exec(`GRANT ` + role + `, ` + otherRole + ` TO ` + pooler)
	c.Exec(`ALTER ROLE ` + pooler + ` NOINHERIT`)
	WantRefused(t, pooled, denied, `SELECT shop_jobs.trigger('theirs')`)
	Must(t, pg.Exec(t.Context(), pooled, `SET ROLE `+role))
	Ask[uuid.UUID](t, pooled, `SELECT shop_jobs.trigger('theirs', key => 'pooled')`)
	Must(t, pg.Exec(t.Context(), pooled, `SET ROLE `+otherRole))
	WantRefused(t, pooled, denied, `SELECT shop_jobs.trigger('theirs')`)
	Ask[uuid.UUID](t, pooled, `SELECT other_jobs.trigger('ours')`)
	if by := c.Text(`SELECT triggered_by FROM punctual.dated WHERE key = 'pooled'`); by != "database:"+pooler+"/"+role {
		t.Errorf("by %s", by)
	}

	// Through a function that runs with the rights of its owner: the owner's grant counts.
	c.Exec(`CREATE SCHEMA wrapped; GRANT USAGE, CREATE ON SCHEMA wrapped TO ` + otherRole + `, ` + role)
	Must(t, pg.Exec(t.Context(), stranger, `CREATE FUNCTION wrapped.call(job text) RETURNS uuid
		LANGUAGE sql SECURITY DEFINER AS 'SELECT other_jobs.trigger(job)'`))
	Ask[uuid.UUID](t, app, `SELECT wrapped.call('ours')`)
	WantRefused(t, app, "PU404", `SELECT wrapped.call('theirs')`)

	// Things of the caller's with the names of ours.
	for _, sql := range []string{
		`CREATE TEMP TABLE jobs AS SELECT gen_random_uuid() AS id`, `CREATE TEMP TABLE dated (key text)`,
		`CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '1999-01-01' $$`,
		`CREATE FUNCTION pg_temp.octet_length(text) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$`,
		`CREATE FUNCTION wrapped.coalesced(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'hacked' $$`,
		`CREATE OPERATOR wrapped.|| (FUNCTION = wrapped.coalesced, LEFTARG = text, RIGHTARG = text)`,
		`SET search_path = pg_temp, wrapped, pg_catalog, shop_jobs`,
	} {
		Must(t, pg.Exec(t.Context(), app, sql))
	}
	WantRefused(t, app, "PU422", `SELECT shop_jobs.trigger('theirs', key => repeat('x', 256))`)
	Ask[uuid.UUID](t, app, `SELECT shop_jobs.trigger('theirs', key => 'hacked')`)
	if n := c.Count(`SELECT count(*) FROM punctual.dated
		WHERE due_at > now() - interval '1 hour' AND triggered_by LIKE 'database:%/%'`); n != 4 {
		t.Errorf("%d runs", n)
	}
}

// The caller's transaction stays open, and has made, moved and cancelled runs.
func TestAnOpenTransactionOfACallerHoldsUpNothing(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Every(time.Hour))
	_, app := c.App()
	Ask[uuid.UUID](t, app, `SELECT shop_jobs.trigger('job', key => 'moved')`)
	Ask[uuid.UUID](t, app, `SELECT shop_jobs.trigger('job', key => 'cancelled')`)
	free := Ask[uuid.UUID](t, app, `SELECT shop_jobs.trigger('job', key => 'free')`)
	tx, err := app.Begin(t.Context())
	Must(t, err)
	Ask[uuid.UUID](t, tx, `SELECT shop_jobs.trigger('job', key => 'new', body => '1')`)
	Ask[uuid.UUID](t, tx, `SELECT shop_jobs.trigger('job', key => 'free')`)
	Ask[uuid.UUID](t, tx, `SELECT shop_jobs.run_in('job', '1 h', key => 'moved', on_conflict => 'replace')`)
	Ask[bool](t, tx, `SELECT shop_jobs.cancel('job', 'cancelled')`)

	ctx := Bounded(t)
	c.SlotAgo(job.ID, 0)
	if n := len(c.Claim(10, false).Runs); n != 1 {
		t.Errorf("%d slots claimed", n)
	}
	if a := c.One(c.ClaimReady(10)); a.RunID != free {
		t.Errorf("claimed %s", a.RunID)
	}
	impatient := c.Connect()
	Must(t, pg.Exec(ctx, impatient, `SET lock_timeout = '1ms'`))
	for _, sql := range []string{
		`SELECT FROM punctual.jobs FOR UPDATE`, `SELECT FROM punctual.schedules FOR UPDATE`,
		`SELECT FROM punctual.job_versions FOR UPDATE`, `SELECT FROM punctual.tenants FOR UPDATE`,
		`VACUUM punctual.dated`, `VACUUM punctual.jobs`,
	} {
		if _, err := impatient.Exec(ctx, sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	c.Edit("job", func(d *jobspec.Definition) { d.Priority = jobspec.PriorityHigh })
	c.Put(c.Get("job").Definition)
	c.Pause("job")
	_, err = c.Jobs.ResumeJob(ctx, c.Tenant, "job", "")
	Must(t, err)
	c.FitDated()
	Must(t, c.Jobs.DeleteJob(ctx, c.Tenant, "job", nil, false))
	c.FitDated()
	Must(t, tx.Commit(ctx))
	c.ClaimReady(10)
	c.FitDated()
	c.WantCount(0, "runs of the deleted job", `SELECT count(*) FROM punctual.dated`)
}

// grantsInTheZoo grants where Punctual may make no schema, and then makes runs in a session with odd defaults.
func grantsInTheZoo(c Fixture, super string) {
	c.T.Helper()
	ctx := c.T.Context()
	err := c.Grant("default", "shop_jobs", "test")
	if refused, is := errors.AsType[*jobspec.Refusal](err); !is || refused.Code != "state" {
		c.T.Errorf("it is no refusal: %v", err)
	}
	told := regexp.MustCompile("`(CREATE SCHEMA .*?)`").FindStringSubmatch(fmt.Sprint(err))
	if told == nil {
		c.T.Fatalf("it does not tell how to make the schema: %v", err)
	}
	admin := patiently(c, super)
	Must(c.T, pg.Exec(ctx, admin, told[1]))
	Must(c.T, admin.Close(ctx))
	Must(c.T, c.Grant("default", "shop_jobs", "test"))
	odd := patiently(c, c.Options.DatabaseURL)
	Ask[uuid.UUID](c.T, odd, `SELECT shop_jobs.run_in('job', '1 h', $1::json, headers => '{"X-A": "{{run}}"}')`,
		`["{{scheduled_for|date}}", {"a": null}]`)
	Ask[uuid.UUID](c.T, odd, `SELECT run FROM shop_jobs.run_many($1)`,
		`[{"job": "job", "at": "2100-01-01T00:00:00.5Z", "not_after": "1h30m"}]`)
	WantRefused(c.T, odd, "PU422", `SELECT shop_jobs.trigger('job', $1::json)`, `"{{{run}} \u0000"`)
	Must(c.T, odd.Close(ctx))
}

// patiently connects without limits of time. Functions keep those of their caller, and a slow machine has to keep them,
// too. SET itself needs no plan, so nothing is compiled for it.
func patiently(c Fixture, dsn string) *pgx.Conn {
	c.T.Helper()
	conn, err := pgx.Connect(c.T.Context(), dsn)
	Must(c.T, err)
	for _, limit := range []string{
		"statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout",
	} {
		Must(c.T, pg.Exec(c.T.Context(), conn, `SET `+limit+` = 0`))
	}
	return conn
}

// Two transactions with the same keys in opposite order wait for each other. Neither fails.
func TestManyRunsInOppositeOrderDoNotDeadlock(t *testing.T) {
	c := NewFixture(t)
	c.Create("a", Never)
	c.Create("b", Never)
	role, _ := c.App()
	var given []string
	for i := range 100 {
		for _, job := range []string{"a", "b"} {
			given = append(given, fmt.Sprintf(`{"job": %q, "key": "%d", "on_conflict": "replace"}`, job, i))
		}
	}
	forth := "[" + strings.Join(given, ",") + "]"
	slices.Reverse(given)
	back := "[" + strings.Join(given, ",") + "]"
	done := make(chan error)
	for _, list := range []string{forth, back} {
		conn := c.As(role)
		go func() {
			var err error
			for range 20 {
				if _, failed := conn.Exec(t.Context(), `SELECT shop_jobs.run_many($1)`, list); failed != nil {
					err = failed
				}
			}
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	c.WantCount(200, "runs", `SELECT count(*) FROM punctual.dated`)
}

func TestAGrantIsMadeRenewedAndRevoked(t *testing.T) {
	c := NewFixture(t)
	c.Create("job", Never)
	role, app := c.App()
	name, ctx := c.TenantName(), t.Context()
	Must(t, c.Grant(name, "shop_jobs", role)) // changes nothing
	c.Exec(`CREATE SCHEMA taken; CREATE TABLE taken.mine (); CREATE SCHEMA empty`)
	c.NewTenant("other")
	for _, r := range []struct{ tenant, schema, role, says string }{
		{"nobody", "x", role, `"nobody"`},
		{name, "x", "nobody", "CREATE ROLE"},
		{name, "X", role, "small letters"},
		{name, "taken", role, "not empty"},
		{name, "punctual", role, "not empty"},
		{name, "pg_catalog", role, "small letters"},
		{name, "public", role, "belongs to all"},
		{name, "information_schema", role, "belongs to all"},
		{"other", "shop_jobs", role, "is granted to role " + role + " for tenant default"},
	} {
		if err := c.Grant(r.tenant, r.schema, r.role); err == nil || !strings.Contains(err.Error(), r.says) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	Must(t, c.Grant("other", "empty", role))

	// A new release makes the functions anew.
	c.Exec(`DROP FUNCTION shop_jobs.run_at, shop_jobs.cancel;
		CREATE OR REPLACE FUNCTION shop_jobs.cancel(job text, key text) RETURNS boolean
			LANGUAGE sql AS 'SELECT NULL::boolean';
		INSERT INTO punctual.grants VALUES ('gone', 1, 'gone', now(), 'x')`)
	if _, err := migrations.Up(ctx, c.Options.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	Ask[uuid.UUID](t, app, `SELECT shop_jobs.run_at('job', now(), key => 'k')`)
	if !Ask[bool](t, app, `SELECT shop_jobs.cancel('job', 'k')`) {
		t.Error("the function was not renewed")
	}

	for _, tenant := range []string{"other", "nobody"} {
		if _, err := c.Tenants.Revoke(ctx, tenant, "shop_jobs"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("tenant %s: %v", tenant, err)
		}
	}
	if left, err := c.Tenants.Revoke(ctx, name, "shop_jobs"); err != nil || len(left) > 0 {
		t.Errorf("%v, and left is %q", err, left)
	}
	WantRefused(t, app, "3F000", `SELECT shop_jobs.trigger('job')`)
	left, err := c.Tenants.DeleteTenant(ctx, "other")
	Must(t, err)
	if len(left) > 0 {
		t.Errorf("left is %q", left)
	}
	// The schema empty was there before its grant, so it stays, and is empty again.
	c.WantCount(1, "schema", `SELECT count(*) FROM pg_namespace WHERE nspname IN ('shop_jobs', 'empty')`)
	c.Exec(`DROP SCHEMA empty`)
	if got := c.Text(`SELECT string_agg(action || ' ' || coalesce(before, after)::text, ' ' ORDER BY at)
		FROM punctual.audit_entries WHERE tenant = 1 AND action LIKE 'tenant.%'`); got != fmt.Sprintf(
		`tenant.grant {"schema":"shop_jobs","role":%q} tenant.revoke {"schema":"shop_jobs","role":%[1]q}`, role) {
		t.Errorf("the audit log says %s", got)
	}
}

// The revoked holds on to the functions, by something of its own that depends on them. Its right is gone all the same,
// and the operator reads what is left.
func TestTheRevokedCannotKeepTheirGrant(t *testing.T) {
	t.Parallel()
	const revoke, deleteTenant = "revoke", "delete the tenant"
	for _, how := range []string{revoke, deleteTenant} {
		t.Run(how, func(t *testing.T) {
			c := NewFixture(t)
			c.Tenant = c.NewTenant("victim").ID
			role, app := c.App()
			Ask[uuid.UUID](t, app, `SELECT shop_jobs.emit('before')`)
			Must(t, pg.Exec(t.Context(), app, `CREATE TEMP TABLE pin (x uuid DEFAULT shop_jobs.emit('pinned'))`))
			c.Exec(`CREATE TABLE shop_jobs.others (); CREATE SCHEMA other_jobs`)
			Must(t, c.Grant("victim", "other_jobs", role))
			take := func() ([]string, error) { return c.Tenants.Revoke(t.Context(), "victim", "shop_jobs") }
			if how == deleteTenant {
				take = func() ([]string, error) { return c.Tenants.DeleteTenant(t.Context(), "victim") }
			}
			left, err := take()
			Must(t, err)
			all := strings.Join(left, "\n")
			for _, part := range []string{
				"function shop_jobs.emit(text,json): default value for column x of table pg_temp",
				"schema shop_jobs: ", "table shop_jobs.others",
			} {
				if !strings.Contains(all, part) {
					t.Errorf("it does not say that %q is left, but %q", part, left)
				}
			}
			WantRefused(t, app, "42501", `SELECT shop_jobs.emit('after')`)
			WantRefused(t, app, "42501", `INSERT INTO pin DEFAULT VALUES`)
			c.WantCount(1, "function", `SELECT count(*) FROM pg_proc WHERE pronamespace = 'shop_jobs'::regnamespace`)
			c.WantCount(0, "grants of the schema", `SELECT count(*) FROM punctual.grants WHERE schema = 'shop_jobs'`)
		})
	}
}
