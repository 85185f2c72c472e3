package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// seedbed is a database with a replica in front of it.
type seedbed struct {
	*seeder
	t   *testing.T
	api *client.Client
}

func newSeedbed(t *testing.T) seedbed {
	t.Helper()
	dsn := pgtest.DSN(t)
	s, err := newSeeder(t.Context(), dsn, t.Logf)
	must(t, err)
	t.Cleanup(s.close)
	r, err := process.Serve(bounded(t), tinyConfig(t, dsn).Binary, dsn)
	must(t, err)
	t.Cleanup(r.Kill)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return seedbed{s, t, r.API}
}

// call calls the API, and reads the answer into out unless out is nil.
func (s seedbed) call(method, path string, in, out any) {
	s.t.Helper()
	_, err := s.api.Do(s.t.Context(), method, path, in, out)
	must(s.t, err)
}

func (s seedbed) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), sql, args...)
	must(s.t, err)
}

// read reads one value into out.
func (s seedbed) read(out any, sql string, args ...any) {
	s.t.Helper()
	must(s.t, s.pool.QueryRow(s.t.Context(), sql, args...).Scan(out))
}

// rows returns every table's rows about the first job with a name, as Postgres writes them. For ids and times of
// writing it returns only that they are there.
func (s seedbed) rows(name string) (all map[string]string) {
	s.t.Helper()
	s.read(&all, `
		WITH j AS (SELECT * FROM punctual.jobs WHERE name = $1 ORDER BY id LIMIT 1),
		r AS (
		    SELECT 'jobs' AS of, to_jsonb(j) AS r FROM j
		    UNION ALL
		    SELECT 'job_versions', to_jsonb(v) || jsonb_build_object('text', v.definition::text)
		    FROM punctual.job_versions v
		    JOIN j ON j.id = v.job_id
		    UNION ALL
		    SELECT 'schedules', to_jsonb(s) FROM punctual.schedules s JOIN j ON j.id = s.job_id
		    UNION ALL
		    SELECT 'exclusive', to_jsonb(x) FROM punctual.exclusive x JOIN j ON j.id = x.job_id
		    UNION ALL
		    SELECT 'runs', to_jsonb(x) FROM punctual.runs x JOIN j ON j.id = x.job_id
		    UNION ALL
		    SELECT 'attempts', to_jsonb(a)
		    FROM punctual.attempts a
		    JOIN punctual.runs x ON x.id = a.run_id
		    JOIN j ON j.id = x.job_id
		    UNION ALL
		    SELECT 'run_data', to_jsonb(d)
		    FROM punctual.run_data d
		    JOIN punctual.runs x ON x.id = d.run_id
		    JOIN j ON j.id = x.job_id),
		f AS (
		    SELECT of, key,
		           CASE WHEN value <> 'null'
		                 AND (key IN ('id', 'job_id', 'replica', 'fence', 'created_at', 'updated_at', 'valid_from',
		                              'claimed_at', 'started_at', 'finished_at')
		                      OR of = 'runs' AND key IN ('scheduled_for', 'due_at'))
		                THEN 'there' ELSE value::text END AS value
		    FROM r, jsonb_each(r.r))
		SELECT jsonb_object_agg(of || '.' || key, value) FROM f`, name)
	return all
}

func TestSeededJobsAreAsThoseOfTheAPI(t *testing.T) {
	measures(t)
	t.Parallel()
	s := newSeedbed(t)
	for name, j := range map[string]seed{
		"at rest": {prefix: "rest", first: 7, last: 7, tenants: defaultTenant, url: "https://example.com/a?b=c&d=e"},
		"one-shots": {
			prefix:  "due",
			first:   7,
			last:    7,
			tenants: defaultTenant,
			url:     "https://example.com/",
			at:      time.Now().Add(time.Hour).Truncate(time.Second),
		},
	} {
		must(t, s.jobs(t.Context(), j))
		job := j.prefix + "-00000007"
		seeded := s.rows(job)
		var definition json.RawMessage
		s.read(&definition, `
			DELETE FROM punctual.job_versions v
			USING punctual.jobs j
			WHERE j.id = v.job_id AND j.name = $1
			RETURNING v.definition::text`, job)
		s.exec(`DELETE FROM punctual.jobs WHERE name = $1`, job)
		s.call(http.MethodPost, "/v1/jobs", definition, nil)
		if diff := cmp.Diff(s.rows(job), seeded); diff != "" || len(seeded) < 25 {
			t.Errorf("%s, of the API (-) and seeded (+), %d columns:\n%s", name, len(seeded), diff)
		}
	}
}

