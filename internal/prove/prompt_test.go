//prove:replicas

package prove

import (
	"fmt"
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// prompt is longer than a due job waits on a machine that is busy with other tests. Whether a replica sleeps no longer
// than it must is up to the tests of its loops, which have a clock of their own.
const prompt = 5 * time.Second

// A trigger, or a job that is due, fires at once, regardless of the replica that was called.
func TestWhatIsDueFiresAtOnceWhicheverReplicaWasTold(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	told, other := serve(t, dsn), serve(t, dsn)
	arrival := func(t *testing.T, path string, due time.Time) {
		t.Helper()
		await(t, "the request", func() bool { return len(w.At(path)) == 1 })
		late := w.At(path)[0].At.Sub(due)
		t.Logf("%s late", late.Round(10*time.Microsecond))
		if late < 0 || late > prompt {
			t.Errorf("it arrived %s after it was due", late)
		}
	}
	for i, a := range []*client.Client{told.API, other.API, told.API} {
		t.Run(fmt.Sprint("triggered-", i), func(t *testing.T) {
			path := fmt.Sprint("/triggered-", i)
			create(t, a, job(path[1:], w.URL+path, nil))
			asked := time.Now()
			do[any](t, a, "POST", "/v1/jobs"+path+"/trigger", nil)
			arrival(t, path, asked)
		})
		for name, lead := range map[string]time.Duration{"soon": 300 * time.Millisecond, "past": 0} {
			t.Run(fmt.Sprint(name, "-", i), func(t *testing.T) {
				path, due := fmt.Sprint("/", name, "-", i), time.Now().Add(lead).Truncate(time.Millisecond)
				create(t, a, job(path[1:], w.URL+path, process.JobSpec{"schedule": oneShot(due)}))
				arrival(t, path, due)
			})
		}
	}
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true, AllSucceed: true})
}
