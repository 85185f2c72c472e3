package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/runs"
	"punctual/store/vault"
)

// sealing opens a replica with or without --encrypt-payloads.
func sealing(t *testing.T, dsn string, master *vault.Master, sealed bool) *scene {
	t.Helper()
	return &scene{Replica: AsReplica(OpenFixture(t, store.Options{
		DatabaseURL: dsn, MaxConns: 8, Master: master, Sealed: sealed,
	}))}
}

// given triggers a job with a body of a door.
func (s *scene) given(job, door string) runs.Run {
	s.T.Helper()
	run, err := s.For(s.Tenant).TriggerJob(s.T.Context(), job, jobs.TriggerRequest{Body: payload(door)})
	s.Must(err)
	return run
}

func (s *scene) wantSent(want ...string) {
	s.T.Helper()
	sent := s.sends()
	for _, w := range want {
		job, door, _ := strings.Cut(w, ": ")
		if got := s.SentBody(sent[job]); got != string(payload(door)) {
			s.T.Errorf("%s is sent %s, want the payload of %s", job, got, door)
		}
	}
}

// rests reports whether payloads rest in plain text in the rows of a table for which a condition holds.
func (s *scene) rests(table, where string) bool {
	s.T.Helper()
	return s.Count(`SELECT count(*) FROM punctual.`+table+` x WHERE (`+where+`) AND (x::text ILIKE '%' || $1 || '%'
		OR x::text ILIKE '%' || encode(convert_to($1, 'UTF8'), 'hex') || '%')`, marker) > 0
}

// The flag is switched on and off while there is data, and replicas with and without it work side by side. Each reads
// what the other has written, and what changes is written anew as the replica writes that changes it.
func TestTheSwitchChangesNothingThatIsThere(t *testing.T) {
	t.Parallel()
	dsn, master := pgtest.DSN(t), pgtest.Master(t)
	old := sealing(t, dsn, master, false)
	old.Create("job", Never, func(d *jobspec.Definition) { old.body(d, "definition") })
	old.Create("other", Never, func(d *jobspec.Definition) { old.body(d, "other") })
	old.Create("listens", On("paid", `{"kind":"order"}`))
	old.Emit("paid", `{"kind":"order","of":"`+marker+`"}`)
	before := old.given("job", "before")

	on := sealing(t, dsn, master, true)
	on.wantSent("job: before")
	if on.rests("run_data", "true") {
		t.Error("a body that was there is not sealed when its run is claimed")
	}
	on.given("other", "on")
	old.wantSent("other: on") // beside it, without the flag
	old.given("other", "off")
	on.wantSent("other: off")
	on.Edit("job", func(d *jobspec.Definition) { d.Description = "changed" })
	on.Pause("other")
	if on.rests("job_versions", "definition ->> 'description' = 'changed'") {
		t.Error("a definition that was edited is not sealed")
	}
	if !on.rests("job_versions", "version = 1") || !on.rests("job_versions", "state = 'paused'") { // which is a copy
		t.Error("what was there, or only changed its state, is not as it was")
	}
	on.Resumed("other")

	rotated, err := on.Secrets.RotateSecrets(t.Context(), nil)
	Must(t, err)
	on.Renewed()
	on.given("job", "rotated")
	newest := Value[string](on.Fixture, `SELECT max(id::text) FROM punctual.data_keys WHERE payloads
		AND number = (SELECT max(number) FROM punctual.data_keys WHERE payloads)`)
	if n := on.Count(`SELECT count(*) FROM punctual.run_data
		WHERE encode(body, 'escape') LIKE 'punctual-sealed-1:o:%:' || $1 || ':%'`, newest); n != 1 || rotated.Key == 0 {
		t.Errorf("%d bodies are sealed with the new key", n)
	}
	old.wantSent("job: rotated")

	young := pgtest.Master(t)
	_, err = on.Secrets.RotateSecrets(t.Context(), young)
	Must(t, err)
	off := sealing(t, dsn, young, false)
	off.given("job", "off")
	off.wantSent("job: off")
	off.Edit("job", func(d *jobspec.Definition) { d.Description = "changed again" })
	if !off.rests("job_versions", "definition ->> 'description' = 'changed again'") || !off.rests("run_data", "true") {
		t.Error("without the flag, payloads are sealed")
	}
	if body := off.opened(before.ID); !strings.Contains(body, string(payload("before"))) {
		t.Errorf("the first run is shown as %s", body)
	}
	off.read(off.Get("job"), off.Get("other"))
}

