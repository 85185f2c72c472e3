package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5/pgconn"

	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// Problem turns an error of a handler into the problem that the client sees. notFound is said of a thing that does not
// exist. Details for operators only go to the log.
func (a *API) Problem(ctx context.Context, err error, notFound string) *problem.Problem {
	p := ProblemOf(ctx, err, notFound)
	if p.Status >= http.StatusInternalServerError {
		a.Log.LogAttrs(ctx, levelOf(p), "request failed", ErrorAttrs(ctx, err)...)
	}
	return p
}

// ProblemOf returns the problem that an error is. notFound is said of a thing that does not exist.
func ProblemOf(ctx context.Context, err error, notFound string) *problem.Problem {
	if told, is := errors.AsType[*problem.Problem](err); is {
		return told
	}
	if busy, is := errors.AsType[*pg.BusyError](err); is {
		return again(problem.New(problem.CodeBusy, problem.Sentence(busy)+" Nothing was done; try again."))
	}
	if limit := pg.OutOfTime(err); limit != nil {
		return outOfTime(limit)
	}
	if refusal, is := errors.AsType[*jobspec.Refusal](err); is {
		return refused(err, refusal)
	}
	if fields := Within("body", jobspec.BlamesOf(err)); len(fields) > 0 {
		return problem.Invalid(fields...)
	}
	cursor, isCursor := errors.AsType[*pg.CursorError](err)
	switch {
	case isCursor:
		return problem.Invalid(problem.At("query."+cmp.Or(cursor.Param, "cursor"), "is not a cursor that this list returned"))
	case errors.Is(err, pg.ErrNotFound):
		return problem.New(problem.CodeNotFound, notFound)
	case errors.Is(err, pg.ErrState):
		return problem.New(problem.CodeState, problem.Sentence(err))
	case errors.Is(err, context.Canceled):
		return problem.New(problem.CodeClientCancelled, problem.Sentence(err))
	case errors.Is(err, context.DeadlineExceeded):
		return again(problem.New(problem.CodeTimeout, "It may be slow, or out of reach; try again."))
	case databaseAway(err):
		return again(problem.New(problem.CodeDatabase, "The database cannot be used right now; try again."))
	}
	return Internal(RequestID(ctx))
}

// refused is the problem of what cannot be done.
func refused(err error, r *jobspec.Refusal) *problem.Problem {
	fields := Within("body", r.Blames)
	switch code := problem.Code(r.Code); {
	case code == problem.CodeInvalid:
		return problem.Invalid(fields...)
	case r.Around:
		return problem.New(code, problem.Sentence(err))
	default:
		p := problem.New(code, problem.Sentence(r), problem.Capped(fields)...)
		p.ActiveRun = r.Run
		if code == problem.CodeRunToken {
			p = p.With("WWW-Authenticate", "Punctual-Run-Token") // RFC 9110 demands it with 401
		}
		return p
	}
}

// outOfTime is the problem of a write that the database gave up: it waited for a lock, or took too long.
func outOfTime(limit error) *problem.Problem {
	code := problem.CodeDatabase
	if _, locked := errors.AsType[*pg.LockedError](limit); locked {
		code = problem.CodeLocked
	}
	return again(problem.New(code, problem.Sentence(limit)+" Nothing was written; try again."))
}

// again tells the client that the same request may succeed a second later.
func again(p *problem.Problem) *problem.Problem { return p.With("Retry-After", "1") }

// Internal is the problem of a request that failed for a reason which is the server's.
func Internal(request string) *problem.Problem {
	return problem.New(problem.CodeInternal, fmt.Sprintf("The server's log has the details of request %s.", request))
}

// databaseAway reports whether an error means that the database cannot be used for a while, whatever the statement. A
// caller cannot mend a login that the database refuses, but an operator can.
func databaseAway(err error) bool {
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	return connect || pg.Away(err)
}

// Within returns the domain's problems as errors at a location of the body.
func Within(at string, problems []jobspec.Problem) []problem.FieldError {
	return pg.Column(problems, func(p jobspec.Problem) problem.FieldError { return problem.At(at+"."+p.Field, p.Message) })
}
