package prove

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// Prometheus itself, as Debian packages it, answers each query of the board that operators import into Grafana, and
// each page that a panel links to is there.
func TestEachPanelOfTheBoardShowsSomething(t *testing.T) {
	exhaustive(t, "it starts Prometheus, and waits for rates")
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	w.Script("/fails", Answer{Status: 410})
	create(t, r.API, job("fine", w.URL+"/fine", process.JobSpec{"schedule": map[string]any{"every": "1s"}}))
	create(t, r.API, job("fails", w.URL+"/fails", process.JobSpec{
		"notify": []any{map[string]any{"on": []string{"dead"}, "url": w.URL + "/notices"}},
	}))
	triggerTo(t, r.API, "dead", "fails")
	found := prometheus(t, r)
	var board struct {
		Panels []struct {
			Title   string
			Links   []struct{ URL string }
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal([]byte(readFile(t, filepath.Join(root, "docs/deploy/grafana/punctual.json"))), &board))
	queries := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			queries++
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
			await(t, fmt.Sprintf("%q to show something by %s", panel.Title, expr), func() bool { return found(expr) > 0 })
		}
		for _, link := range panel.Links {
			path, is := strings.CutPrefix(link.URL, "${punctual}")
			if status, _ := ask(t, http.MethodGet, r.API.URL+path, ""); !is || status != "200 OK" {
				t.Errorf("%q links to %s: %s", panel.Title, link.URL, status)
			}
		}
	}
	if queries < 20 {
		t.Errorf("the board has %d queries", queries)
	}
	stop(t, r)
}

var serves = regexp.MustCompile(`msg="Listening on"[^\n]* address=(127\.0\.0\.1:\d+)`)

// prometheus starts Prometheus, which scrapes a replica, and returns how many series answer a query. The test fails if
// the machine does not have it.
func prometheus(t *testing.T, r *process.Replica) (found func(query string) int) {
	t.Helper()
	path := pgtest.Program(t, "apt-get install --no-install-recommends prometheus", "prometheus")
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "scrape_configs: [{job_name: punctual, scrape_interval: 1s, "+
		"static_configs: [{targets: [%q]}]}]\n", strings.TrimPrefix(r.API.URL, "http://")), 0o600))
	p, err := process.Launch(path, nil, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0")
	must(t, err)
	t.Cleanup(p.Kill)
	var at []string
	await(t, "Prometheus to listen", func() bool {
		at = serves.FindStringSubmatch(p.Output())
		return at != nil
	})
	return func(query string) int {
		var answer struct{ Data struct{ Result []any } }
		_, text := ask(t, http.MethodGet, "http://"+at[1]+"/api/v1/query?query="+url.QueryEscape(query), "")
		if json.Unmarshal([]byte(text), &answer) != nil {
			return 0 // it is still starting
		}
		return len(answer.Data.Result)
	}
}
