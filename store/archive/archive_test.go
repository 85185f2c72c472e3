package archive_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/archive"
	"punctual/store/history"
)

// archiving opens a store whose replica archives by a command. $DIR in the command is a directory of the test.
func archiving(t *testing.T, dsn, dir, command string) Fixture {
	t.Helper()
	c := OpenFixture(t, store.Options{
		DatabaseURL: dsn, MaxConns: 8, Master: pgtest.Master(t), Version: "v1",
		ArchiveCommand: strings.ReplaceAll(command, "$DIR", dir),
	})
	Must(t, c.Archives.Begin(t.Context()))
	return c
}

// fullDay writes a day with a run of each form, and returns their names.
func fullDay(c Fixture, job uuid.UUID, day time.Time) map[string]uuid.UUID {
	c.T.Helper()
	runs := c.RanTwice(job, day)
	c.Exec(`UPDATE punctual.runs SET error = E'a\nb "c" \\d é \u2028', started_at = due_at + interval '1.234567 s',
		triggered_by = 'key <a>&b', job_version = 1 WHERE id = $1`, runs["dead"])
	c.Exec(`UPDATE punctual.attempts SET response = E'{\n}', response_headers = '{"a": ["b", "c"]}',
		response_truncated = true, fence = 9007199254740993 WHERE run_id = $1`, runs["dead"])
	c.Exec(`UPDATE punctual.run_data SET webhook_id = gen_random_uuid(), headers = '{"b": "x", "a": "{{secret.s}}"}',
			body = '\x00ff7b', idempotency_key = 'k', progress = E'{"a" :\n1.0,  "a":2}', progress_at = scheduled_for,
			result = E'["\\u0000", 1e400]', result_note = 'n', response = 'r', response_headers = '{}',
			response_truncated = false, response_fence = 7, key = 'order-42', note = '',
			expires_after = '1 mon -2 days 00:00:03.5',
			chains = true, traceparent = '00-a'
		FROM punctual.runs r WHERE r.id = run_id AND run_id = $1`, runs["dead"])
	c.Exec(`UPDATE punctual.run_data SET body = '' WHERE run_id = $1`, runs["succeeded"])
	runs["plain"] = c.Ran(job, day.Add(2*time.Second), domain.StatusSucceeded)
	c.Exec(`UPDATE punctual.run_data SET body = convert_to(E'back\\slash é <b>', 'UTF8') WHERE run_id = $1`, runs["plain"])
	bare := c.Ran(job, day.Add(3*time.Second), domain.StatusSucceeded) // as most runs, it has only its row
	c.Exec(`DELETE FROM punctual.attempts WHERE run_id = $1`, bare)
	c.Exec(`DELETE FROM punctual.run_data WHERE run_id = $1`, bare)
	return runs
}

// rows returns the rows of a day, column by column as Postgres writes them.
func rows(c Fixture, day time.Time) string {
	c.T.Helper()
	var all []string
	for _, table := range []string{"runs", "attempts", "run_data"} {
		key := map[string]string{"runs": "id"}[table]
		if key == "" {
			key = "run_id"
		}
		all = append(all, c.Text(`SELECT coalesce(string_agg(x::text, E'\n' ORDER BY x::text), '') FROM punctual.`+table+` x
			WHERE `+key+` >= punctual.partition_bound($1::text::date)
			  AND `+key+` < punctual.partition_bound($1::text::date + 1)`, day.Format(time.DateOnly)))
	}
	return strings.Join(all, "\n")
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	Must(t, err)
	return text
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	Must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func importFile(c Fixture, path string) (archive.Imported, error) {
	c.T.Helper()
	file, err := os.Open(path)
	Must(c.T, err)
	defer file.Close()
	return c.Archives.Import(c.T.Context(), file, time.Hour)
}

// A day with a run that cannot be read stays, and is tried again. All other days are archived.
func TestADayThatCannotBeReadKeepsNoOtherFromBeingArchived(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cannot be read", "is read for ever"} {
		t.Run(how, func(t *testing.T) {
			if how == "is read for ever" {
				pgtest.Exhaustive(t, "it is given up after a minute")
			}
			t.Parallel()
			dir := t.TempDir()
			c := archiving(t, pgtest.DSN(t), dir, `cat > $DIR/%d`)
			job := c.Create("job", Every(time.Hour)).ID
			damaged, well := c.Ago(41), c.Ago(40)
			for _, day := range []time.Time{damaged, well} {
				c.Ran(job, day.Add(2*time.Second), domain.StatusSucceeded)
			}
			mend := Harm(c, "runs", fmt.Sprintf(`r.scheduled_for < '%s'`, well.Format(time.RFC3339)), Harms[how])
			c.RetireRuns()
			c.Archive()
			const state = `SELECT string_agg(day || CASE WHEN archived_at IS NULL THEN ' waits' ELSE ' is archived' END, ', '
				ORDER BY day) FROM punctual.archives`
			if got, want := c.Text(state), damaged.Format(time.DateOnly)+" waits, "+
				well.Format(time.DateOnly)+" is archived"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			mend()
			c.Exec(`UPDATE punctual.archives SET next_try_at = now()`)
			c.Archive()
			if got := c.Text(state); strings.Contains(got, "waits") {
				t.Errorf("once it can be read: %s", got)
			}
		})
	}
}

