package dashboard

import (
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
	create := func(name string) {
		writer.post("/new", "name", name, "kind", "cron", "cron", "0 3 * * *", "url", "http://example.com/").want(303)
	}
	create("early")
	p.Replayed()
	p.OnStandby(`SELECT pg_wal_replay_pause()`)
	create("lately")
	writer.post("/jobs/lately/pause", "note", "just now").want(303)
	writer.get("/audit").want(200).shows("early", "lately")
	reader.get("/audit").want(200).shows("early").hides("lately")
	for _, visitor := range []browser{writer, reader} {
		visitor.get("/jobs/lately").want(200).shows("just now")
	}
}
