package dashboard

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

var pictures = flag.String("pictures", "", "a folder into which the tests write pictures of the pages that they see")

// wide puts the browser's window into a width.
func (b *tab) wide(width int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: width < 500,
	})
	must(b.t, err)
}

// busy fills a site with what makes pages wide: long names, many labels, errors, and a day of runs.
func (s site) busy() {
	s.t.Helper()
	api := client.New(s.url)
	for i, name := range []string{
		"billing-ledger-close", "billing-invoices-reconcile-european-subsidiaries-nightly", "currency-rates",
		strings.Repeat("unbroken", 16), "nightly-report", "cache-warmup",
	} {
		var in httpapi.JobInput
		in.Name = name
		in.Description = "Closes the books of the month before, for every company of the group."
		in.Target.URL = "http://billing.example.com/close"
		in.Labels = map[string]string{"team": "billing", "owner": "mara.schneider@example.com", "tier": "critical"}
		in.Schedule = jobspec.Schedule{Cron: "0 22 L * *", Timezone: "America/Argentina/ComodRivadavia"}
		if i == 2 {
			in.Labels["documentation"] = strings.Repeat("unbroken", 7)
			in.Schedule = jobspec.Schedule{Cron: "*/5 * * * *", Timezone: "Europe/Berlin"}
			in.Description = "Fetches the rates of the central bank."
		}
		if i == 1 {
			in.Target.URL += "/" + strings.Repeat("path/", 40)
		}
		_, err := client.CreateJob.Do(s.t.Context(), api, in)
		must(s.t, err)
	}
	s.execute(`UPDATE punctual.job_versions SET valid_from = now() - interval '3 days'`)
	s.execute(`SELECT punctual.create_partitions(current_date - 2, current_date + 1)`)
	s.execute(`
		INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, created_at, claimed_at, started_at, finished_at,
			tenant, job_version, lane, attempt, status, reason, http_status, error, trigger)
		SELECT (lpad(to_hex(extract(epoch FROM slot)::bigint * 1000), 12, '0') || '8' || substr(md5(j.id::text || slot), 1, 3)
				|| '8' || substr(md5(j.id::text || slot), 4, 15))::uuid,
			j.id, slot, slot, slot, sent, sent, sent + interval '1 s' * (1 + n % 7), j.tenant, j.version, 5, 1 + n % 3,
			CASE WHEN bad THEN 'dead' ELSE 'succeeded' END::punctual.run_status,
			CASE WHEN bad THEN 'http_5xx' END::punctual.run_reason, CASE WHEN bad THEN 503 ELSE 200 END,
			CASE WHEN bad THEN 'the target answered 503: upstream ledger is locked' END, 'schedule'
		FROM punctual.jobs j, generate_series(1, 60) n,
			LATERAL (SELECT date_bin('5 min', now(), '2026-01-01') - n * interval '20 min' slot) at,
			LATERAL (SELECT slot + n % 3 * interval '30 s' + n % 5 * interval '23 ms' sent) first,
			LATERAL (SELECT j.name LIKE 'billing%' AND n < 4 bad) how`)
	s.execute(`
		INSERT INTO punctual.attempts (run_id, fence, number, http_status, started_at, finished_at, outcome, reason, error,
			response, response_headers)
		SELECT id, n, n, 503, scheduled_for + interval '30 s' * (n - 1),
			scheduled_for + interval '30 s' * (n - 1) + (finished_at - started_at), 'failed', 'http_5xx',
			'the target answered 503: upstream ledger is locked', '{"error": "upstream ledger is locked"}' || chr(10) || repeat('unbroken', 40),
			'{"content-type": "application/json"}'
		FROM punctual.runs, generate_series(1, attempt) n WHERE status = 'dead'`)
	s.execute(`
		INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger, reason,
			attempts, http_status, error)
		SELECT r.id, r.job_id, r.tenant, j.name, 1, r.scheduled_for, r.trigger, r.reason, r.attempt, r.http_status,
			'the target answered 503: ' || repeat('unbroken', 20)
		FROM punctual.runs r JOIN punctual.jobs j ON j.id = r.job_id WHERE r.status = 'dead'`)
	for left := true; left; {
		var err error
		if _, left, err = s.store.Overview.CountHours(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
	b := s.browser()
	b.post("/jobs", "search", "team=billing", "action", "resume", "sure", "1", "note", "the warehouse has moved").want(303)
	b.post("/jobs", "search", "name:cache", "action", "pause", "sure", "1").want(303)
	s.operate()
	b.post("/jobs/nightly-report/pause", "note", "the warehouse in Rotterdam moves", "until", "2126-12-01T06:00").want(303)
}

// died returns the page of a run of a job that died at its third attempt.
func (s site) died(job string) (run string) {
	s.t.Helper()
	must(s.t, s.store.Pool().QueryRow(s.t.Context(), `
		SELECT '/runs/' || r.id FROM punctual.runs r JOIN punctual.jobs j ON j.id = r.job_id
		WHERE r.status = 'dead' AND j.name = $1 AND r.attempt = 3`, job).Scan(&run))
	return run
}

// misfits are what does not fit the window: the page itself if it scrolls sideways, words that break in the middle
// though they are short, and a header of many lines.
const misfits = `(() => {
	const found = [], most = 24;
	const wide = document.documentElement.scrollWidth;
	if (wide > innerWidth) {
		const first = [...document.querySelectorAll('main *')].find((e) => e.getBoundingClientRect().right > innerWidth);
		found.push('the page is ' + wide + ' wide, for ' + (first && first.outerHTML.slice(0, 60)));
	}
	const header = document.querySelector('header');
	const tall = header ? header.offsetHeight : 0;
	if (tall > (innerWidth < 500 ? 100 : 52)) found.push('the header is ' + tall + ' high');
	const places = document.querySelector('.places');
	if (places && places.offsetHeight > 52) found.push('the names of the pages take ' + places.offsetHeight);
	const range = document.createRange();
	for (const part of document.querySelectorAll('h1, p, th, td, .tile, a, button')) {
		if (!part.checkVisibility()) continue;
		for (const node of part.childNodes) {
			for (const inner of node.childNodes.length ? node.childNodes : [node]) {
				if (inner.nodeType !== Node.TEXT_NODE) continue;
				for (const word of inner.data.matchAll(/[^\s\/]+/g)) {
					if (word[0].length > most) continue;
					range.setStart(inner, word.index);
					range.setEnd(inner, word.index + word[0].length);
					if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1)
						found.push(part.nodeName + ' breaks ' + word[0]);
				}
			}
		}
	}
	return [...new Set(found)];
})()`

// fits checks that pages fit the window, whatever its width.
func (b *tab) fits(paths ...string) {
	b.t.Helper()
	widths := []int64{390, 801, 993} // a phone, and the narrowest windows of the two other layouts
	if *pictures != "" {
		widths = append(widths, 1280, 1440)
	}
	for _, path := range paths {
		b.open(path)
		for _, width := range widths {
			b.wide(width)
			raw, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]byte](misfits))
			must(b.t, err)
			var found []string
			must(b.t, json.Unmarshal(raw, &found))
			for _, f := range found {
				b.t.Errorf("%s at %d: %s", path, width, f)
			}
			b.picture(path, width)
		}
	}
}