func TestSeededJobsAreSpread(t *testing.T) {
	measures(t)
	t.Parallel()
	s := newSeedbed(t)
	ctx := t.Context()
	var ids []int32
	s.read(&ids, `
		WITH made AS (INSERT INTO punctual.tenants (name) SELECT 'tenant-' || i FROM generate_series(1, 10) i RETURNING id)
		SELECT array_agg(id) FROM made`)
	const n = 2*seedBatch + 10
	must(t, s.jobs(ctx, seed{prefix: "rest", first: 1, last: n, tenants: ids, url: "https://example.com/"}))
	must(t, s.settle(ctx))
	var got []int
	s.read(&got, `
		SELECT ARRAY[count(*), count(DISTINCT name), count(DISTINCT scheduled_for) / 1000, min(per), max(per),
		             count(*) FILTER (WHERE scheduled_for NOT BETWEEN now() + interval '12 h' AND now() + interval '7 d'),
		             count(*) FILTER (WHERE j.id::text !~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab]')]
		FROM punctual.jobs j
		JOIN punctual.schedules s ON s.job_id = j.id
		JOIN (SELECT tenant, count(*) AS per FROM punctual.schedules GROUP BY tenant) t ON t.tenant = j.tenant`)
	if diff := cmp.Diff([]int{n, n, n / 1000, n / 10, n / 10, 0, 0}, got); diff != "" {
		t.Errorf("jobs, names, slots / 1000, least and most of a tenant, slots outside the coming days, "+
			"ids that are not UUIDv7:\n%s", diff)
	}
}

func TestSeededHistoryIsAsRunsAre(t *testing.T) {
	measures(t)
	t.Parallel()
	s := newSeedbed(t)
	to := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(to.Close)
	ctx := t.Context()
	must(t, s.jobs(ctx, seed{prefix: "rest", first: 1, last: 3, tenants: defaultTenant, url: to.URL}))
	s.call(http.MethodPost, "/v1/jobs/rest-00000001/trigger", nil, nil)
	type run struct {
		ID           string          `json:"id"`
		Status       string          `json:"status"`
		ScheduledFor time.Time       `json:"scheduled_for"`
		Attempts     json.RawMessage `json:"attempts"`
	}
	var page struct {
		Data []run `json:"data"`
	}
	eventually(t, "the run", func() bool {
		s.call(http.MethodGet, "/v1/jobs/rest-00000001/runs", nil, &page)
		return len(page.Data) == 1 && page.Data[0].Status == "succeeded"
	})
	made := s.rows("rest-00000001")
	s.exec(`DELETE FROM punctual.runs`)
	must(t, s.history(ctx, 3))
	if diff := cmp.Diff(made, s.rows("rest-00000001")); diff != "" || len(made) < 50 {
		t.Errorf("a run (-) and a seeded one (+), %d columns:\n%s", len(made), diff)
	}
	must(t, s.history(ctx, 297))
	var at []time.Time
	for i := range 3 {
		s.call(http.MethodGet, fmt.Sprintf("/v1/jobs/rest-%08d/runs?limit=500", i+1), nil, &page)
		if len(page.Data) != 100 {
			t.Fatalf("%d runs of job %d, want 100", len(page.Data), i+1)
		}
		for _, r := range page.Data {
			at = append(at, r.ScheduledFor)
		}
	}
	if first, last := time.Since(slices.MinFunc(at, time.Time.Compare)),
		time.Since(slices.MaxFunc(at, time.Time.Compare)); first < 27*24*time.Hour || last > 24*time.Hour || last < 0 {
		t.Errorf("the history begins %s and ends %s ago", first, last)
	}
	var one run
	s.call(http.MethodGet, "/v1/runs/"+page.Data[50].ID, nil, &one)
	if one.Status != "succeeded" || !bytes.Contains(one.Attempts, []byte(`"succeeded"`)) {
		t.Errorf("one run is %+v, its attempts %s", one, one.Attempts)
	}
}