func TestADayIsArchivedThenDroppedAndReadBackAsItWas(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	c := archiving(t, dsn, dir, `cat > $DIR/%d.ndjson && echo 100%% > $DIR/percent`)
	job := c.Create("job", Every(time.Hour)).ID
	day := c.Ago(40)
	c.Exec(`UPDATE punctual.job_versions SET valid_from = $1`, day.Add(-time.Hour))
	c.Exec(`UPDATE punctual.jobs SET created_at = $1`, day.Add(-time.Hour))
	runs := fullDay(c, job, day)
	before := rows(c, day)

	c.RetireRuns()
	if got := c.Kept(runs); got != "dead, plain, succeeded" {
		t.Fatalf("before the day is archived there are %s", got)
	}
	c.Archive()
	path := filepath.Join(dir, day.Format(time.DateOnly)+".ndjson")
	file := string(read(t, path))
	if lines := strings.Split(strings.TrimSpace(file), "\n"); len(lines) != 7 ||
		!strings.HasPrefix(lines[0], `{"punctual_archive":1,"day":"`+day.Format(time.DateOnly)+`","part":1,"time_zone":`) ||
		!strings.HasPrefix(lines[6], `{"end":true,"versions":1,"runs":4,"attempts":3,"data":3,"sha256":"`) {
		t.Errorf("the archive is\n%s", file)
	}
	c.RetireRuns()
	if got := c.Kept(runs); got != "dead" {
		t.Fatalf("after the day is archived there are %s", got)
	}
	e := c.Explained("job", day.Add(time.Second))
	if e.Outcome == history.OutcomeSucceeded || c.Explained("job", day).Run == nil {
		t.Errorf("the day is not dropped: %s", e.Text)
	}

	for _, gone := range []time.Duration{0, 70 * 24 * time.Hour} { // with the failures, and when they are gone as well
		if gone > 0 {
			c.Options.FailureRetention = 30 * 24 * time.Hour
			c.FreshDays()
			c.RetireRuns()
			if got := c.Tables(day); got != "" {
				t.Fatalf("there are %s", got)
			}
			c.Exec(`DELETE FROM punctual.job_versions WHERE version = 1 AND EXISTS (
				SELECT FROM punctual.jobs j WHERE j.id = job_id AND j.version > 1)`)
		}
		for range 2 { // it may be imported again
			done, err := importFile(c, path)
			Must(t, err)
			if done.Runs != 4 || done.Gone != 0 {
				t.Errorf("imported: %+v", done)
			}
			if after := rows(c, day); after != before {
				t.Fatalf("the day was\n%s\nand is\n%s", before, after)
			}
		}
		c.Run(runs["dead"])
		if n := c.Count(`SELECT (SELECT count(*) FROM punctual.ready) + (SELECT count(*) FROM punctual.dead_letters)
				+ (SELECT count(*) FROM punctual.notices)`); n != 0 {
			t.Errorf("the import has made %d rows", n)
		}
		c.RetireRuns()
		if got := c.Kept(runs); got != "dead, plain, succeeded" {
			t.Errorf("while the day is pinned there are %s", got)
		}
		c.Exec(`UPDATE punctual.archives SET pinned_until = now()`)
		Must(t, os.Remove(path))
		c.RetireRuns()
		c.Archive()
		c.FreshDays()
		c.RetireRuns()
		if got := c.Kept(runs); strings.Contains(got, "succeeded") {
			t.Errorf("after the pin there are %s", got)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("it was archived again")
		}
		Must(t, os.WriteFile(path, []byte(file), 0o600))
	}
}

func TestAFailingCommandDropsNothingAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	// It fails until there is a file "good".
	c := archiving(t, dsn, dir,
		`test -e $DIR/good && exec cat > $DIR/%d; echo the disk is full >&2; cat > /dev/null; exit 3`)
	runs := c.RanTwice(c.Create("job", Never).ID, c.Ago(40))
	c.RetireRuns()
	for n := 1; n <= 3; n++ {
		c.Archive()
		if got := c.Text(`SELECT failures || ' ' || error || ' ' || (extract(epoch FROM next_try_at - now()) / 60)::int
				|| (SELECT archiving_until FROM punctual.deployment) FROM punctual.archives`); got !=
			fmt.Sprintf("%d the command failed: exit status 3: the disk is full %d-infinity", n, 1<<(n-1)) {
			t.Errorf("after failure %d: %s", n, got)
		}
		c.Archive() // not before its time
		c.Exec(`UPDATE punctual.archives SET next_try_at = now()`)
		c.RetireRuns()
		if got := c.Kept(runs); got != "dead, succeeded" {
			t.Fatalf("after failure %d there are %s", n, got)
		}
	}
	if n := c.Metric("punctual_archive_failures"); n != "3" {
		t.Errorf("the metric says %q", n)
	}
	c.Exec(`UPDATE punctual.archives SET waiting_since = now() - interval '1 h'`)
	if n := c.Metric("punctual_archive_waiting_seconds"); !strings.HasPrefix(n, "360") {
		t.Errorf("the metric says %q", n)
	}
	if a := c.Figures().Archive; a == nil || a.Days != 1 || a.Failures != 3 ||
		*a.Oldest != c.Ago(40).Format(time.DateOnly) {
		t.Errorf("the overview says %+v", a)
	}
	Must(t, os.WriteFile(filepath.Join(dir, "good"), nil, 0o600))
	c.Archive()
	c.RetireRuns()
	if got := c.Kept(runs); got != "dead" {
		t.Errorf("in the end there are %s", got)
	}
	if n := c.Metric("punctual_archive_failures"); n != "0" {
		t.Errorf("the metric says %q", n)
	}
}

func TestAnotherReplicaArchivesWhatAKilledOneDidNot(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	c := archiving(t, dsn, dir, `cat > $DIR/%d; touch $DIR/begun; sleep 3600`)
	other := archiving(t, dsn, dir, `cat > $DIR/%d`)
	runs := c.RanTwice(c.Create("job", Never).ID, c.Ago(40))
	c.RetireRuns()
	dying, kill := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { _, _ = c.Archives.Work(dying) })
	for deadline := time.Now().Add(30 * time.Second); ; {
		if _, err := os.Stat(filepath.Join(dir, "begun")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the command has not begun")
		}
	}
	other.Archive()
	held := c.Text(`SELECT archiving_until::text FROM punctual.deployment`)
	if n := c.Count(`SELECT count(*) FROM punctual.archives WHERE archived_at IS NULL`); n != 1 {
		t.Fatal("two replicas archived at once")
	}
	kill()
	work.Wait()
	// A replica that is killed gives no lease back.
	c.Exec(`UPDATE punctual.deployment SET archiving_until = $1::text::timestamptz`, held)
	other.Archive()
	other.RetireRuns()
	if got := c.Kept(runs); got != "dead, succeeded" {
		t.Errorf("while the lease lasts there are %s", got)
	}
	c.Exec(`UPDATE punctual.deployment SET archiving_until = now() - interval '1 s'`)
	other.Archive()
	other.RetireRuns()
	if got := c.Kept(runs); got != "dead" {
		t.Errorf("in the end there are %s", got)
	}
}

// A run that is written into an archived day is archived too: with the day while all of it is there, else as a part.
func TestARunThatComesLaterIsArchivedToo(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	c := archiving(t, dsn, dir, `cat > $DIR/%d`)
	job, day := c.Create("job", Never).ID, c.Ago(40)
	runs := c.RanTwice(job, day)
	names := func() string {
		var all []string
		for _, name := range list(t, dir) {
			text := read(t, filepath.Join(dir, name))
			all = append(all, fmt.Sprintf("%s has %d runs", strings.TrimPrefix(name, day.Format(time.DateOnly)),
				strings.Count(string(text), `{"job":`)))
		}
		return strings.Join(all, ", ")
	}
	again := func() {
		c.FreshDays()
		c.RetireRuns()
		c.Archive()
		c.FreshDays()
		c.RetireRuns()
	}
	c.RetireRuns()
	c.Archive()
	c.Ran(job, day.Add(time.Minute), domain.StatusSucceeded)
	c.Detach(day) // its removal had begun
	c.RetireRuns()
	if got := c.Kept(runs); got != "dead, succeeded" {
		t.Fatalf("there are %s", got)
	}
	// It may come between the look and the drop.
	c.Detach(day)
	if n := c.Count(`SELECT coalesce(punctual.retire_partitions($1::date, true, 2), -1)`, day); n != -1 {
		t.Errorf("a day with other runs than expected is dropped, and %d are kept", n)
	}
	if got := c.Kept(runs); got != "dead, succeeded" {
		t.Fatalf("there are %s", got)
	}
	again()
	if got := names(); got != " has 3 runs" {
		t.Errorf("%s", got)
	}
	c.Ran(job, day.Add(time.Hour), domain.StatusDead)
	c.Options.FailureRetention = 30 * 24 * time.Hour
	again()
	if got := names(); got != " has 3 runs, .2 has 2 runs" || c.Tables(day) != "" {
		t.Errorf("%s; there are %q", got, c.Tables(day))
	}
}

