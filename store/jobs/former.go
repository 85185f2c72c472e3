package jobs

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/links"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/seal"
)

// Version is a version of a job: its definition and its state from an instant on, until the next version.
type Version struct {
	Number   int32           `json:"version" doc:"Its number." example:"8"`
	From     time.Time       `json:"valid_from" doc:"When it took effect."`
	State    domain.JobState `json:"state" enum:"active,paused,completed,deleted" doc:"The job's state from then on." example:"active"`
	By       *string         `json:"by" doc:"Who made it, according to the audit log. Null: unknown." example:"key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)"`
	Note     *string         `json:"note" doc:"The note given with a pause or a resume."`
	Restored *int32          `json:"restored_version" doc:"The version whose definition was restored, if one was." example:"6"`
	Changed  []string        `json:"changed" doc:"The fields that differ from the version before it, of those that are kept: of the definition, and state. Empty on the oldest." example:"[\"schedule.cron\"]"`
}

// WholeVersion is a version with its definition.
type WholeVersion struct {
	Version
	Definition  json.RawMessage    `json:"definition" doc:"The definition as it was written, without defaults. Secrets, and headers that look like one, are shown as ***."`
	Differences []audit.Difference `json:"differences,omitzero" doc:"With against: the fields of the definition in which the other version (before) and this one (after) differ. A secret that differs reads *** in both."`
}

// versionRow is a version, with its definition as it is stored.
type versionRow struct {
	Version
	definition string
}

// versionCursor marks cursors of lists of versions.
const versionCursor byte = 'v'

// selectVersions reads a page of versions and the first version of the next page: see pg.LargePage.
const selectVersions = `
SELECT version, valid_from, state, note, definition
FROM (SELECT v.version, v.valid_from, v.state, v.note, v.definition::text,
             sum(octet_length(v.definition::text))
             OVER (ORDER BY v.version DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING)
      FROM punctual.job_versions v WHERE v.job_id = $1 AND v.version <= $2
      ORDER BY v.version DESC LIMIT $3) AS p(version, valid_from, state, note, definition, bytes)
WHERE coalesce(bytes, 0) < $4
ORDER BY version DESC`

func scanVersion(row pgx.CollectableRow) (versionRow, error) {
	var v versionRow
	var text seal.TriedDocument
	err := row.Scan(&v.Number, &v.From, &v.State, &v.Note, &text)
	v.definition = text.Text
	return v, err
}

// FindJob returns the id of a job. An id also finds a deleted job.
func (s *Jobs) FindJob(ctx context.Context, tenant int32, ref string) (uuid.UUID, error) {
	q := s.db.Callers.Reader(tenant)
	id, err := names.Find(ctx, q, tenant, ref)
	if err != nil {
		return id, err
	}
	err = q.QueryRow(ctx, `SELECT id FROM punctual.jobs WHERE id = $1 AND tenant = $2`, id, tenant).Scan(&id)
	return id, pg.Found(err, "job %q", ref)
}

// ListVersions returns the versions of a job that are kept, newest first, and the cursor of the next page.
func (s *Jobs) ListVersions(
	ctx context.Context, tenant int32, ref string, p pg.Page,
) (versions []Version, nextCursor string, err error) {
	below := int32(math.MaxInt32)
	cursor, ok, err := p.After(versionCursor)
	if err != nil {
		return nil, "", err
	}
	if ok {
		below = int32(binary.BigEndian.Uint32(cursor[12:])) - 1
	}
	id, err := s.FindJob(ctx, tenant, ref)
	if err != nil {
		return nil, "", err
	}
	q := s.db.Callers.Reader(tenant)
	page := pg.LargePage{Page: p}
	rows, err := pg.All(ctx, q, func(row pgx.CollectableRow) (versionRow, error) {
		v, err := scanVersion(row)
		page.Add(len(v.definition))
		return v, err
	}, selectVersions, id, below, p.Size()+1, pg.MostListed)
	if err != nil {
		return nil, "", fmt.Errorf("listing the versions of job %s: %w", id, err)
	}
	versions, nextCursor = pg.Cut(compared(rows), page.Page, versionCursor, numbered)
	return versions, nextCursor, nameAuthors(ctx, q, tenant, id, versions)
}

// numbered returns the number of a version in the form of a cursor.
func numbered(v Version) (id uuid.UUID) {
	binary.BigEndian.PutUint32(id[12:], uint32(v.Number))
	return id
}

// compared returns versions, newest first, each with what differs from the one after it in the list.
func compared(rows []versionRow) []Version {
	return pg.Column(rows, func(v versionRow) Version {
		v.Changed = []string{}
		if rows = rows[1:]; len(rows) == 0 {
			return v.Version
		}
		for _, d := range audit.DefinitionDifferences(rows[0].definition, v.definition) {
			v.Changed = append(v.Changed, d.Field)
		}
		if rows[0].State != v.State {
			v.Changed = append(v.Changed, "state")
		}
		return v.Version
	})
}

// writtenVersions are versions with the bounds of the ids of their entries in the audit log.
var writtenVersions = pg.Columns[Version]{
	pg.Col("version", "integer", func(v Version) int32 { return v.Number }),
	pg.Col("at", "timestamptz", func(v Version) time.Time { return v.From }),
	pg.Col("first", "uuid", func(v Version) uuid.UUID { return domain.FirstRunID(v.From) }),
	pg.Col("until", "uuid", func(v Version) uuid.UUID { return domain.FirstRunID(v.From.Add(time.Millisecond)) }),
}

