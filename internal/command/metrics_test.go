package command

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// scrape returns the status and the text of an address that Prometheus may scrape.
func scrape(t *testing.T, url, key string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(bounded(t), http.MethodGet, url, http.NoBody)
	must(t, err)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(body)
}

// Prometheus reads the metrics with a key that can do nothing else, or without a key at their own address. Jobs can do
// neither.
func TestPrometheusNeedsNoOperatorsKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := dsnFor(t)
	r := serve(t, dsn, "--auth=keys", "--metrics-listen=127.0.0.1:0",
		"--job-metrics=team=billing", "--job-metrics=team=ops,tier=gold")
	var open string
	await(t, "the address of the metrics", func() bool {
		at := regexp.MustCompile(`"url":"(http://[^"]+)/metrics"`).FindStringSubmatch(r.Output())
		if at != nil {
			open = at[1]
		}
		return at != nil
	})
	operator := r.API.WithKey(keysOf(t, dsn, "--role=operator", "--name=first"))
	key := keysOf(t, dsn, "--role=metrics", "--name=prometheus")
	if status, _ := r.API.WithKey(key).Do(ctx, http.MethodGet, "/v1/jobs", nil, nil); status != http.StatusForbidden {
		t.Errorf("jobs with a key of the metrics: %d", status)
	}
	for name, labels := range map[string]map[string]string{
		"a": {"team": "billing"},
		"b": {"team": "ops"},
		"c": {"team": "ops", "tier": "gold"},
	} {
		job := map[string]any{
			"name": name, "labels": labels, "target": map[string]any{"url": "http://127.0.0.1:1/"},
			"retry": map[string]any{"max_attempts": 1},
		}
		_, err := operator.Do(ctx, http.MethodPost, "/v1/jobs", job, nil)
		must(t, err)
		_, err = operator.Do(ctx, http.MethodPost, "/v1/jobs/"+name+"/trigger", nil, nil)
		must(t, err)
	}
	const failing = `punctual_job_consecutive_failures{job="a",tenant="default"} 1`
	var text string
	await(t, "the failure of a job", func() bool {
		_, text = scrape(t, open+"/metrics", "")
		// This metric counts the attempt a moment later.
		return strings.Contains(text, failing) && strings.Contains(text, "punctual_attempts_total")
	})
	says(t, text, `{job="c",tenant="default"}`, "punctual_job_metrics_left_out 0")
	if strings.Contains(text, `job="b"`) {
		t.Error("a job that is not selected has series")
	}
	if status, withKey := scrape(t, r.API.URL+"/metrics", key); status != http.StatusOK ||
		!strings.Contains(withKey, failing) {
		t.Errorf("with a key: %d", status)
	}
	for url, want := range map[string]int{
		r.API.URL + "/metrics": http.StatusUnauthorized, open + "/healthz": http.StatusOK,
		open + "/v1/jobs": http.StatusNotFound,
	} {
		if status, _ := scrape(t, url, ""); status != want {
			t.Errorf("%s without a key: %d, want %d", url, status, want)
		}
	}
	spy := map[string]any{"name": "spy", "target": map[string]any{"url": open + "/metrics"}}
	if status, err := operator.Do(ctx, http.MethodPost, "/v1/jobs", spy, nil); status != http.StatusUnprocessableEntity ||
		!strings.Contains(err.Error(), "the metrics of this replica") {
		t.Errorf("a job that calls the metrics: %d %v", status, err)
	}
	stop(t, r)
}
