package dashboard

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// A timeline draws 500 runs at a time and leads to the others.
func TestATimelineLeadsToOlderRuns(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("a")
	to := time.Now().UTC().Truncate(time.Minute)
	var ids []uuid.UUID
	var slots []time.Time
	for i := range 600 {
		slots = append(slots, to.Add(-time.Duration(i+1)*5*time.Second))
		ids = append(ids, domain.NewRunID(slots[i]))
	}
	if _, err := s.store.Pool().Exec(t.Context(), `
		SELECT punctual.create_partitions($1::date - 1, $1::date)`, to); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Pool().Exec(t.Context(), `
		INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, created_at, started_at, finished_at, attempt, tenant,
			job_version, lane, status, trigger)
		SELECT u.id, j.id, u.slot, u.slot, u.slot, u.slot, u.slot, 1, j.tenant, j.version, 1, 'succeeded', 'manual'
		FROM punctual.jobs j, unnest($1::uuid[], $2::timestamptz[]) u(id, slot)`, ids, slots); err != nil {
		t.Fatal(err)
	}
	p := sound(b.get("/timeline?to=" + to.Format(time.RFC3339)).want(200).shows("The newest 500 runs, back to"))
	if n := strings.Count(p.body, "<rect"); n != 500 {
		t.Errorf("%d runs are drawn", n)
	}
	link := regexp.MustCompile(`<a href="([^"]+)">Older runs</a>`).FindStringSubmatch(p.body)
	if link == nil {
		t.Fatal("no link to older runs")
	}
	// The oldest run of the first page is drawn again, so that none of its instant is missing.
	older := b.get(html.UnescapeString(link[1])).want(200).shows("101 runs.").hides("Older runs", "The newest")
	if n := strings.Count(older.body, "<rect"); n != 101 {
		t.Errorf("%d older runs are drawn", n)
	}
}