// An archive holds what the tables hold, and is read back, also after a rotation.
func TestNoArchiveHoldsAPayload(t *testing.T) {
	t.Parallel()
	for name, sealed := range map[string]bool{"plain": false, "sealed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := &scene{Replica: AsReplica(OpenFixture(t, store.Options{
				DatabaseURL: pgtest.DSN(t), MaxConns: 8, Master: pgtest.Master(t), Sealed: sealed, Version: "v1",
				ArchiveCommand: "cat > " + dir + "/%d",
			}))}
			Must(t, s.Archives.Begin(t.Context()))
			job := s.Create("job", Never, func(d *jobspec.Definition) { s.body(d, "definition") })
			today := s.given("job", "trigger")
			s.Finish(answering(s.sends()["job"], "job"))
			failed := s.given("job", "trigger")
			s.Finish(dying(s.sends()["job"], "job"))
			day := s.Ago(100)
			s.Exec(`UPDATE punctual.job_versions SET valid_from = $1`, day.Add(-time.Hour))
			s.Exec(`UPDATE punctual.jobs SET created_at = $1`, day.Add(-time.Hour))
			gone := s.Ran(job.ID, day, domain.StatusDead)
			s.Exec(`UPDATE punctual.run_data d SET body = f.body, result = f.result, response = f.response,
				response_headers = f.response_headers, response_fence = 1
				FROM punctual.run_data f WHERE f.run_id = $1 AND d.run_id = $2`, today.ID, gone)
			s.Exec(`UPDATE punctual.runs r SET error = f.error FROM punctual.runs f WHERE f.id = $1 AND r.id = $2`,
				failed.ID, gone)
			s.Exec(`UPDATE punctual.attempts a SET error = f.error, response = f.response, response_headers = f.response_headers
				FROM punctual.attempts f WHERE f.run_id = $1 AND a.run_id = $2`, failed.ID, gone)
			before := s.opened(gone)
			s.RetireRuns()
			s.Archive()
			path := filepath.Join(dir, day.Format(time.DateOnly))
			file, err := os.ReadFile(path)
			Must(t, err)
			if n := strings.Count(string(file), marker); sealed && n > 0 || !sealed && n < 6 {
				t.Errorf("the archive has %d payloads in plain text", n)
			}
			s.RetireRuns()
			if n := s.Count(`SELECT count(*) FROM punctual.runs WHERE id = $1`, gone); n != 0 {
				t.Fatal("the day is not dropped")
			}
			_, err = s.Secrets.RotateSecrets(t.Context(), nil)
			Must(t, err)
			archived, err := os.Open(path)
			Must(t, err)
			defer archived.Close()
			_, err = s.Archives.Import(t.Context(), archived, time.Hour)
			Must(t, err)
			if after := s.opened(gone); after != before || strings.Count(after, marker) < 4 {
				t.Errorf("the run was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

// opened is a run as people see it.
func (s *scene) opened(id uuid.UUID) string {
	s.T.Helper()
	r := s.Run(id)
	text := string(r.Result)
	if r.Error != nil {
		text += "\n" + *r.Error
	}
	for _, a := range r.Attempts {
		if a.Error != nil {
			text += "\n" + *a.Error
		}
		if a.Response != nil {
			text += "\n" + *a.Response
		}
	}
	if r.Sent != nil {
		text += "\n" + string(r.Sent.Body)
	}
	return text
}
