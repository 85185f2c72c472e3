package prove

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// While replicas with older time zone data are replaced by one with newer data, no slot is lost or doubled. In the end
// every next slot is by the newer data, whichever replica computed it.
func TestZoneDataThatChangesUnderLoad(t *testing.T) {
	exhaustive(t, "waits for up to a minute until slots are computed again")
	t.Parallel()
	newer := withOtherZoneData(t)
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
	fresh := serveBinary(t, newer, dsn, nil, "--queues=default=100")
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

// withOtherZoneData builds the binary with time zone data of a later release.
func withOtherZoneData(t testing.TB) (binary string) {
	t.Helper()
	own, err := filepath.Abs("../../scheduler/cron/zonedata")
	must(t, err)
	today, err := zip.OpenReader(filepath.Join(own, "zoneinfo.zip"))
	must(t, err)
	defer func() { _ = today.Close() }()
	var archive bytes.Buffer
	later := zip.NewWriter(&archive)
	for _, f := range today.File {
		if f.Name != movedZone {
			must(t, later.Copy(f))
		}
	}
	from, err := today.Open(sameAs)
	must(t, err)
	to, err := later.Create(movedZone)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, err)
	must(t, later.Close())

	dir := t.TempDir()
	replace := map[string]string{}
	for name, content := range map[string][]byte{"zoneinfo.zip": archive.Bytes(), "version": []byte("9999a later\n")} {
		replace[filepath.Join(own, name)] = filepath.Join(dir, name)
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "zones.json"), overlay, 0o600))
	binary, err = Build(t.Context(), Variant{Race: raceDetector, Overlay: filepath.Join(dir, "zones.json")})
	must(t, err)
	return binary
}
