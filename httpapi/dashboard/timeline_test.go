package dashboard

import (
	"html"
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// ran makes runs of a slot that succeeded.
func (s site) ran(job string, slot time.Time, n int) {
	s.t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = domain.NewRunID(slot)
	}
	s.execute(`SELECT punctual.create_partition_of($1)`, slot)
	s.execute(`
		INSERT INTO punctual.runs (id, job_id, tenant, job_version, lane, status, trigger, scheduled_for, due_at, finished_at)
		SELECT unnest($2::uuid[]), s.job_id, s.tenant, 1, s.lane, 'succeeded', 'schedule', $3::timestamptz, $3, $3
		FROM punctual.schedules s JOIN punctual.jobs j ON j.id = s.job_id
		WHERE j.name = $1`, job, ids, slot)
}

var (
	barsOf  = regexp.MustCompile(`<a href="(/runs/[0-9a-f-]{36})"`)
	olderOf = regexp.MustCompile(`<a class="button" rel="next" href="([^"]+)">Older runs of this window</a>`)
)

// Page by page the timeline shows every run of its window, also those of one instant that one drawing cannot hold.
func TestATimelineGoesOnWithOlderRuns(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("n")
	late := time.Now().UTC().Truncate(time.Minute)
	early := late.Add(-10 * time.Minute)
	s.ran("n", late, 300)
	b.get("/timeline").want(200).shows("300 runs.").hides("Older runs of this window", "back to")
	s.ran("n", early, 900)
	seen := map[string]bool{}
	path := "/timeline?span=24h"
	for _, says := range []string{"The newest 500 runs, back to <time", "500 older runs, back to <time", "200 older runs."} {
		p := b.get(path).want(200).shows(says)
		for _, bar := range barsOf.FindAllStringSubmatch(p.body, -1) {
			if seen[bar[1]] {
				t.Errorf("%s is shown twice", bar[1])
			}
			seen[bar[1]] = true
		}
		link := olderOf.FindStringSubmatch(p.body)
		if link == nil {
			path = ""
			break
		}
		p.shows(`back to <time datetime="` + early.Format(time.RFC3339) + `"`)
		path = html.UnescapeString(link[1])
	}
	if len(seen) != 1200 || path != "" {
		t.Errorf("%d runs are shown, and the last page leads to %q", len(seen), path)
	}
}
