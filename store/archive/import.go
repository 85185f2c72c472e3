package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/google/uuid"

	"punctual/store/pg"
)

// mostLine bounds a line of an archive, which holds a run with its attempts and bodies.
const mostLine = 256 << 20

// mostBatch bounds the bytes of lines that are written by one statement.
const mostBatch = 4 << 20

// LineError says which line of a file is no line of an archive of this deployment. Line counts from 1.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// Imported says what became of a file.
type Imported struct {
	Day   string
	Runs  int64 // in the file
	New   int64 // that were not in the database
	Gone  int64 // left out, as their jobs have been removed
	Until time.Time
}

// Import reads an archive back into the database. Its day stays there for keep, and is then dropped again. The whole
// file is read in one transaction, so nothing remains of a file that is not whole. A file may be imported again. Runs
// of jobs that have been removed are left out. Nothing fires, as all runs have ended.
func (a *Archives) Import(ctx context.Context, from io.Reader, keep time.Duration) (done Imported, err error) {
	r := &reader{from: bufio.NewReaderSize(from, 1<<16), hash: sha256.New()}
	h, day, err := a.readHeader(ctx, r)
	if err != nil {
		return done, err
	}
	done.Day = h.Day
	if done.Until, err = a.pin(ctx, h, keep); err != nil {
		return done, err
	}
	err = a.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if err := a.readLines(ctx, tx, r, day, &done); err != nil {
			return err
		}
		from, below := bounds(day)
		return pg.Wrap("counting the runs of the day", pg.Exec(ctx, tx, `
			UPDATE punctual.archives SET runs_left = (SELECT count(*) FROM punctual.runs WHERE id >= $2 AND id < $3)
			WHERE day = $1::text::date AND archived_at IS NOT NULL`, h.Day, from, below))
	})
	if err != nil {
		unpin := pg.Exec(context.WithoutCancel(ctx), a.db.Callers, `
			UPDATE punctual.archives SET pinned_until = NULL WHERE day = $1::text::date AND pinned_until = $2`,
			h.Day, done.Until)
		return done, errors.Join(err, pg.Wrap("letting the day be dropped again", unpin))
	}
	return done, nil
}

// readHeader reads the first line, and checks that the file is an archive of this deployment.
func (a *Archives) readHeader(ctx context.Context, r *reader) (h header, day time.Time, err error) {
	const noArchive = "is not the first line of an archive of Punctual; if the file is compressed, expand it first: " +
		"zstd -dc FILE | punctual runs import -"
	if first, err := r.from.Peek(1); err == nil && first[0] != '{' { // a compressed file may have no end of a line
		r.line++
		return h, day, r.fault(noArchive)
	}
	text, err := r.next()
	if err != nil {
		return h, day, err
	}
	r.hash.Write(text)
	if json.Unmarshal(text, &h) != nil || h.Format == 0 {
		return h, day, r.fault(noArchive)
	}
	if h.Format != format {
		return h, day, r.fault("the archive has form %d, and this binary reads form %d", h.Format, format)
	}
	if day, err = time.Parse(time.DateOnly, h.Day); err != nil || h.TimeZone != "UTC" {
		return h, day, r.fault("%q in the time zone %q is not a day", h.Day, h.TimeZone)
	}
	var here uuid.UUID
	if err := a.db.Callers.QueryRow(ctx, `
		SELECT d.id, coalesce(a.sha256, ''), coalesce(a.bytes, 0)
		FROM punctual.deployment d LEFT JOIN punctual.archives a ON a.day = $1::text::date AND a.part = $2`,
		h.Day, h.Part).Scan(&here, &r.recorded.sha256, &r.recorded.bytes); err != nil {
		return h, day, fmt.Errorf("reading the deployment: %w", err)
	}
	switch {
	case here != h.Deployment:
		return h, day, r.fault("the archive is of another deployment (%s, database %q); this one is %s",
			h.Deployment, h.Database, here)
	case r.recorded.sha256 == "":
		return h, day, r.fault("this database has no record that part %d of %s was archived", h.Part, h.Day)
	}
	return h, day, nil
}

