package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
)

func TestLostJobsAreThoseWhoseClientHasGone(t *testing.T) {
	t.Parallel()
	killed := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return killed.Add(time.Duration(seconds) * time.Second) }
	answered := func(job string, seconds int) visit { return visit{job, at(seconds), true, true} }
	broken := func(job string, seconds int) visit { return visit{job, at(seconds), false, true} }
	open := func(job string, seconds int) visit { return visit{job, at(seconds), false, false} }
	for _, test := range []struct {
		name   string
		visits []visit
		jobs   int
		want   recovery
	}{
		{"nothing was lost", []visit{answered("a", -1), answered("b", 7)}, 2, recovery{}},
		{
			"two were lost, and are tried again", []visit{
				broken("a", -1), broken("b", -1), answered("c", -1), answered("b", 3), answered("d", 9), answered("a", 11),
			}, 4, recovery{lost: 2, again: 11 * time.Second},
		},
		{
			"the last is on its way",
			[]visit{broken("a", -1), open("a", 4)},
			1,
			recovery{lost: 1, again: time.Minute, unanswered: 1},
		},
		{
			"one never came",
			[]visit{broken("a", -1), answered("b", 4)},
			2,
			recovery{lost: 1, again: time.Minute, unanswered: 1},
		},
		{
			"one was lost before it was sent",
			[]visit{answered("b", 4)},
			2,
			recovery{again: time.Minute, unanswered: 1},
		},
		{"one was answered, and tried again", []visit{answered("a", -1), answered("a", 4)}, 1, recovery{twice: 1}},
		{"visits are in any order", []visit{answered("a", 4), broken("a", -1)}, 1, recovery{lost: 1, again: 4 * time.Second}},
	} {
		got := recovered(test.visits, test.jobs, killed, killed.Add(time.Minute))
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(recovery{})); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestAHerdIsWhatArrivesInTheMinute(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	at := func(job string, seconds int) visit {
		return visit{Job: job, Arrived: due.Add(time.Duration(seconds) * time.Second)}
	}
	for _, test := range []struct {
		name   string
		visits []visit
		last   time.Duration
		n      int
	}{
		{"all", []visit{at("a", 2), at("b", 1)}, 2 * time.Second, 2},
		{"all, of which one came twice", []visit{at("a", 2), at("b", 1), at("a", 5)}, 2 * time.Second, 2},
		{"one is missing", []visit{at("a", 2)}, time.Minute, 1},
		{"one belongs to the minute before", []visit{at("a", 2), at("b", -59)}, time.Minute, 1},
		{"one came in the next minute", []visit{at("a", 2), at("b", 61)}, time.Minute, 1},
	} {
		if last, n := herded(test.visits, due, 2); last != test.last || n != test.n {
			t.Errorf("%s: %d, the last after %s; want %d, %s", test.name, n, last, test.n, test.last)
		}
	}
}

func TestTheTargetRecordsWhetherAClientWasAnswered(t *testing.T) {
	measures(t)
	t.Parallel()
	s := httptest.NewServer(&serving{})
	t.Cleanup(s.Close)
	to := &target{api: client.New(s.URL)}
	visits := func(path string) []visit {
		a, err := to.of(t.Context(), path+"?visits")
		must(t, err)
		for i := range a.Visits {
			a.Visits[i].Arrived = time.Time{}
		}
		return a.Visits
	}
	post := func(ctx context.Context, path string) error {
		_, err := to.api.WithHeader("Punctual-Job", "a").Do(ctx, http.MethodPost, path, nil, nil)
		return err
	}
	if err := post(t.Context(), "/log/0s/"); err != nil {
		t.Error(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- post(ctx, "/log/1h/") }()
	eventually(t, "the request", func() bool { return len(visits("/log/1h/")) == 1 })
	if diff := cmp.Diff([]visit{{Job: "a"}}, visits("/log/1h/")); diff != "" {
		t.Errorf("while it is open: %s", diff)
	}
	leave()
	if err := <-left; err == nil {
		t.Error("a request that was broken off was answered")
	}
	eventually(t, "the end of the request", func() bool { return visits("/log/1h/")[0].Ended })
	for path, want := range map[string]visit{
		"/log/0s/": {Job: "a", Answered: true, Ended: true},
		"/log/1h/": {Job: "a", Ended: true},
	} {
		if diff := cmp.Diff([]visit{want}, visits(path)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

// What came of an abandoned try does not count.
func TestTheTargetForgetsWhatItIsToldTo(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(&serving{})
	t.Cleanup(s.Close)
	to := &target{api: client.New(s.URL)}
	for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodPost} {
		if _, err := to.api.Do(t.Context(), method, "/burst/a", nil, nil); err != nil {
			t.Error(err)
		}
	}
	if a, err := to.of(t.Context(), "/burst/a"); err != nil || a.Count != 1 {
		t.Errorf("%d requests are counted, %v", a.Count, err)
	}
}

func TestContendersTakeTurns(t *testing.T) {
	t.Parallel()
	a, b, c := &peer{path: "a"}, &peer{path: "b"}, &peer{path: "c"}
	var got []string
	for round := range 4 {
		var order string
		for _, p := range turns(round, a, b, c) {
			order += p.(*peer).path
		}
		got = append(got, order)
	}
	if diff := cmp.Diff([]string{"abc", "bca", "cab", "abc"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheBenchmarkOfPeersNeedsTheirPrograms(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "peer")
	err := RunPeers(t.Context(), Config{Out: &bytes.Buffer{}, Notes: t.Output()}, missing)
	if err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v, want %q", err, missing)
	}
}

// besideFake returns RunPeers with the fake peer.
func besideFake(t *testing.T) func(context.Context, Config) error {
	t.Helper()
	program := fakePeer(t)
	return func(ctx context.Context, c Config) error { return RunPeers(ctx, c, program) }
}

func TestASchemaThatNoPeerMadeIsLeftAlone(t *testing.T) {
	measures(t)
	t.Parallel()
	dsn := empty(t, pgtest.NewServer(t, privatepg.Config{}))
	execute(t, dsn, `CREATE SCHEMA punctual_bench_peer_a`)
	c := tinyConfig(t, dsn, "peers")
	if err := besideFake(t)(t.Context(), c); err == nil || !strings.Contains(fmt.Sprint(c.Out), "punctual_bench_peer_a") {
		t.Errorf("it ended with %v, and said:\n%s", err, c.Out)
	}
	if left := schemasOfPeers(t, dsn); left != 1 {
		t.Errorf("%d schemas are there, want the one that was", left)
	}
}

func TestAnInterruptedBenchRemovesTheTablesOfPeers(t *testing.T) {
	measures(t)
	t.Parallel()
	dsn := empty(t, pgtest.NewServer(t, privatepg.Config{}))
	c := tinyConfig(t, dsn, "peers")
	interrupt, ended := begin(t, c, besideFake(t))
	eventually(t, "the tables of the peer", func() bool { return schemasOfPeers(t, dsn) > 0 })
	interrupt()
	if err := <-ended; err == nil {
		t.Error("a bench that was interrupted ended without an error")
	}
	if left := schemasOfPeers(t, dsn); left != 0 {
		t.Errorf("%d schemas of peers are left", left)
	}
}

func schemasOfPeers(t *testing.T, dsn string) int {
	t.Helper()
	return one[int](t, dsn, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'punctual\_bench\_peer%'`)
}
