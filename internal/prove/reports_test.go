//prove:reports

package prove

import (
	"testing"

	"punctual/internal/pgtest"
)

// kill -9 after targets reported in transactions. These runs succeed at their first attempt; others are taken over.
func TestWorkThatReportedWhatItDidIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	conn := connect(t, dsn)
	execute(t, conn, `UPDATE punctual.tenants SET reports_since = now() - interval '1 min'`)
	first := serve(t, dsn)
	const jobs = 10
	hanging(t, first, w, jobs)
	execute(t, conn, `CREATE TABLE public.effects (run uuid)`)
	for i, r := range w.At("/stuck") {
		if i%2 == 0 {
			execute(t, conn, `WITH done AS (INSERT INTO public.effects VALUES ($1))
				SELECT punctual.complete_for(1, $1, $2, NULL)`, r.Run, r.Fence)
		}
	}
	first.Kill()
	second := serve(t, dsn)
	await(t, "the attempts that are lost to be made again", func() bool { return len(w.At("/stuck")) == jobs*3/2 })
	w.Release("/stuck")
	await(t, "all runs to succeed", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`) == jobs
	})
	if n := query[int](t, conn, `
		SELECT count(*) FROM punctual.runs r
		WHERE (attempt = 1) = EXISTS (SELECT FROM public.effects e WHERE e.run = r.id)`); n != jobs {
		t.Errorf("%d of %d runs made the attempts that they should", n, jobs)
	}
	stop(t, second)
}