// Whatever the names and the window: no page scrolls sideways, and lines break between words.
func TestInABrowserPagesFitTheWindow(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	s.busy()
	b := s.chromium(t)
	b.fits(
		"/", "/jobs", "/jobs/currency-rates", "/jobs/"+strings.Repeat("unbroken", 16), "/jobs/currency-rates/definition",
		"/jobs/currency-rates/changes", "/jobs/currency-rates/notices", "/jobs/currency-rates/edit", "/jobs/currency-rates/backfill",
		s.died("billing-invoices-reconcile-european-subsidiaries-nightly"), "/runs?late=true", "/runs", "/timeline", "/forecast", "/dead-letters", "/dead-letters?each=1", "/operations", "/queues", "/audit",
		"/settings",
	)
	b.forDocs()
}

// forDocs writes the pictures of the README, if pictures are wanted.
func (b *tab) forDocs() {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	b.wide(1280)
	var job uuid.UUID
	var slot time.Time
	must(b.t, b.store.Pool().QueryRow(b.t.Context(), `SELECT j.id, max(r.scheduled_for) FROM punctual.jobs j
		JOIN punctual.runs r ON r.job_id = j.id WHERE j.name = 'currency-rates' GROUP BY 1`).Scan(&job, &slot))
	b.execute(`UPDATE punctual.runs SET id = $3 WHERE job_id = $1 AND scheduled_for = $2`, job, slot, domain.SlotRunID(job, slot))
	for name, path := range map[string]string{
		"overview": "/", "job": "/jobs/currency-rates?at=" + client.Instant(slot), "run": b.died("billing-ledger-close"),
	} {
		b.open(path)
		if name == "overview" {
			b.waits("#chart", "Expected starts")
		}
		picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		must(b.t, err)
		must(b.t, os.WriteFile(filepath.Join(*pictures, "pages-"+name+".png"), picture, 0o600))
	}
}

// pictures writes pictures of a state on a desktop and on a phone, if pictures are wanted.
func (b *tab) pictures(state string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	for _, width := range []int64{1280, 390} {
		b.wide(width)
		b.picture("state-"+state, width)
	}
	b.wide(1280)
}

// picture writes a picture of the page as it is, if pictures are wanted.
func (b *tab) picture(path string, width int64) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	must(b.t, err)
	name := strings.Trim(strings.NewReplacer("/", "-", "?", "-", "=", "-", "&", "-").Replace(path), "-")
	switch {
	case name == "":
		name = "overview"
	case strings.HasPrefix(path, "/runs/"):
		name = "run-" + path[len(path)-4:]
	}
	file := fmt.Sprintf("%.60s-%d.png", name, width)
	must(b.t, os.WriteFile(filepath.Join(*pictures, file), picture, 0o600))
}
