//prove:other

package prove

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// A job fails and recovers. Alertmanager's alerts fire and end, and PagerDuty gets one dedup key.
//
// Alertmanager is as Debian packages it. PagerDuty gets its routing key, which is not stored with the notice, and the
// same dedup key for trouble and recovery.
func TestAlertmanagerAndPagerDutyAreToldOfTroubleAndOfItsEnd(t *testing.T) {
	t.Parallel()
	dsn, w, pager := pgtest.DSN(t), newWitness(t), newPager(t)
	alerts := alertmanager(t)
	r := serve(t, dsn)
	do[any](t, r.API, "PUT", "/v1/secrets/pagerduty-key", map[string]string{"value": "0123456789abcdef0123456789abcdef"})
	w.Script("/work", Answer{Status: 500}, Answer{Status: 500}, Answer{})
	on := []string{"failing", "dead", "recovered"}
	create(t, r.API, job("fragile", w.URL+"/work", process.JobSpec{
		"retry": map[string]any{"max_attempts": 2, "initial_backoff": "10ms"},
		"notify": []any{
			map[string]any{"on": on, "format": "alertmanager", "url": alerts},
			map[string]any{
				"on":     []string{"dead", "recovered"},
				"format": "pagerduty",
				"url":    pager.url,
				"secret": "pagerduty-key",
			},
		},
	}))
	triggerTo(t, r.API, "dead", "fragile")
	await(t, "the alerts to be active", func() bool {
		return slices.Equal(active(t, alerts), []string{"PunctualJobFailing", "PunctualRunDead"})
	})
	await(t, "the incident to be opened", func() bool { return len(pager.events()) == 1 })
	triggerTo(t, r.API, "succeeded", "fragile")
	await(t, "the alerts to be over", func() bool { return len(active(t, alerts)) == 0 })
	await(t, "the incident to be resolved", func() bool { return len(pager.events()) == 2 })
	for i, action := range []string{"trigger", "resolve"} {
		e := pager.events()[i]
		if e["event_action"] != action || e["routing_key"] != "0123456789abcdef0123456789abcdef" ||
			e["dedup_key"] != pager.events()[0]["dedup_key"] {
			t.Errorf("PagerDuty is sent %v", e)
		}
	}
	if n := query[int](t, connect(t, dsn), `
		SELECT count(*)
		FROM punctual.run_data
		WHERE convert_from(body, 'UTF8') LIKE '%0123456789abcdef%'`); n != 0 {
		t.Error("the routing key is stored with a notice")
	}
	stop(t, r)
}

// active returns the names of the job's alerts in Alertmanager, in order.
func active(t *testing.T, url string) (names []string) {
	t.Helper()
	_, answer := ask(t, http.MethodGet, url+`/api/v2/alerts?filter=job%3D%22fragile%22`, "")
	var alerts []struct {
		Labels map[string]string
		Status struct{ State string }
	}
	must(t, json.Unmarshal([]byte(answer), &alerts))
	for _, a := range alerts {
		if a.Status.State != "active" && a.Status.State != "unprocessed" {
			t.Errorf("%s is %s", a.Labels["alertname"], a.Status.State)
		}
		names = append(names, a.Labels["alertname"])
	}
	slices.Sort(names)
	return names
}

var listens = regexp.MustCompile(`msg="Listening on"[^\n]* address=(127\.0\.0\.1:\d+)`)

// alertmanager starts Alertmanager and returns its URL. The test fails if the machine does not have it.
func alertmanager(t *testing.T) string {
	t.Helper()
	path := pgtest.Program(t, "apt-get install --no-install-recommends prometheus-alertmanager",
		"prometheus-alertmanager", "alertmanager")
	dir := t.TempDir()
	config := filepath.Join(dir, "alertmanager.yml")
	must(t, os.WriteFile(config, []byte("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"), 0o600))
	p, err := process.Launch(path, nil, "--config.file="+config, "--storage.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0", "--cluster.listen-address=")
	must(t, err)
	t.Cleanup(p.Kill)
	var found []string
	await(t, "Alertmanager to listen", func() bool {
		found = listens.FindStringSubmatch(p.Output())
		return found != nil
	})
	url := "http://" + found[1]
	await(t, "Alertmanager to be ready", func() bool {
		response, err := post(t, http.DefaultClient, url+"/api/v2/alerts", "[]", map[string]string{
			"Content-Type": "application/json",
		})
		return err == nil && response.StatusCode == http.StatusOK
	})
	return url
}

// pager is a target that takes events as PagerDuty does.
type pager struct {
	url string
	mu  sync.Mutex
	got []map[string]any
}

func newPager(t *testing.T) *pager {
	p := &pager{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		event := map[string]any{}
		if err != nil || json.Unmarshal(body, &event) != nil ||
			!strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.got = append(p.got, event)
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	p.url = server.URL + "/v2/enqueue"
	return p
}

func (p *pager) events() []map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}
