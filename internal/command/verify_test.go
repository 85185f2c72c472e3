package command

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
)

// An hourly job that is 25 hours old, in SQL. All its slots since then have runs that succeeded.
const plantHistory = `
SELECT punctual.create_partitions(current_date - 3, current_date);
INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue)
VALUES ('019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11', 1, 1, 'planted', 'active', 'every', 1);
INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition)
	VALUES ('019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11', 1, now() - interval '25 hours', 'active',
	    '{"name":"planted","schedule":{"every":"1h"},"target":{"url":"http://localhost/"}}');
INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
	VALUES ('019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11',
	    date_trunc('hour', now()) + interval '1 hour', date_trunc('hour', now()) + interval '1 hour', 1, 1, 5, true);
INSERT INTO punctual.runs
	(id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane, attempt, status, trigger, fence)
	SELECT (lpad(to_hex(extract(epoch FROM slot)::bigint * 1000), 12, '0') || '80008000000000000000')::uuid,
	    '019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11', slot, slot, now(), 1, 1, 5, 1, 'succeeded', 'schedule',
	    nextval('punctual.fences')
	FROM generate_series(
	    date_trunc('hour', now()) - interval '26 hours', date_trunc('hour', now()), interval '1 hour') slot
	WHERE slot > now() - interval '25 hours';`

const removeOne = `DELETE FROM punctual.runs WHERE scheduled_for = date_trunc('hour', now()) - interval '2 hours'`

func execute(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	conn, err := pgtest.Connect(t.Context(), dsn)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func TestVerifyProvesACleanDatabaseAndNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	dsn := dsnFor(t)
	env := []string{"DATABASE_URL=" + dsn}
	says(t, succeeds(t, env, "verify"), "0 jobs", "No violation")

	execute(t, dsn, plantHistory)
	says(t, succeeds(t, env, "verify"), "1 job, 24 slots, 24 runs, 0 recorded skips", "No violation")

	execute(t, dsn, removeOne)
	missing := time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour).Format(time.RFC3339)
	code, out := punctual(t, env, "verify")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	says(t, out, "missing", "planted", missing, "1 violation: 1 missing")

	code, out = punctual(t, env, "verify", "--format=json", "--job=planted", "--tenant=default")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var violation struct{ Kind, Job, Slot string }
	var last struct {
		Summary struct{ Jobs, Slots, Violations int }
	}
	if err := json.Unmarshal([]byte(lines[0]), &violation); err != nil || violation.Kind != "missing" ||
		violation.Slot != missing || violation.Job != "planted" {
		t.Errorf("%v: %s", err, lines[0])
	}
	if err := json.Unmarshal([]byte(lines[1]), &last); err != nil || last.Summary.Jobs != 1 || last.Summary.Slots != 24 ||
		last.Summary.Violations != 1 {
		t.Errorf("%v: %s", err, lines[1])
	}
	succeeds(t, env, "verify", "--to="+time.Now().Add(-3*time.Hour).Format(time.RFC3339)) // without the violation
}

func TestVerifyNeedsNoMoreThanTheReadOnlyRole(t *testing.T) {
	t.Parallel()
	dsn := dsnFor(t)
	execute(t, dsn, plantHistory, `GRANT punctual_reader TO CURRENT_USER`)
	u, err := url.Parse(dsn)
	must(t, err)
	q := u.Query()
	q.Set("role", "punctual_reader")
	q.Set("default_transaction_read_only", "on")
	u.RawQuery = q.Encode()
	says(t, succeeds(t, []string{"DATABASE_URL=" + u.String()}, "verify"), "24 slots", "No violation")
}

func TestVerifyProvesWhatARealReplicaDid(t *testing.T) {
	t.Parallel()
	dsn := dsnFor(t)
	r := serve(t, dsn)
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(target.Close)
	for _, job := range []string{
		`{"name":"every","schedule":{"every":"1s"},"target":{"url":"` + target.URL + `"}}`,
		`{"name":"once","schedule":{"delay":"0s"},"target":{"url":"` + target.URL + `"}}`,
	} {
		calls(t, r, "POST", "/v1/jobs", json.RawMessage(job), nil)
	}
	await(t, "three runs", func() bool {
		var list struct{ Data []struct{ Status string } }
		_, err := r.API.Do(t.Context(), "GET", "/v1/runs?status=succeeded", nil, &list)
		return err == nil && len(list.Data) >= 3
	})
	says(t, succeeds(t, []string{"DATABASE_URL=" + dsn}, "verify"), "2 jobs", "No violation")
}

func TestVerifySaysWhyItCouldNotRun(t *testing.T) {
	t.Parallel()
	dsn := dsnFor(t)
	for _, test := range []wrongUse{
		{"a word in place of an instant", "verify --from=yesterday", "--from … yesterday … 2026-12-01T09:00:00Z"},
		{"a day in place of an instant", "verify --to=2026-12-01", "--to … 2026-12-01"},
		{
			"a window that goes backwards", "verify --from=2026-11-02T00:00:00Z --to=2026-11-01T00:00:00Z",
			"--from … not before … --to",
		},
		{
			"a window in the future", "verify --from=2199-01-01T00:00:00Z --to=2199-01-02T00:00:00Z",
			"verify: the window begins in the future: at 2199-01-01T00:00:00Z, and now is",
		},
		{"no such job", "verify --job=nobody", `job "nobody" … not found`},
		{"no such tenant", "verify --tenant=nobody", `tenant "nobody" … not found`},
		{"a grace that goes backwards", "verify --grace=-1s", "--grace"},
		{"too much jitter", "verify --default-jitter=2h", "--default-jitter"},
		{"an unknown format", "verify --format=xml", "--format … text … json"},
	} {
		test.check(t, 2, "DATABASE_URL="+dsn)
	}
	unreachable := wrongUse{"an unreachable database", "verify", "--database-url … refused"}
	unreachable.check(t, 2, "DATABASE_URL=postgres://127.0.0.1:1/x")
	empty := wrongUse{"no schema", "verify", "punctual migrate"}
	empty.check(t, 2, "DATABASE_URL="+pgtest.EmptyDSN(t))
}