func TestOnlyWholeFilesOfThisDeploymentAreImported(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	c := archiving(t, dsn, dir, `cat > $DIR/%d`)
	job, gone := c.Create("job", Never).ID, c.Create("gone", Never).ID
	day := c.Ago(40)
	runs := c.RanTwice(job, day)
	c.Ran(gone, day, domain.StatusSucceeded)
	c.RetireRuns()
	c.Archive()
	c.RetireRuns()
	whole := read(t, filepath.Join(dir, day.Format(time.DateOnly)))
	lines := bytes.SplitAfter(whole, []byte("\n"))
	c.Exec(`DELETE FROM punctual.jobs WHERE id = $1`, gone)
	change := func(from, to string) []byte { return bytes.Replace(whole, []byte(from), []byte(to), 1) }
	for name, tt := range map[string]struct {
		file []byte
		want string
	}{
		"empty":        {nil, "line 1: the file ends"},
		"no archive":   {[]byte("{}\n"), "line 1: is not the first line"},
		"compressed":   {[]byte("\x1f\x8b\x08\x00"), "line 1: is not the first line of an archive"}, // no line ends in it
		"a newer form": {change(`archive":1`, `archive":2`), "line 1: the archive has form 2"},
		"foreign": {
			change(c.Text(`SELECT id FROM punctual.deployment`), uuid.NewString()),
			"line 1: the archive is of another deployment",
		},
		"of no archived day": {
			change(day.Format(time.DateOnly), "2020-02-02"), "line 1: this database has no record",
		},
		"without its last line": {bytes.Join(lines[:len(lines)-2], nil), "line 7: the file ends"},
		"within a line":         {whole[:len(whole)/2], "the file ends before its last line"},
		"without a run": {
			append(bytes.Join(lines[:4], nil), bytes.Join(lines[5:], nil)...), "line 6: the file was changed",
		},
		"changed":       {change(`"tenant":"default"`, `"tenant":"defaulT"`), "line 7: the file was changed"},
		"more than one": {append(bytes.Clone(whole), whole...), "line 7: is followed by more"},
		"sealed anew":   {sealed(change(`"tenant":"default"`, `"tenant":"defaulT"`)), "is not the one that was archived"},
		"a member twice": {
			change(`{"job":`, `{"Run":{},"job":`), `has "Run" twice`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Archives.Import(t.Context(), bytes.NewReader(tt.file), time.Hour)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %s", err, tt.want)
			}
			if got := c.Kept(runs); got != "dead" {
				t.Errorf("there are %s", got)
			}
		})
	}
	if n := c.Count(`SELECT count(*) FROM punctual.archives WHERE pinned_until IS NOT NULL`); n != 0 {
		t.Error("the day stays pinned")
	}
	done, err := c.Archives.Import(t.Context(), bytes.NewReader(whole), time.Hour)
	if err != nil || done.Runs != 3 || done.New != 1 || done.Gone != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

// sealed gives a changed file the last line of a whole one.
func sealed(file []byte) []byte {
	end := bytes.LastIndex(file[:len(file)-1], []byte("\n")) + 1
	at := bytes.LastIndex(file, []byte(`"sha256":"`)) + len(`"sha256":"`)
	return slices.Concat(file[:at], fmt.Appendf(nil, "%x", sha256.Sum256(file[:end])), file[at+64:])
}

