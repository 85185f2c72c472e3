package freeze

import (
	"cmp"
	"context"
	"fmt"

	"punctual/scheduler"
	"punctual/store/audit"
	"punctual/store/pg"
)

// Start says what a replica does about freezes before it claims anything.
type Start struct {
	Dispatches bool // the replica claims; one that does not claim leaves a fresh database's identity to those that do
	Freeze     bool // freeze the deployment
}

// theDeployment is the locked row of the table deployment.
type theDeployment struct {
	name, system         string // the database that runs were last dispatched from
	hereName, hereSystem string // this database
	copied               bool
	frozen               *scheduler.Freeze
}

func lockDeployment(ctx context.Context, tx *pg.Tx) (*theDeployment, error) {
	var d theDeployment
	var row Row
	err := tx.QueryRow(ctx, `
		SELECT database_name, system_identifier, current_database(), punctual.system_identifier(),
			punctual.is_copy(database_name, system_identifier), `+Columns+`
		FROM punctual.deployment FOR NO KEY UPDATE`).
		Scan(append([]any{&d.name, &d.system, &d.hereName, &d.hereSystem, &d.copied}, row.Targets()...)...)
	if err != nil {
		return nil, fmt.Errorf("reading the deployment: %w", err)
	}
	d.frozen = row.InForce()
	return &d, nil
}

func (d *theDeployment) shot() freezeShot {
	shot := shotOfFreeze(d.frozen)
	shot.Database, shot.System = d.name, d.system
	return shot
}

// freeze freezes the deployment. A frozen deployment stays as it is, with one exception: a freeze that a person asks
// for replaces one that a replica found necessary, so that no replica lifts it any more.
func (d *theDeployment) freeze(ctx context.Context, tx *pg.Tx, f scheduler.Freeze) error {
	if d.frozen != nil && (d.frozen.Reason == scheduler.FrozenAsked || f.Reason == scheduler.FrozenRestored) {
		return nil
	}
	before := d.shot()
	err := tx.QueryRow(ctx, `
		UPDATE punctual.deployment
		SET frozen_at = coalesce(frozen_at, now()), frozen_by = $1, frozen_note = $2, frozen_reason = $3
		RETURNING frozen_at`,
		f.By, pg.OrNull(f.Note), string(f.Reason)).Scan(&f.Since)
	if err != nil {
		return fmt.Errorf("freezing the deployment: %w", err)
	}
	d.frozen = &f
	return audit.Write(ctx, tx, pg.Everybody,
		audit.Change{Action: audit.DeploymentFreeze, Before: before, After: d.shot()})
}

// unfreeze makes this database the one that runs are dispatched from, and lifts the freeze.
func (d *theDeployment) unfreeze(ctx context.Context, tx *pg.Tx, action audit.Action, note string) error {
	if d.frozen == nil && !d.copied {
		return nil
	}
	before := d.shot()
	if _, err := tx.Exec(ctx, `
		UPDATE punctual.deployment
		SET frozen_at = NULL, frozen_by = NULL, frozen_note = NULL, frozen_reason = NULL`); err != nil {
		return fmt.Errorf("unfreezing the deployment: %w", err)
	}
	if err := d.settle(ctx, tx); err != nil {
		return err
	}
	d.frozen = nil
	tx.Wake()
	after := d.shot()
	after.Note = note
	return audit.Write(ctx, tx, pg.Everybody, audit.Change{Action: action, Before: before, After: after})
}

// settle records this database as the one that runs are dispatched from.
func (d *theDeployment) settle(ctx context.Context, tx *pg.Tx) error {
	if _, err := tx.Exec(ctx, `
		UPDATE punctual.deployment SET database_name = $1, system_identifier = $2`, d.hereName, d.hereSystem); err != nil {
		return fmt.Errorf("noting which database runs are dispatched from: %w", err)
	}
	d.name, d.system, d.copied = d.hereName, d.hereSystem, false
	return nil
}

// adopt makes this database the one that runs are sent from, and lifts the freeze that its unknown identity caused.
func (d *theDeployment) adopt(ctx context.Context, tx *pg.Tx) error {
	if d.frozen == nil || d.frozen.Reason == scheduler.FrozenRestored {
		return d.unfreeze(ctx, tx, audit.DeploymentAdopt, "")
	}
	before := d.shot()
	if err := d.settle(ctx, tx); err != nil {
		return err
	}
	return audit.Write(ctx, tx, pg.Everybody, audit.Change{Action: audit.DeploymentAdopt, Before: before, After: d.shot()})
}

// Begin does what a replica does about freezes before it claims anything. It records this database as the one that runs
// are dispatched from. If runs were last dispatched from another database, it freezes the deployment.
func (s *Switch) Begin(ctx context.Context, start Start) error {
	err := s.db.Runs.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		d, err := lockDeployment(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.identify(ctx, tx, d, start.Dispatches); err != nil || !start.Freeze {
			return err
		}
		return d.freeze(ctx, tx, scheduler.Freeze{By: "serve --frozen", Reason: scheduler.FrozenAsked})
	})
	return pg.Wrap("checking whether runs were last dispatched from this database", err)
}

func (s *Switch) identify(ctx context.Context, tx *pg.Tx, d *theDeployment, dispatches bool) error {
	if d.hereSystem == "" {
		s.options.Log.Warn(
			"this Postgres does not show its system identifier (pg_control_system): a restored dump is recognised only if its database has another name")
	}
	switch {
	case d.copied && s.options.Adopt:
		s.options.Log.Warn("runs are dispatched from this database from now on: --adopt-database",
			"was", d.name, "was_system", d.system, "is", d.hereName, "is_system", d.hereSystem)
		return d.adopt(ctx, tx)
	case d.copied:
		const unknown = "(unknown)"
		note := fmt.Sprintf("runs were last dispatched from database %s of system %s, and this is %s of system %s",
			d.name, cmp.Or(d.system, unknown), d.hereName, cmp.Or(d.hereSystem, unknown))
		return d.freeze(ctx, tx, scheduler.Freeze{By: "Punctual", Note: note, Reason: scheduler.FrozenRestored})
	case dispatches && (d.name == "" || d.system == "" && d.hereSystem != ""):
		return d.settle(ctx, tx)
	}
	return nil
}
