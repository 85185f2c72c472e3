//prove:clocks

package prove

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// movedZone is at UTC+05:45. In the other time zone data it is at UTC+09:00, like sameAs.
const (
	movedZone = "Asia/Kathmandu"
	sameAs    = "Etc/GMT-9" // in POSIX's sense of the sign
	movedBy   = 9*time.Hour - (5*time.Hour + 45*time.Minute)
)

// Newer time zone data is deployed under load. No slot is lost or doubled, and each next slot follows it.
//
// Replicas with older data are replaced, and it does not matter which replica computed a slot.
func TestZoneDataThatChangesUnderLoad(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	conn := connect(t, dsn)
	old := serve(t, dsn, "--queues=default=100,old=10")
	h := herd{start: nextSecond(2 * time.Second), oneShots: 100, within: 8 * time.Second, cronJobs: 30, seconds: 20}
	jobs := h.jobs(w.URL)
	for _, j := range jobs {
		if schedule := j["schedule"].(map[string]any); schedule["cron"] != nil {
			schedule["timezone"] = movedZone
		}
	}
	create(t, old.API, jobs...)
	// Its slot is far from now by either data.
	slot := time.Now().UTC().Truncate(time.Minute).Add(12 * time.Hour)
	local := slot.Add(5*time.Hour + 45*time.Minute)
	daily := process.JobSpec{"jitter": "0s", "schedule": map[string]any{
		"cron": fmt.Sprint(local.Minute(), " ", local.Hour(), " * * *"), "timezone": movedZone,
	}}
	create(t, old.API, job("daily", w.URL+"/daily", daily))
	daily["queue"] = "old"
	create(t, old.API, job("daily-in-old", w.URL+"/daily", daily))
	next := func(name string) time.Time {
		return query[time.Time](t, conn, `
			SELECT scheduled_for FROM punctual.schedules
			WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = $1)`, name)
	}
	for _, name := range []string{"daily", "daily-in-old"} {
		if at := next(name); !at.Equal(slot) {
			t.Fatalf("the next slot of %s is %s by today's data, want %s", name, at, slot)
		}
	}

	await(t, "the load", func() bool { return w.Len() > h.cronJobs })
	fresh := serve(t, dsn, "--queues=default=100", "--zone-data="+laterZoneData(t))
	for _, name := range []string{"daily", "daily-in-old"} {
		await(t, "the next slot by the newer data", func() bool { return next(name).Equal(slot.Add(-movedBy)) })
	}
	// The old replica is the only one that serves this queue, and goes on by its own data.
	execute(t, conn, `
		UPDATE punctual.schedules SET scheduled_for = $1, next_run_at = now()
		WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'daily-in-old')`, slot.Add(-24*time.Hour))
	await(t, "the old replica to compute a slot", func() bool { return next("daily-in-old").Equal(slot) })
	stop(t, old)
	await(t, "that slot to be computed again", func() bool { return next("daily-in-old").Equal(slot.Add(-movedBy)) })

	h.outlast(t)
	f := atRest(t, dsn, w)
	// The checker goes by today's data, so it cannot judge the daily jobs.
	judged := map[uuid.UUID]bool{}
	f.Jobs = slices.DeleteFunc(f.Jobs, func(j Job) bool {
		judged[j.ID] = !strings.HasPrefix(j.Name, "daily")
		return !judged[j.ID]
	})
	f.Runs = slices.DeleteFunc(f.Runs, func(r Run) bool { return !judged[r.Job] })
	f.Requests = slices.DeleteFunc(f.Requests, func(q Request) bool { return q.Path == "/daily" })
	verify(t, f, Conditions{SentOnce: true, AllSucceed: true})
	if len(f.Requests) != len(f.Runs) {
		t.Errorf("%d runs and %d requests", len(f.Runs), len(f.Requests))
	}
	stop(t, fresh)
}

// Time zone data is over half a year old. The log, the overview, its page and a metric say so.
func TestZoneDataThatIsOldIsSaidToBe(t *testing.T) {
	t.Parallel()
	data := "--zone-data=" + laterZoneData(t) // its files are of 1980
	r := serve(t, pgtest.DSN(t), data)
	accepts := map[string][]string{"/": {"Accept: text/html"}}
	for path, want := range map[string]string{
		"/v1/overview": `"release":"9999a"`,
		"/v1/replicas": `"zone_data":"9999a"`,
		"/metrics":     `punctual_zone_data_published_timestamp_seconds{release="9999a"}`,
		"/":            "The time zone data is of",
	} {
		await(t, path+" to say "+want, func() bool { // the replica may not have registered yet
			_, answer := ask(t, "GET", r.API.URL+path, "", accepts[path]...)
			return strings.Contains(answer, want)
		})
	}
	stop(t, r)
	if !strings.Contains(r.Output(), "more than half a year old") {
		t.Errorf("the log does not say that the data is old:\n%s", r.Output())
	}
	if out := succeed(t, binary(t), nil, "version", data); !strings.Contains(out, "tzdata   9999a, published 19") {
		t.Errorf("punctual version says %s", out)
	}
}

// laterZoneData is the archive of a later release.
func laterZoneData(t testing.TB) (path string) {
	t.Helper()
	today, err := zip.OpenReader("../../scheduler/cron/zonedata/zoneinfo.zip")
	must(t, err)
	defer func() { _ = today.Close() }()
	path = filepath.Join(t.TempDir(), "zones.zip")
	file, err := os.Create(path)
	must(t, err)
	defer func() { must(t, file.Close()) }()
	later := zip.NewWriter(file)
	for _, f := range today.File {
		switch f.Name {
		case movedZone:
			same, err := fs.ReadFile(today, sameAs)
			must(t, err)
			write(t, later, movedZone, same)
		case "+VERSION":
			write(t, later, f.Name, []byte("9999a"))
		default:
			must(t, later.Copy(f))
		}
	}
	must(t, later.Close())
	return path
}

func write(t testing.TB, archive *zip.Writer, name string, content []byte) {
	t.Helper()
	entry, err := archive.Create(name)
	must(t, err)
	_, err = entry.Write(content)
	must(t, err)
}