// Even if the database has recorded the checksum of such a file.
func TestAnArchiveHasOnlyRunsOfItsDayThatHaveEnded(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	c := archiving(t, dsn, dir, `cat > $DIR/%d`)
	job, day := c.Create("job", Never).ID, c.Ago(40)
	runs := c.RanTwice(job, day)
	c.Exec(`UPDATE punctual.job_versions SET valid_from = $1`, day.Add(-time.Hour))
	c.RetireRuns()
	c.Archive()
	c.RetireRuns()
	whole := read(t, filepath.Join(dir, day.Format(time.DateOnly)))
	id := runs["dead"].String()
	for name, tt := range map[string]struct{ from, to, want string }{
		"not ended":             {`"finished_at":"`, `"finished_by":"`, "has not ended"},
		"ended for one parser":  {`"finished_at":"`, `"finished_at":null,"FINISHED_AT":"`, "has not ended"},
		"running":               {`"status":"dead"`, `"status":"running"`, "has not ended"},
		"of another day":        {`"run":{"id":"` + id, `"run":{"ID":"` + id + `","id":"` + uuid.NewString(), "is not of the day"},
		"rows of others":        {`"run_id":"` + id, `"run_id":"` + uuid.NewString(), "has a row of another run"},
		"a version yet to come": {`"version":1,`, `"version":2,`, ""},
	} {
		file := sealed(bytes.Replace(whole, []byte(tt.from), []byte(tt.to), 1))
		end := bytes.LastIndex(file[:len(file)-1], []byte("\n")) + 1
		c.Exec(`UPDATE punctual.archives SET sha256 = $1, bytes = $2`, fmt.Sprintf("%x", sha256.Sum256(file[:end])), len(file))
		_, err := c.Archives.Import(t.Context(), bytes.NewReader(file), time.Hour)
		if tt.want == "" && err != nil || tt.want != "" && !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, tt.want)
		}
	}
	c.WantCount(1, "version of the job", `SELECT count(*) FROM punctual.job_versions`)
}

// The last replica to say something decides, and one that says nothing drops nothing that others want archived.
func TestAReplicaWithoutACommandDropsOnlyWhatIsArchived(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	c := archiving(t, dsn, dir, `cat > $DIR/%d`)
	silent := archiving(t, dsn, dir, "")
	runs := c.RanTwice(c.Create("job", Never).ID, c.Ago(40))
	silent.RetireRuns()
	silent.Archive()
	silent.RetireRuns()
	if got := c.Kept(runs); got != "dead, succeeded" {
		t.Fatalf("without a command there are %s", got)
	}
	ended := archiving(t, dsn, dir, archive.None)
	c.Archive()
	if n := c.Count(`SELECT count(*) FROM punctual.archives`); n != 0 {
		t.Error("a day still waits")
	}
	if a := ended.Figures().Archive; a != nil {
		t.Errorf("the overview says %+v", a)
	}
	ended.RetireRuns()
	if got := c.Kept(runs); got != "dead" {
		t.Errorf("in the end there are %s", got)
	}
	if entries := list(t, dir); len(entries) != 0 {
		t.Errorf("there are %v", entries)
	}
}

func TestExplainSaysWhereAnArchivedSlotIs(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	c := archiving(t, dsn, dir, `cat > $DIR/%d`)
	job := c.Create("job", Every(time.Hour)).ID
	slot := c.Ago(40)
	c.Exec(`UPDATE punctual.job_versions SET valid_from = $1`, slot.Add(-time.Hour))
	c.Exec(`UPDATE punctual.jobs SET created_at = $1`, slot.Add(-time.Hour))
	c.Ran(job, slot, domain.StatusSucceeded)
	explain := func(archived bool, want history.Outcome) {
		t.Helper()
		e := c.Explained("job", slot)
		says := strings.Contains(e.Text, `by the command "cat > `+dir+"/"+slot.Format(time.DateOnly)+`"`)
		if e.Outcome != want || says != archived || (e.Archive != nil) != archived {
			t.Errorf("%s: %s", e.Outcome, e.Text)
		}
	}
	explain(false, history.OutcomeSucceeded)
	c.RetireRuns()
	c.Archive()
	explain(false, history.OutcomeSucceeded)
	c.RetireRuns()
	explain(true, history.OutcomeUnknown)
	_, err := importFile(c, filepath.Join(dir, slot.Format(time.DateOnly)))
	Must(t, err)
	explain(false, history.OutcomeSucceeded)

	// An imported day is not part of what is kept, as verify may lack what it would have to compare it with.
	c.Exec(`SELECT punctual.create_partitions($1::date, now()::date)`, slot)
	from := slot.Truncate(24 * time.Hour)
	if _, s := c.Verified(func(o *history.VerifyOptions) { o.From = from }); !s.From.Equal(from.AddDate(0, 0, 1)) {
		t.Errorf("it verifies from %s", s.From)
	}
}
