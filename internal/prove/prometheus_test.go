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

// prometheus is a Prometheus, as Debian packages it, that scrapes replicas each two seconds: without their database
// they answer after one.
type prometheus struct {
	t   *testing.T
	url string
	dir string // of its files
}

var serves = regexp.MustCompile(`msg="Listening on"[^\n]* address=(127\.0\.0\.1:\d+)`)

// newPrometheus starts Prometheus, and waits until it has scraped the replicas. The test fails if the machine does not
// have it.
func newPrometheus(t *testing.T, replicas ...*process.Replica) *prometheus {
	t.Helper()
	path := pgtest.Program(t, "apt-get install --no-install-recommends prometheus", "prometheus")
	p := &prometheus{t: t, dir: t.TempDir()}
	p.scrape(replicas...)
	config := filepath.Join(p.dir, "prometheus.yml")
	must(t, os.WriteFile(config, []byte(`
global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs: [{job_name: punctual, file_sd_configs: [{files: [targets.json]}]}]
`), 0o600))
	server, err := process.Launch(path, nil, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(p.dir, "data"),
		"--web.listen-address=127.0.0.1:0", "--web.enable-lifecycle")
	must(t, err)
	t.Cleanup(server.Kill)
	await(t, "Prometheus to listen", func() bool {
		at := serves.FindStringSubmatch(server.Output())
		if at != nil {
			p.url = "http://" + at[1]
		}
		return at != nil
	})
	await(t, "a scrape of each replica", func() bool { return p.found("up == 1") == len(replicas) })
	return p
}

// evaluate makes Prometheus evaluate rules each second.
func (p *prometheus) evaluate(rules string) {
	p.t.Helper()
	must(p.t, os.WriteFile(filepath.Join(p.dir, "rules.yml"), []byte(rules), 0o600))
	if status, text := ask(p.t, http.MethodPost, p.url+"/-/reload", ""); status != "200 OK" {
		p.t.Fatalf("loading the rules: %s %s", status, text)
	}
}

// scrape sets which replicas are scraped. Prometheus heeds it within about five seconds.
func (p *prometheus) scrape(replicas ...*process.Replica) {
	p.t.Helper()
	var addresses []string
	for _, r := range replicas {
		addresses = append(addresses, scraped(r))
	}
	text, err := json.Marshal([]any{map[string]any{"targets": addresses}})
	must(p.t, err)
	targets := filepath.Join(p.dir, "targets.json")
	must(p.t, os.WriteFile(targets+".new", text, 0o600))
	must(p.t, os.Rename(targets+".new", targets))
}

var metricsAlone = regexp.MustCompile(`"url":"http://([^"]+)/metrics"`)

// scraped returns the address of a replica's metrics: their own, if they have one.
func scraped(r *process.Replica) string {
	if at := metricsAlone.FindStringSubmatch(r.Output()); at != nil {
		return at[1]
	}
	return strings.TrimPrefix(r.API.URL, "http://")
}

// found returns how many series answer a query.
func (p *prometheus) found(query string) int {
	p.t.Helper()
	var answer struct{ Data struct{ Result []any } }
	p.ask("/api/v1/query?query="+url.QueryEscape(query), &answer)
	return len(answer.Data.Result)
}

// firing returns the names of the alarms that fire.
func (p *prometheus) firing() (names []string) {
	p.t.Helper()
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels struct{ Alertname string }
			}
		}
	}
	p.ask("/api/v1/alerts", &answer)
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels.Alertname)
		}
	}
	return names
}

// ask leaves the answer empty while Prometheus is starting.
func (p *prometheus) ask(path string, answer any) {
	p.t.Helper()
	status, text := ask(p.t, http.MethodGet, p.url+path, "")
	if err := json.Unmarshal([]byte(text), answer); err != nil && !strings.HasPrefix(status, "503") {
		p.t.Fatal(fmt.Errorf("%s answers %s %q: %w", path, status, text, err))
	}
}
