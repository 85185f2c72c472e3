// Package store keeps everything durable in Postgres. Store puts the rooms below it together: claim and replicas (what
// the loops need), what follows the claim (flow, links, reports, notices), the rooms of callers that stand on it (jobs,
// runs, letters, history, fleet, overview, tenants, secrets), and what all stand on (freeze, fences, definitions, days,
// audit and pg, which has connections and transactions). What is left here needs several rooms: writes with an
// Idempotency-Key, the chores of a replica, and metrics. Start with package claim.
//
// Every statement names the schema, needs no session state and works through a transaction-mode PgBouncer.
//
// Lock order, everywhere: schedules, then exclusive, then jobs, then ready, then runs, then notified, each sorted and
// in statements of their own. Facts that a lock protects are read in a statement after the one that took the lock. Only
// the database's now() decides about time.
//
// Two transactions do not start at the top: the ready claim (ready before gates) and notices.Notifier.Collect (notified
// before runs). Both skip locked rows, so they cannot deadlock. Completed one-shots have no row in schedules. A
// transaction that changes one first writes that row again, and shares the job's row (FOR KEY SHARE) so that it is not
// forgotten meanwhile. What locks that row against it, forgetting and changes of many jobs, skips locked rows.
//
// Operations, then the jobs that they have yet to change, then dead letters, come before all of these: a transaction
// that holds one of them may go on to a job's row, and no transaction that holds anything else goes back to them. A
// batch of an operation locks many rows, so it skips rows that are locked. A batch that changes jobs waits briefly for
// what it finds locked after that, and is put off.
//
// A statement that names runs, attempts or run_data names the days of its rows as well, so that its plan locks few
// partitions: by ids in an argument (id = ANY($1)), or by a window of days (days.Window, days.Search). What finds ids
// in another table asks the database's function runs_of for the runs. A lasting plan names all days, unless the text
// of the statement bounds them.
//
// Work for a tenant goes through one of three doors, pg.Pool.InTx, pg.Pool.Reader and pg.Pool.ReadOnly, which make the
// database act as a role that sees only this tenant's rows. Work for all tenants names pg.Everybody in the tenant's
// place. Every change on somebody's behalf adds an entry to the audit log in the same transaction: see package audit.
package store
