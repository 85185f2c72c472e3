//prove:other

package prove

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"punctual/internal/docs"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// Prometheus answers each query of the Grafana board, and the links of its panels lead to pages.
func TestEachPanelOfTheBoardShowsSomething(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	w.Script("/fails", Answer{Status: 410})
	create(t, r.API, job("fine", w.URL+"/fine", process.JobSpec{"schedule": map[string]any{"every": "1s"}}))
	create(t, r.API, job("fails", w.URL+"/fails", process.JobSpec{
		"notify": []any{map[string]any{"on": []string{"dead"}, "url": w.URL + "/notices"}},
	}))
	triggerTo(t, r.API, "dead", "fails")
	p := newPrometheus(t, r)
	var board struct {
		Panels []struct {
			Title   string
			Links   []struct{ URL string }
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal([]byte(docs.Read(t, "docs/deploy/grafana/punctual.json")), &board))
	queries := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			queries++
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
			await(t, fmt.Sprintf("%q to show something by %s", panel.Title, expr), func() bool { return p.found(expr) > 0 })
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
