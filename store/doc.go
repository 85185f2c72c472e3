// Package store keeps everything durable in Postgres: it claims due slots and ready runs, writes
// outcomes, and creates, edits and lists jobs. Every statement names the schema, needs no session
// state and works through a transaction-mode PgBouncer. Connections, transactions and pages of lists are package pg's,
// the daily partitions are package days', and the audit log is package audit's.
//
// Lock order, everywhere: schedules, then exclusive, then jobs, then ready, then runs, then notified, each
// sorted and in statements of their own. Facts that a lock protects are read in a statement after the one that
// took the lock. Only the database's now() decides about time.
//
// Two transactions do not start at the top: the ready claim (ready before gates) and Notify (notified before
// runs). Both skip locked rows, so they cannot deadlock.
//
// Operations, then dead letters, come before all of these: a transaction that holds one of them may go on to a
// job's row, and no transaction that holds anything else goes back to them. A batch of an operation locks many
// rows, so it skips rows that are locked and waits for none.
//
// Work for a tenant goes through one of three doors, join, reader and readOnly, which make the database act as a
// role that sees only this tenant's rows. Work for all tenants names pg.Everybody in the tenant's place. Every change
// on somebody's behalf adds an entry to the audit log in the same transaction: see package audit.
package store
