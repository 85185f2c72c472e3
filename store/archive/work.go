package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

const (
	// Chore is the name of the chore that archives days.
	Chore = "archiving"
	// lease is how long another replica waits for one that archived and is silent.
	lease = 30 * time.Second
	// renewal is how often the lease is renewed, and lapse how long after the last renewal the command is killed.
	renewal = 8 * time.Second
	lapse   = 24 * time.Second
	// postponed is how long a day waits that has to be there for longer.
	postponed = time.Hour
	// recording is how long what became of a command may take to be written.
	recording = 5 * time.Second
)

var errLeaseLost = errors.New("another replica may have taken the lease to archive")

// leased is the lease of this replica: archiving_until as it wrote it last.
type leased struct{ until time.Time }

// Work archives the oldest day that waits, unless another replica archives. left is true if more may wait.
func (a *Archives) Work(ctx context.Context) (left bool, err error) {
	if a.options.Command == "" || a.options.Command == None {
		return false, nil
	}
	l, mine, err := a.take(ctx)
	if err != nil || !mine {
		return false, err
	}
	p, found, err := a.next(ctx)
	if err == nil && found {
		err = a.archive(ctx, &l, p)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), recording)
	defer cancel()
	return found && err == nil, errors.Join(err, a.release(end, l))
}

func (a *Archives) take(ctx context.Context) (l leased, mine bool, err error) {
	err = a.db.Chores.QueryRow(ctx, `
		UPDATE punctual.deployment SET archiving_until = clock_timestamp() + $1::interval
		WHERE archiving_until < now() AND archive_command IS NOT NULL
		  AND EXISTS (SELECT FROM punctual.archives WHERE archived_at IS NULL AND next_try_at <= now())
		RETURNING archiving_until`, lease).Scan(&l.until)
	mine, err = pg.Some(err)
	return l, mine, pg.Wrap("taking the lease to archive", err)
}

func (a *Archives) renew(ctx context.Context, l *leased) error {
	err := a.db.Chores.QueryRow(ctx, `
		UPDATE punctual.deployment SET archiving_until = clock_timestamp() + $2::interval
		WHERE archiving_until = $1 AND archive_command IS NOT NULL RETURNING archiving_until`,
		l.until, lease).Scan(&l.until)
	if errors.Is(err, pgx.ErrNoRows) {
		return errLeaseLost
	}
	return err
}

func (a *Archives) release(ctx context.Context, l leased) error {
	return pg.Wrap("giving the lease to archive back", pg.Exec(ctx, a.db.Chores, `
		UPDATE punctual.deployment SET archiving_until = '-infinity' WHERE archiving_until = $1`, l.until))
}

// next returns the oldest day that is to be archived now.
func (a *Archives) next(ctx context.Context) (p part, found bool, err error) {
	err = a.db.Chores.QueryRow(ctx, `
		SELECT day, part FROM punctual.archives WHERE archived_at IS NULL AND next_try_at <= now()
		ORDER BY day, part LIMIT 1`).Scan(&p.day, &p.part)
	found, err = pg.Some(err)
	return p, found, pg.Wrap("looking for a day to archive", err)
}

// archive runs the command for a day, and writes what became of it.
func (a *Archives) archive(ctx context.Context, l *leased, p part) error {
	command, _, err := parse(a.options.Command, p.name())
	if err != nil {
		return err
	}
	said, _, err := expand(a.options.Command, p.name())
	if err != nil {
		return err
	}
	var w *writer
	begun := time.Now()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		a.keep(running, stop, l)
	}()
	failed := a.pipe(running, command, func(to io.Writer) (err error) {
		w, err = a.export(running, p, to)
		return err
	})
	stop(nil)
	<-kept
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), recording)
	defer cancel()
	switch {
	case failed == nil:
		if err := a.succeeded(end, l, p, said, w); err != nil {
			return fmt.Errorf("writing that %s was archived: %w", p.name(), err)
		}
		a.log.Info("a day of runs was archived", "day", p.name(), "runs", w.Runs, "bytes", w.bytes,
			"took", time.Since(begun))
		return nil
	case errors.Is(failed, errNotOver):
		return a.put(end, l, p, `next_try_at = now() + $3::interval`, postponed)
	case ctx.Err() != nil || errors.Is(failed, errLeaseLost):
		a.log.Info("a day of runs was not archived to the end; it is archived again", "day", p.name(), "reason", failed)
		return nil
	}
	a.log.Error("archiving a day of runs failed; it is not dropped, and tried again", "day", p.name(), "error", failed)
	return a.put(end, l, p, `failures = failures + 1, error = $3::text,
		next_try_at = now() + least(interval '1 minute' * 2 ^ least(failures, 6), interval '1 hour')`,
		pg.Storable(failed.Error()))
}

// keep renews the lease while the command runs, and kills the command before another replica can take the lease.
func (a *Archives) keep(ctx context.Context, kill context.CancelCauseFunc, l *leased) {
	for renewed := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewal):
		}
		asked := time.Now()
		limited, cancel := context.WithDeadline(ctx, renewed.Add(lapse))
		err := a.renew(limited, l)
		cancel()
		switch {
		case err == nil:
			renewed = asked
		case errors.Is(err, errLeaseLost) || time.Since(renewed) >= lapse-renewal:
			kill(errLeaseLost)
			return
		}
	}
}

// put changes the row of a day, if the lease is still this replica's.
func (a *Archives) put(ctx context.Context, l *leased, p part, set string, args ...any) error {
	return a.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		held, err := pg.All(ctx, tx, pgx.RowTo[bool], `
			SELECT true FROM punctual.deployment WHERE archiving_until = $1 AND archive_command IS NOT NULL
			FOR NO KEY UPDATE`, l.until)
		if err != nil || len(held) == 0 {
			return pg.Wrap("looking whether the lease is held", errors.Join(err, errLeaseLost))
		}
		return pg.Exec(ctx, tx, `
			UPDATE punctual.archives SET `+set+`
			WHERE day = $1::text::date AND part = $2 AND archived_at IS NULL`,
			append([]any{p.day.Format(time.DateOnly), p.part}, args...)...)
	})
}

func (a *Archives) succeeded(ctx context.Context, l *leased, p part, command string, w *writer) error {
	return a.put(ctx, l, p, `archived_at = now(), command = $3::text, runs = $4, runs_left = $4, bytes = $5, sha256 = $6,
		failures = 0, error = NULL`, command, w.Runs, w.bytes, w.SHA256)
}
