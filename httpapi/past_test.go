package httpapi

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/httpapi/problem"
	"punctual/internal/pgtest"
	"punctual/store"
	"punctual/store/pg"
)

// withStandby serves a database that has a standby.
func withStandby(t *testing.T) (*service, pgtest.Pair) {
	t.Helper()
	p := pgtest.NewPair(t)
	st, err := store.Open(t.Context(), store.Options{
		DatabaseURL: p.DSN, Master: pgtest.Master(t), Replica: true, DefaultJitter: 10 * time.Second,
		Standby: pg.Standby{URL: p.Copy, MaxStaleness: time.Hour},
	})
	must(t, err)
	t.Cleanup(st.Close)
	return (&service{t: t, store: st}).another(Config{NoAuth: true, Log: slog.New(slog.DiscardHandler)}), p
}

// ended ends all runs.
func (s *service) ended() {
	s.exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now(), attempt = 1, claimed_at = now(),
		started_at = now(), replica = gen_random_uuid(), http_status = 200 WHERE finished_at IS NULL`)
	s.exec(`DELETE FROM punctual.ready`)
}

// The parts share one pair, as it takes seconds to start.
func TestReadsFromAStandby(t *testing.T) {
	t.Parallel()
	s, p := withStandby(t)
	s.create(minimal("job"))
	run := s.do("POST", "/v1/jobs/job/trigger", "").want(202).fields()["id"].(string)
	s.ended()
	p.Replayed()
	// On a standby that lags, what an operation of the past shows is old, and what any other shows is not.
	p.OnStandby(`SELECT pg_wal_replay_pause()`)
	written := s.do("POST", "/v1/jobs/job/pause", `{"note":"just now"}`).want(200)
	position := written.header.Get(problem.HeaderPosition)
	if _, ok := pg.ParsePosition(position); !ok {
		t.Fatalf("the write has the position %q", position)
	}
	since := problem.HeaderPosition + ": " + position
	paths := map[string]string{
		"get-run": "/v1/runs/" + run, "list-runs": "/v1/runs?status=succeeded",
		"list-job-runs": "/v1/jobs/job/runs?status=succeeded", "get-job-stats": "/v1/jobs/job/stats",
		"get-forecast": "/v1/forecast?step=1h", "list-audit-log": "/v1/audit-log", "list-job-changes": "/v1/jobs/job/changes",
	}

	t.Run("are the operations that say so", func(t *testing.T) {
		s := s.in(t)
		document := get[struct {
			Paths map[string]map[string]struct {
				OperationID string
				Responses   map[string]struct{ Headers map[string]any }
			}
		}](s, "/openapi.json")
		var said []string
		for path, operations := range document.Paths {
			for _, op := range operations {
				if op.Responses["200"].Headers[headerAsOf] != nil {
					said = append(said, op.OperationID)
				}
			}
			op, is := operations["get"]
			if !is || op.Responses["200"].Headers[headerAsOf] != nil {
				continue
			}
			path = strings.NewReplacer("{job}", "job", "{run}", run, "{version}", "1").Replace(path)
			if answer := s.do("GET", path, ""); answer.header.Get(headerAsOf) != "" {
				t.Errorf("%s is answered as of %s", op.OperationID, answer.header.Get(headerAsOf))
			}
		}
		slices.Sort(said)
		if want := slices.Sorted(maps.Keys(paths)); !slices.Equal(said, want) {
			t.Errorf("%v have %s, want %v", said, headerAsOf, want)
		}
	})
	for operation, path := range paths {
		t.Run(operation, func(t *testing.T) {
			s := s.in(t)
			now, err := s.store.Now(t.Context())
			must(t, err)
			asOf := func(headers ...string) time.Time {
				at, err := time.Parse(time.RFC3339Nano, s.do("GET", path, "", headers...).want(200).header.Get(headerAsOf))
				must(t, err)
				return at
			}
			if at := asOf(since); at.Before(now) {
				t.Errorf("with the position: as of %s, want now, %s", at, now)
			}
			if at := asOf(); operation != "get-forecast" && !at.Before(now) { // a forecast is reused
				t.Errorf("without: as of %s, and the standby has stood still since before %s", at, now)
			}
		})
	}
	t.Run("see no write that they need not see", func(t *testing.T) {
		s := s.in(t)
		s.do("GET", paths["list-job-changes"], "").want(200).hides("just now")
		s.do("GET", paths["list-job-changes"], "", since).want(200).shows("just now")
		s.do("GET", paths["list-job-changes"], "", problem.HeaderPosition+": 7").wantMessage("header."+problem.HeaderPosition,
			"position")
	})
	t.Run("are no reads of what goes on", func(t *testing.T) {
		s := s.in(t)
		s.do("GET", "/v1/jobs/job", "").want(200).shows(`"paused"`)
		later := s.do("POST", "/v1/jobs/job/trigger", "").want(202).fields()["id"].(string)
		s.do("GET", "/v1/runs/"+later, "").want(200).shows(`"pending"`)
		s.do("GET", "/v1/runs", "").want(200).shows(later)
		s.do("GET", "/v1/runs?status=pending", "").want(200).shows(later)
		s.ended()
		s.do("GET", "/v1/runs/"+later, "").want(200).shows(`"succeeded"`)
		s.create(minimal("new"))
		s.do("GET", "/v1/jobs/new/stats", "").want(200)
		s.do("GET", "/v1/jobs/new/runs?status=dead", "").want(200)
	})
}

// Without a read database, nothing says how old an answer is or where a write lies.
func TestWithoutAStandbyNoAnswerHasAPosition(t *testing.T) {
	s := serve(t)
	s.create(minimal("job"))
	for _, answer := range []*reply{
		s.do("POST", "/v1/jobs/job/pause", ""), s.do("GET", "/v1/audit-log", "", problem.HeaderPosition+": anything"),
	} {
		for _, name := range []string{problem.HeaderPosition, headerAsOf} {
			if answer.want(200).header.Get(name) != "" {
				t.Errorf("%s: it has %s", answer.request, name)
			}
		}
	}
}
