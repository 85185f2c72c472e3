package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Begin writes, at the start of a replica, whether days are archived. Every replica must have the same command, as the
// last to start decides. A replica without one changes nothing.
func (a *Archives) Begin(ctx context.Context) error {
	if a.options.Command == "" {
		var command *string
		err := a.db.Callers.QueryRow(ctx, `SELECT archive_command FROM punctual.deployment`).Scan(&command)
		if err == nil && command != nil {
			a.log.Warn("other replicas archive days, and this one has no --archive-command: it drops only days that were "+
				"archived; --archive-command=none ends that", "archive_command", *command)
		}
		return pg.Wrap("looking whether days are archived", err)
	}
	return a.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		command := pg.OrNull(a.options.Command)
		if a.options.Command == None {
			command = nil
		}
		if err := pg.Exec(ctx, tx, `
			UPDATE punctual.deployment SET archive_command = $1 WHERE archive_command IS DISTINCT FROM $1`,
			command); err != nil || command != nil {
			return pg.Wrap("writing whether days are archived", err)
		}
		return pg.Wrap("forgetting which days wait",
			pg.Exec(ctx, tx, `DELETE FROM punctual.archives WHERE archived_at IS NULL`))
	})
}

// state is how far the archive of a day is.
type state struct {
	on       bool // days are archived
	part     int  // 0: there is none
	archived bool
	dropped  bool // the day has been dropped since
	left     int64
}

// Waits reports whether a day stays in any case: it waits to be archived, or was imported. So its runs need not be
// looked at.
func (a *Archives) Waits(ctx context.Context, day time.Time) (bool, error) {
	waits, err := pg.One(ctx, a.db.Chores, pgx.RowTo[bool], `
		SELECT EXISTS (SELECT FROM punctual.archives a, punctual.deployment d
		               WHERE a.day = $1::text::date AND (a.pinned_until > now()
		                  OR a.archived_at IS NULL AND d.archive_command IS NOT NULL))`, day.Format(time.DateOnly))
	return waits, pg.Wrap("looking whether the day waits", err)
}

// MayDrop reports whether a day may be dropped, and how many runs it must then have; nil: any number. The names are
// those of the tables that hold its runs. If the day has yet to be archived, MayDrop sees to it that it will be.
func (a *Archives) MayDrop(ctx context.Context, day time.Time, tables []string) (expected *int64, may bool, err error) {
	var s state
	err = a.db.Chores.QueryRow(ctx, `
		SELECT d.archive_command IS NOT NULL, coalesce(a.part, 0), a.archived_at IS NOT NULL, a.dropped_at IS NOT NULL,
		       coalesce(a.runs_left, 0)
		FROM punctual.deployment d
		LEFT JOIN LATERAL (
		    SELECT * FROM punctual.archives WHERE day = $1::text::date ORDER BY part DESC LIMIT 1) a ON true`,
		day.Format(time.DateOnly)).Scan(&s.on, &s.part, &s.archived, &s.dropped, &s.left)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("looking whether the day is archived: %w", err)
	case !s.on:
		return nil, true, nil
	case s.part > 0 && !s.archived:
		return nil, false, nil
	case s.part > 0:
		var n int64
		if n, err = a.count(ctx, tables); err != nil || n == s.left {
			return &s.left, err == nil, err
		}
		if !s.dropped { // the archive of before has nothing that is not there any more
			return nil, false, a.wait(ctx, `
				UPDATE punctual.archives SET archived_at = NULL, command = NULL, runs = NULL, runs_left = NULL, bytes = NULL,
				       sha256 = NULL, waiting_since = now(), next_try_at = now()
				WHERE day = $1::text::date AND part = $2`, day, s.part)
		}
	}
	return nil, false, a.wait(ctx, `
		INSERT INTO punctual.archives (day, part) VALUES ($1::text::date, $2) ON CONFLICT DO NOTHING`, day, s.part+1)
}

func (a *Archives) wait(ctx context.Context, sql string, day time.Time, part int) error {
	return pg.Wrap("writing that the day waits", pg.Exec(ctx, a.db.Chores, sql, day.Format(time.DateOnly), part))
}

// count returns how many runs a day has. Its tables may be detached.
func (a *Archives) count(ctx context.Context, tables []string) (sum int64, err error) {
	for _, name := range tables {
		n, err := pg.One(ctx, a.db.Chores, pgx.RowTo[int64],
			`SELECT count(*) FROM `+pgx.Identifier{"punctual", name}.Sanitize())
		if err != nil {
			return 0, fmt.Errorf("counting the runs of the day: %w", err)
		}
		sum += n
	}
	return sum, nil
}

// Archive says where the runs of a day are that the database has dropped.
type Archive struct {
	Day        string    `json:"day" format:"date" doc:"The day, in UTC." example:"2026-09-01"`
	ArchivedAt time.Time `json:"archived_at" doc:"When it was archived."`
	Command    string    `json:"command" doc:"The command that archived it, with the day filled in." example:"zstd -q > /archive/2026-09-01.ndjson.zst"`
}

// Of returns where the runs of the day of an instant are; nil: they were not archived, or none was dropped since.
func Of(ctx context.Context, q pg.Querier, at time.Time) (*Archive, error) {
	found := Archive{Day: at.UTC().Format(time.DateOnly)}
	err := q.QueryRow(ctx, `
		SELECT archived_at, command FROM punctual.archives
		WHERE day = $1::text::date AND dropped_at IS NOT NULL ORDER BY part LIMIT 1`, found.Day).
		Scan(&found.ArchivedAt, &found.Command)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &found, pg.Wrap("looking for the day's archive", err)
}

// kept is how long it is known where an archive is.
const kept = 10 * 365 * 24 * time.Hour

// Forget deletes the records of archives of long ago.
func (a *Archives) Forget(ctx context.Context) (forgotten int, left bool, err error) {
	done, err := a.db.Chores.Exec(ctx, `
		DELETE FROM punctual.archives WHERE archived_at < now() - $1::interval AND dropped_at IS NOT NULL`, kept)
	return int(done.RowsAffected()), false, pg.Wrap("forgetting archives of long ago", err)
}
