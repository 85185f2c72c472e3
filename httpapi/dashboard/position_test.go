package dashboard

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"punctual/httpapi/auth"
	"punctual/internal/pgtest"
	"punctual/store"
	"punctual/store/pg"
)

// After a change, the pages show it, however far the standby is behind. Who has changed nothing may see it later.
func TestPagesShowTheVisitorsOwnChangesAlthoughTheStandbyLags(t *testing.T) {
	t.Parallel()
	p := pgtest.NewPair(t)
	s := serveOn(t, Config{NoAuth: true}, auth.OIDC{}, httptest.NewUnstartedServer(nil), store.Options{
		DatabaseURL: p.DSN, Standby: pg.Standby{URL: p.Copy, MaxStaleness: time.Hour},
	})
	writer, reader := s.browser(), s.browser()
	writer.post("/new", "name", "job", "kind", "cron", "cron", "0 3 * * *", "url", "http://example.com/").
		want(http.StatusSeeOther)
	p.Replayed()
	p.OnStandby(`SELECT pg_wal_replay_pause()`)
	writer.post("/jobs/job/pause", "note", "just now").want(http.StatusSeeOther)
	writer.get("/jobs/job").want(200).shows("just now")
	writer.get("/jobs/job/changes").want(200).shows("just now")
	reader.get("/jobs/job").want(200).shows("just now")
	reader.get("/jobs/job/changes").want(200).hides("just now")
}