// nameAuthors reads from the audit log who made versions. An entry has the instant of its version, which is in its id
// too.
func nameAuthors(ctx context.Context, q pg.Querier, tenant int32, job uuid.UUID, versions []Version) error {
	of := map[int32]*Version{}
	for i, v := range versions {
		of[v.Number] = &versions[i]
	}
	rows := pg.Query(ctx, q, `
		SELECT w.version, a.actor_kind, coalesce(a.actor, ''), coalesce(k.name, ''), a.restored
		FROM `+writtenVersions.Unnest("w")+`
		CROSS JOIN LATERAL (
		    SELECT a.actor_kind, a.actor, (a.after ->> 'restored_version')::integer AS restored
		    FROM punctual.audit_entries a
		    WHERE a.job_id = $5 AND a.tenant = $6 AND a.id >= w.first AND a.id < w.until AND a.at = w.at
		      AND a.resource_id = a.job_id AND a.action <> 'job.backfill' LIMIT 1) a
		LEFT JOIN punctual.api_keys k ON a.actor_kind = 'key' AND k.id::text = a.actor`,
		append(writtenVersions.Args(versions), job, tenant)...)
	var number int32
	var kind audit.ActorKind
	var actor, key string
	var restored *int32
	err := pg.Each(rows, []any{&number, &kind, &actor, &key, &restored}, func() {
		by := audit.Actor{Kind: kind, Name: actor, KeyName: key}
		of[number].By, of[number].Restored = new(by.Words()), restored
	})
	return pg.Wrap("reading who changed job "+job.String(), err)
}

// GetVersion returns a version of a job, compared with another one unless against is 0. The error is pg.ErrNotFound if
// the job has no such version, or it is not kept any more.
func (s *Jobs) GetVersion(
	ctx context.Context, tenant int32, ref string, number, against int32,
) (v WholeVersion, err error) {
	id, err := s.FindJob(ctx, tenant, ref)
	if err != nil {
		return v, err
	}
	q := s.db.Callers.Reader(tenant)
	rows, err := pg.All(ctx, q, scanVersion, selectVersions, id, number, 2, math.MaxInt32)
	if err != nil {
		return v, fmt.Errorf("reading version %d of job %s: %w", number, id, err)
	}
	if len(rows) == 0 || rows[0].Number != number {
		return v, noVersion(id, number)
	}
	v.Version = compared(rows)[0]
	v.Definition = json.RawMessage(audit.MaskDefinition(rows[0].definition))
	if against != 0 {
		other, err := readVersion(ctx, q, id, against)
		if err != nil {
			return v, err
		}
		v.Differences = audit.DefinitionDifferences(other, rows[0].definition)
	}
	texts := []*json.RawMessage{&v.Definition}
	for i := range v.Differences {
		if d := &v.Differences[i]; d.Field == "then" {
			texts = append(texts, &d.Before, &d.After)
		}
	}
	if err := links.NameIn(ctx, q, texts...); err != nil {
		return v, err
	}
	one := []Version{v.Version}
	err = nameAuthors(ctx, q, tenant, id, one)
	v.Version = one[0]
	return v, err
}

func noVersion(job uuid.UUID, number int32) error {
	return fmt.Errorf("version %d of job %s: %w", number, job, pg.ErrNotFound)
}

// readVersion returns the definition of a version, as it is stored.
func readVersion(ctx context.Context, q pg.Querier, job uuid.UUID, number int32) (definition string, err error) {
	err = q.QueryRow(ctx, `
		SELECT definition::text FROM punctual.job_versions WHERE job_id = $1 AND version = $2`, job, number).
		Scan((*seal.Document)(&definition))
	if errors.Is(err, pgx.ErrNoRows) {
		return "", noVersion(job, number)
	}
	return definition, pg.Wrap("reading a version of job "+job.String(), err)
}

// RestoreVersion writes the definition of a former version as the job's next one, if check accepts it. The job keeps
// its name and its state: it stays paused or active. If nothing differs, nothing is written. The error is ErrVersion if
// the job is not at version ifMatch (nil: any), and pg.ErrNotFound if the version is not kept.
func (s *Jobs) RestoreVersion(
	ctx context.Context, tenant int32, ref string, number int32, ifMatch *int32, check func(jobspec.Definition) error,
) (Record, error) {
	return s.edit(ctx, tenant, ref, ifMatch, func(tx *pg.Tx, h *held) (job NewJob, err error) {
		text, err := readVersion(ctx, tx, h.ID, number)
		if err != nil {
			return job, err
		}
		var former jobspec.Definition
		if err := json.Unmarshal([]byte(text), &former); err != nil {
			return job, fmt.Errorf("job %s version %d: its definition: %w", h.ID, number, err)
		}
		former.Name = h.Definition.Name
		if err := check(former); err != nil {
			return job, err
		}
		h.restored = number
		job.Definition, err = s.secrets.Reopen(ctx, tx, tenant, h.ID, h.Definition, former)
		return job, err
	})
}
