package storetest

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/internal/privatepg"
	"punctual/scheduler"
	"punctual/scheduler/credential"
	"punctual/store/audit"
	"punctual/store/overview"
	"punctual/store/pg"
	"punctual/store/secrets"
)

// Asked returns the chores that were asked for since the last call.
func (c Fixture) Asked() (chores []string) {
	names := []string{scheduler.ChoreHolds, scheduler.ChoreNotices}
	for _, chore := range c.Chores() {
		names = append(names, chore.Name)
	}
	for _, name := range names {
		select {
		case <-c.Claims.Asked(name):
			chores = append(chores, name)
		default:
		}
	}
	return chores
}

// Entries returns the audit log since the last call, oldest first.
func (c Fixture) Entries(since *uuid.UUID) []audit.Entry {
	c.T.Helper()
	all, _, err := c.Audit.List(c.T.Context(), c.Tenant, audit.Filter{Page: pg.Page{Limit: 500}})
	Must(c.T, err)
	var fresh []audit.Entry
	for _, r := range all {
		if r.ID == *since {
			break
		}
		fresh = append([]audit.Entry{r}, fresh...)
	}
	if len(all) > 0 {
		*since = all[0].ID
	}
	return fresh
}

// OrEmpty returns the text that p points to; empty for nil.
func OrEmpty[T ~string](p *T) T {
	if p == nil {
		return ""
	}
	return *p
}

// Wants reports whether a heartbeat asks for a chore.
func (c Fixture) Wants(chore string) bool {
	c.T.Helper()
	pulse, err := c.Replicas.Renew(c.T.Context(), uuid.New(), scheduler.Condition{})
	Must(c.T, err)
	return slices.Contains(pulse.Chores, chore)
}

// Figures reads the tenant's overview.
func (c Fixture) Figures() overview.Figures {
	c.T.Helper()
	f, err := c.Overview.Overview(c.T.Context(), c.Tenant)
	Must(c.T, err)
	return f
}

// Limit sets a limit of the tenant, by its column.
func (c Fixture) Limit(column string, most any) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.tenants SET `+column+` = $1 WHERE id = $2`, most, c.Tenant)
}

// Intruder makes another tenant in the same database.
func (c Fixture) Intruder() Fixture {
	c.T.Helper()
	c.Tenant = Value[int32](c, `INSERT INTO punctual.tenants (name) VALUES ('intruder') RETURNING id`)
	return c
}

// Superuser connects to the database of the store as one.
func (c Fixture) Superuser(server *privatepg.Server) *pgx.Conn {
	c.T.Helper()
	super, err := pgx.Connect(c.T.Context(), server.DSN(c.DB.Callers.Config().ConnConfig.Database))
	Must(c.T, err)
	c.T.Cleanup(func() { c.Must(super.Close(context.WithoutCancel(c.T.Context()))) })
	return super
}

// Denied reports whether Postgres has refused a privilege.
func Denied(err error) bool { return IsCode(err, "42501") }

// IsCode reports whether an error is of Postgres and has the given SQLSTATE.
func IsCode(err error, code string) bool {
	var dbErr *pgconn.PgError
	return errors.As(err, &dbErr) && dbErr.Code == code
}

// Secret sets a secret.
func (c Fixture) Secret(name, value string) secrets.Secret {
	c.T.Helper()
	r, _, err := c.Secrets.PutSecret(c.T.Context(), c.Tenant, name, value, "")
	Must(c.T, err)
	return r
}

// IsAuth reports whether a credential could not be had.
func IsAuth(err error) bool {
	var auth *credential.AuthError
	return errors.As(err, &auth)
}