// pin lets the day stay, and makes its partitions. That is committed first, because making partitions waits for a lock
// that must not be held while a file is read.
func (a *Archives) pin(ctx context.Context, h header, keep time.Duration) (until time.Time, err error) {
	err = a.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if err := pg.Exec(ctx, tx, `SELECT punctual.restore_partitions($1::text::date)`, h.Day); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `
			UPDATE punctual.archives SET pinned_until = now() + $2::interval
			WHERE day = $1::text::date AND archived_at IS NOT NULL RETURNING pinned_until`, h.Day, keep).Scan(&until)
	})
	return until.UTC(), pg.Wrap("making the partitions of "+h.Day, err)
}

// readLines reads all lines after the first, and writes their rows.
func (a *Archives) readLines(ctx context.Context, tx *pg.Tx, r *reader, day time.Time, done *Imported) error {
	var found trailer
	b := batch{tx: tx, day: day, done: done}
	for {
		text, err := r.next()
		if err != nil {
			return err
		}
		if bytes.HasPrefix(text, []byte(`{"end":`)) {
			if err := r.end(text, found); err != nil {
				return err
			}
			done.Runs = found.Runs
			return b.write(ctx)
		}
		r.hash.Write(text)
		if err := b.add(text, &found); err != nil {
			return &LineError{r.line, err}
		}
		if len(b.runs) >= a.page || b.bytes >= mostBatch {
			if err := b.write(ctx); err != nil {
				return fmt.Errorf("writing the rows up to line %d: %w", r.line, err)
			}
		}
	}
}

// reader reads lines, and counts them.
type reader struct {
	from *bufio.Reader
	line int
	hash hash.Hash // of the lines before the last
	size int64
	// What the database recorded when the day was archived. The checksum in the file itself says only that it is whole:
	// whoever writes another file writes another checksum.
	recorded struct {
		sha256 string
		bytes  int64
	}
}

// next returns the next line with its end.
func (r *reader) next() (text []byte, err error) {
	r.line++
	for {
		part, err := r.from.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case err == nil:
			r.size += int64(len(text))
			return text, nil
		case errors.Is(err, io.EOF):
			return nil, r.fault("the file ends before its last line: it is truncated")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("reading line %d: %w", r.line, err)
		case len(text) > mostLine:
			return nil, r.fault("is longer than %d bytes", mostLine)
		}
	}
}

func (r *reader) fault(why string, args ...any) error {
	return &LineError{r.line, fmt.Errorf(why, args...)}
}

// end checks the last line.
func (r *reader) end(text []byte, found trailer) error {
	var said trailer
	if err := json.Unmarshal(text, &said); err != nil {
		return &LineError{r.line, err}
	}
	found.End, found.SHA256 = true, hex.EncodeToString(r.hash.Sum(nil))
	if found != said {
		return r.fault("the file was changed: it has %+v, and its last line says %+v", found, said)
	}
	if _, err := r.from.ReadByte(); !errors.Is(err, io.EOF) {
		return r.fault("is followed by more: import one archive at a time")
	}
	if found.SHA256 != r.recorded.sha256 || r.size != r.recorded.bytes {
		return r.fault("the file is not the one that was archived: it has %d bytes with the checksum %s, and this database "+
			"recorded %d bytes with %s", r.size, found.SHA256, r.recorded.bytes, r.recorded.sha256)
	}
	return nil
}

// batch are lines whose rows are written together.
type batch struct {
	tx             *pg.Tx
	day            time.Time
	done           *Imported
	runs, versions []string // lines
	bytes          int
}

// add checks a line and adds it.
func (b *batch) add(text []byte, count *trailer) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	if err := exact(text); err != nil {
		return err
	}
	if l.Version != nil {
		count.Versions++
		b.versions = append(b.versions, string(text))
		return nil
	}
	if l.Run == nil {
		return errors.New("is neither a version, nor a run, nor the last line")
	}
	if l.Data != nil {
		count.Data++
	}
	count.Runs, count.Attempts = count.Runs+1, count.Attempts+int64(len(l.Attempts))
	b.runs, b.bytes = append(b.runs, string(text)), b.bytes+len(text)
	return nil
}

// A version that was removed since is there again as long as a run names it.
const insertVersions = `
INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition, note, tenant, event, rerun_at)
SELECT v.job_id, v.version, v.valid_from, v.state, (v.definition #>> '{}')::json, v.note, v.tenant, v.event, v.rerun_at
FROM unnest($1::text[]) l, json_populate_record(NULL::punctual.job_versions, l::json -> 'version') v
JOIN punctual.jobs j ON j.id = v.job_id AND j.tenant = v.tenant AND v.version <= j.version
ON CONFLICT DO NOTHING`

