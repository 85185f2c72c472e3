package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/claim"
	"punctual/store/definitions"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
	"punctual/store/secrets"
	"punctual/store/tenants"
)

// sentinels maps the store's errors to codes. The detail of a problem is the error's own text.
var sentinels = []struct {
	err  error
	code problem.Code
}{
	{jobs.ErrVersion, problem.CodeVersion},
	{store.ErrState, problem.CodeState},
	{store.ErrKeyReused, problem.CodeKeyReused},
	{jobs.ErrNotForSubmitters, problem.CodeForbidden},
	{context.Canceled, problem.CodeClientCancelled},
}

// problem turns an error of a handler into the problem that the client sees. Details for operators only go to the
// log.
func (s *server) problem(ctx context.Context, err error) *problem.Problem {
	p := problemOf(ctx, err)
	if p.Status >= http.StatusInternalServerError {
		s.Log.LogAttrs(ctx, levelOf(p), "request failed", errorAttrs(ctx, err)...)
	}
	return p
}

func problemOf(ctx context.Context, err error) *problem.Problem {
	var (
		told   *problem.Problem
		active *jobs.ActiveRunError
		batch  *jobs.BatchError
		over   *runs.SupersededError
		inUse  *secrets.SecretInUseError
		limit  *jobs.LimitError
	)
	switch {
	case errors.As(err, &told):
		return told
	case errors.As(err, &active):
		p := problem.New(problem.CodeActiveRun, sentence(active))
		p.ActiveRun = &active.Run
		return p
	case errors.As(err, &batch):
		return batchProblem(batch)
	case errors.As(err, &inUse):
		return problem.New(problem.CodeState, sentence(inUse))
	case errors.As(err, &limit):
		return problem.New(problem.CodeLimit, sentence(limit))
	case errors.As(err, &over):
		return problem.New(problem.CodeSuperseded, sentence(over))
	case errors.Is(err, domain.ErrRunToken):
		return problem.New(problem.CodeRunToken, "Send back the Punctual-Run-Token that came with the request of this run.").
			With("WWW-Authenticate", "Punctual-Run-Token") // RFC 9110 demands it with 401
	case errors.Is(err, tenants.ErrTenantExists):
		return problem.New(problem.CodeNameTaken, sentence(tenants.ErrTenantExists),
			problem.At("body.name", "is taken by another tenant"))
	}
	if busy, is := errors.AsType[*pg.BusyError](err); is {
		return again(problem.New(problem.CodeBusy, sentence(busy)+" Nothing was done; try again."))
	}
	if limit := pg.OutOfTime(err); limit != nil {
		return outOfTime(limit)
	}
	if fields := backfillErrors(err); len(fields) > 0 {
		return problem.Invalid(fields...)
	}
	if field, ok := fieldError("body", err); ok {
		if errors.Is(err, jobs.ErrNameTaken) {
			return problem.New(problem.CodeNameTaken, sentence(jobs.ErrNameTaken), field)
		}
		return problem.Invalid(field)
	}
	if errors.Is(err, store.ErrNotFound) {
		return problem.New(problem.CodeNotFound, notFound(resource(ctx)))
	}
	for _, known := range sentinels {
		if errors.Is(err, known.err) {
			return problem.New(known.code, sentence(err))
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return again(problem.New(problem.CodeDatabase, "The database did not answer in time."))
	}
	if databaseAway(err) {
		return again(problem.New(problem.CodeDatabase, "The database cannot be used right now; try again."))
	}
	return problem.New(problem.CodeInternal, internalDetail(requestID(ctx)))
}

// outOfTime is the problem of a write that the database gave up: it waited for a lock, or took too long.
func outOfTime(limit error) *problem.Problem {
	code := problem.CodeDatabase
	if _, locked := errors.AsType[*pg.LockedError](limit); locked {
		code = problem.CodeLocked
	}
	return again(problem.New(code, sentence(limit)+" Nothing was written; try again."))
}

// again tells the client that the same request may succeed a second later.
func again(p *problem.Problem) *problem.Problem { return p.With("Retry-After", "1") }

func internalDetail(request string) string {
	return fmt.Sprintf("The server's log has the details of request %s.", request)
}

// fieldError returns an error of the store as the error of one field, where one field is at fault.
func fieldError(prefix string, err error) (problem.FieldError, bool) {
	var (
		queue  *claim.UnknownQueueError
		window *definitions.WindowError
		age    *definitions.AgeError
		cursor *pg.CursorError
		secret *secrets.UnknownSecretError
		kept   *secrets.NoStoredSecretError
		gap    *jobs.IntervalError
		past   *tenants.KeyExpiryError
		keyAge *tenants.KeyAgeError
	)
	blame := func(field, format string, args ...any) (problem.FieldError, bool) {
		return problem.Atf(prefix+"."+field, format, args...), true
	}
	switch {
	case errors.As(err, &queue):
		return blame("queue", "there is no queue %q; there are: %s",
			problem.Clip(queue.Name), strings.Join(queue.Known, ", "))
	case errors.As(err, &window):
		return blame("missed.window", "%q reaches further back than runs are kept: at most %s",
			problem.Clip(window.Window), window.Retention)
	case errors.As(err, &age):
		return blame("schedule.at", `%q is further back than runs are kept (%s); to run now, write "delay": "0s"`,
			problem.Clip(age.At), age.Retention)
	case errors.As(err, &secret):
		return blame(secret.Field, "there is no secret %q; create it with PUT /v1/secrets/%s", secret.Name, secret.Name)
	case errors.As(err, &kept):
		return blame(kept.Field, `"***" keeps the stored value, but no value is stored here; write the value`)
	case errors.As(err, &gap):
		return blame("schedule."+string(gap.Kind), "%s", gap.Reason())
	case errors.As(err, &past):
		return blame("expires_at", "is in the past")
	case errors.As(err, &keyAge):
		return blame(keyAge.Field, "%s", keyAge.Reason())
	case errors.As(err, &cursor):
		return problem.At("query.cursor", "is not a cursor that this list returned"), true
	case errors.Is(err, jobs.ErrNameTaken):
		return blame("name", "is taken by another job")
	}
	return problem.FieldError{}, false
}

func batchProblem(batch *jobs.BatchError) *problem.Problem {
	var fields []problem.FieldError
	taken := true
	for _, i := range slices.Sorted(maps.Keys(batch.Errors)) {
		err := batch.Errors[i]
		taken = taken && errors.Is(err, jobs.ErrNameTaken)
		at := fmt.Sprintf("body.jobs[%d]", i)
		field, ok := fieldError(at, err)
		if !ok {
			field = problem.At(at, err.Error())
		}
		fields = append(fields, field)
	}
	if taken {
		return problem.New(problem.CodeNameTaken,
			fmt.Sprintf("%s taken by other jobs; nothing was written.", problem.Count(len(fields), "name is", "names are")),
			problem.Capped(fields)...)
	}
	return problem.Invalid(fields...)
}

// awayClasses are the classes of SQLSTATEs that say nothing about a statement, but that the database or the session
// could not do it now. Nothing of it was done.
var awayClasses = []string{
	"08", // connection exception
	"25", // transaction state: the database is read-only, or has ended a transaction that idled or took too long
	"26", // a prepared statement is gone
	"40", // transaction rollback: a deadlock, a conflict
	"53", // insufficient resources
	"55", // an object is not in the state for it, such as locked
	"57", // operator intervention
	"58", // system error, such as of a disk
}

// databaseAway reports whether an error means that the database cannot be used for a while, whatever the statement.
func databaseAway(err error) bool {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &connect):
		return true
	case errors.As(err, &pg):
		return len(pg.Code) > 2 && slices.Contains(awayClasses, pg.Code[:2])
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		pgconn.SafeToRetry(err)
}

// notFound returns the detail for a resource that does not exist.
func notFound(resource string) string {
	switch resource {
	case "job":
		return "There is no job with that id or name."
	case "tenant":
		return "There is no tenant with that name."
	case "secret":
		return "There is no secret with that name."
	case "version":
		return "There is no job with that id or name, or it has no such version; old versions are kept as long as runs."
	}
	return "There is no " + resource + " with that id."
}

func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
