//prove:database

package prove

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/docs"
	"punctual/internal/pgtest"
)

// seenWithin is what docs/sql-transactions.md promises. slowness is more than what a busy machine adds to it.
const (
	seenWithin = time.Second
	slowness   = 9 * time.Second
)

// An application enqueues runs in its transactions, through PgBouncer. Each is sent.
//
// Nothing notifies an idle replica of a commit: it looks. The application gets another backend for each transaction.
func TestRunsFromYourOwnTransactionThroughPgBouncer(t *testing.T) {
	t.Parallel()
	direct, w := pgtest.EmptyDSN(t), newWitness(t)
	through := pgtest.PgBouncer(t, pgtest.Server(t), direct)
	punctual(t, through, "migrate")
	r, conn := serve(t, through), connect(t, direct)
	create(t, r.API, job("reminder", w.URL+"/reminder", nil), job("invoice", w.URL+"/invoice", nil))
	execute(t, conn, `CREATE ROLE bouncing`)
	administer(t, pgtest.Server(t), `GRANT bouncing TO test`)
	execute(t, conn, `CREATE TABLE public.invoices (customer bigint, amount numeric)`)
	execute(t, conn, `GRANT ALL ON public.invoices TO bouncing`)
	punctual(t, direct, "tenants", "grant", "default", "--role=bouncing", "--schema=shop_jobs")
	var clients [2]*pgx.Conn
	for i := range clients {
		var err error
		clients[i], err = pgx.Connect(t.Context(), through+"&default_query_exec_mode=exec")
		must(t, err)
		t.Cleanup(func() { _ = clients[i].Close(context.WithoutCancel(t.Context())) })
	}
	calls := 0
	call := func(sql string, args ...any) (answer string) {
		t.Helper()
		calls++
		must(t, pgx.BeginFunc(t.Context(), clients[calls%2], func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL ROLE bouncing`); err != nil {
				return err
			}
			return tx.QueryRow(t.Context(), sql, args...).Scan(&answer)
		}))
		return answer
	}

	pending := func() int { return query[int](t, conn, `SELECT count(*) FROM punctual.dated`) }
	call(`SELECT shop_jobs.run_in('reminder', '1 hour', key => 'a')::text`)
	call(`SELECT count(*)::text FROM shop_jobs.run_many('[{"job": "reminder", "delay": "1 hour", "key": "b"},
	      {"job": "reminder", "delay": "1 hour", "key": "c"}]')`)
	if n := pending(); n != 3 {
		t.Errorf("%d runs are pending, want 3", n)
	}
	if is := call(`SELECT shop_jobs.cancel('reminder', 'b')::text`); is != "true" || pending() != 2 {
		t.Errorf("cancel answered %s, and %d runs are pending, want 2", is, pending())
	}

	// An idle replica claims each run soon after its commit, by the database's clock.
	for range 3 {
		run := call(`SELECT shop_jobs.trigger('reminder')::text`)
		committed := query[time.Time](t, conn, `SELECT clock_timestamp()`)
		await(t, "the run to be claimed", func() bool {
			return query[bool](t, conn, `SELECT EXISTS (SELECT FROM punctual.runs WHERE id = $1)`, run)
		})
		claimed := query[time.Time](t, conn, `SELECT claimed_at FROM punctual.runs WHERE id = $1`, run)
		if took := claimed.Sub(committed); took > seenWithin+slowness {
			t.Errorf("the run was claimed %s after the commit, want at most %s", took, seenWithin)
		} else {
			t.Logf("claimed %s after the commit", took.Round(time.Millisecond))
		}
	}

	// The page's transaction of a target ends the run, although the target's answer is an error.
	execute(t, conn, `UPDATE punctual.tenants SET reports_since = reports_since - interval '1 min'`)
	w.Script("/invoice", Answer{Hang: true, Status: 500})
	run := call(`SELECT shop_jobs.trigger('invoice')::text`)
	await(t, "the call", func() bool { return len(w.At("/invoice")) == 1 })
	examples := docs.Code(t, receivingPage, "text")
	if len(examples) != 1 {
		t.Fatalf("the page has %d transactions of targets", len(examples))
	}
	_, err := clients[0].Exec(t.Context(), strings.NewReplacer(
		"BEGIN;", "BEGIN; SET LOCAL ROLE bouncing;", "INTO invoices", "INTO public.invoices",
		"01a214ce-902b-7561-b51b-42492806c831", run, "=> 8,", fmt.Sprintf("=> %d,", w.At("/invoice")[0].Fence),
	).Replace(examples[0]), pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	w.Release("/invoice")
	if status := finalRun(t, r.API, run).Status; status != "succeeded" {
		t.Errorf("the run is %s", status)
	}
	if n := query[int](t, conn, `SELECT count(*) FROM public.invoices`); n != 1 {
		t.Errorf("there are %d invoices, want 1", n)
	}
	stop(t, r)
}
