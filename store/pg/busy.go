package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// connLimit is how long a caller of a replica may wait for a connection. Together with lockLimit it bounds what callers
// wait for each other.
const connLimit = 3 * time.Second

// BusyError says that all connections for callers were in use for so long that a request was given up.
type BusyError struct{}

func (*BusyError) Error() string {
	return fmt.Sprintf("no connection to the database was free within %s", connLimit)
}

// waits bounds the waits for a connection. pgxpool shows it the beginning and the end of each.
type waits struct{}

var _ pgxpool.AcquireTracer = waits{}

// TraceAcquireStart implements pgxpool.AcquireTracer. The context that it returns holds for the wait alone.
func (waits) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	bounded, cancel := context.WithTimeout(ctx, connLimit)
	return &wait{Context: bounded, caller: ctx, end: cancel}
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (waits) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	ctx.(*wait).end()
}

// TraceQueryStart implements pgx.QueryTracer, as a tracer has to.
func (waits) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (waits) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// wait is the context of a wait for a connection. Its error tells the limit from the end of the caller's own context.
type wait struct {
	context.Context
	caller context.Context
	end    context.CancelFunc
}

// Err implements context.Context.
func (w *wait) Err() error {
	if err := w.caller.Err(); err != nil || w.Context.Err() == nil {
		return err
	}
	return &BusyError{}
}