// judgeRuns finds a run that cannot be of an archive. Postgres judges what Postgres has read: another parser may read
// the same text otherwise.
const judgeRuns = `
SELECT format('the run %s %s', r.id, CASE
           WHEN (r.id >= $2 AND r.id < $3) IS NOT TRUE THEN 'is not of the day'
           WHEN r.finished_at IS NULL OR r.status NOT IN ('succeeded', 'dead', 'skipped', 'cancelled')
           THEN 'has not ended'
           ELSE 'has a row of another run' END)
FROM unnest($1::text[]) t, CAST(t AS json) l, json_populate_record(NULL::punctual.runs, l -> 'run') r
WHERE (r.id >= $2 AND r.id < $3 AND r.finished_at IS NOT NULL
       AND r.status IN ('succeeded', 'dead', 'skipped', 'cancelled')) IS NOT TRUE
   OR EXISTS (SELECT FROM json_array_elements(l -> 'attempts') e, json_populate_record(NULL::punctual.attempts, e) a
              WHERE a.run_id IS DISTINCT FROM r.id)
   OR l -> 'data' IS NOT NULL AND (l -> 'data' ->> 'run_id')::uuid IS DISTINCT FROM r.id
LIMIT 1`

const lockJobs = `
SELECT FROM punctual.jobs WHERE deleted_at IS NOT NULL AND id IN (
    SELECT r.job_id FROM unnest($1::text[]) t, json_populate_record(NULL::punctual.runs, CAST(t AS json) -> 'run') r)
ORDER BY id FOR KEY SHARE`

var insertRuns = `
WITH lines AS (
    SELECT r AS run, l.l
    FROM (SELECT l::json AS l FROM unnest($1::text[]) l) l,
         json_populate_record(NULL::punctual.runs, l.l -> 'run') r
    WHERE EXISTS (SELECT FROM punctual.jobs j WHERE j.id = r.job_id AND j.tenant = r.tenant)),
runs AS (
    INSERT INTO punctual.runs SELECT (run).* FROM lines ON CONFLICT DO NOTHING RETURNING id),
attempts AS (
    INSERT INTO punctual.attempts SELECT a.*
    FROM lines, json_array_elements(l -> 'attempts') e, json_populate_record(NULL::punctual.attempts, e) a
    ON CONFLICT DO NOTHING),
data AS (
    INSERT INTO punctual.run_data (run_id, ` + each(plainColumns, "%") + `, ` + each(textColumns, "%") + `, body)
    SELECT d.run_id, ` + each(plainColumns, "d.%") + `, ` + each(textColumns, "(d.% #>> '{}')::json") + `,
           coalesce(decode(l ->> 'body_base64', 'base64'), convert_to(l ->> 'body', 'UTF8'))
    FROM lines, json_populate_record(NULL::punctual.run_data, l -> 'data') d
    WHERE l -> 'data' IS NOT NULL
    ON CONFLICT DO NOTHING)
SELECT (SELECT count(*) FROM lines), (SELECT count(*) FROM runs)`

// write writes the rows of the lines. A job that is deleted is shared, so that it is not removed meanwhile.
func (b *batch) write(ctx context.Context) error {
	var wrong string
	from, below := bounds(b.day)
	if some, err := pg.Some(b.tx.QueryRow(ctx, judgeRuns, b.runs, from, below).Scan(&wrong)); some || err != nil {
		return cmp.Or(err, errors.New(wrong))
	}
	if err := pg.Exec(ctx, b.tx, lockJobs, b.runs); err != nil {
		return err
	}
	if err := pg.Exec(ctx, b.tx, insertVersions, b.versions); err != nil {
		return err
	}
	var known, added int64
	if err := b.tx.QueryRow(ctx, insertRuns, b.runs).Scan(&known, &added); err != nil {
		return err
	}
	b.done.New, b.done.Gone = b.done.New+added, b.done.Gone+int64(len(b.runs))-known
	b.runs, b.versions, b.bytes = nil, nil, 0
	return nil
}
