// Package store keeps everything durable in Postgres: it claims due slots and ready runs, writes
// outcomes, and creates, edits and lists jobs. Every statement names the schema, needs no session
// state and works through a transaction-mode PgBouncer.
//
// Lock order, everywhere: schedules, then exclusive, then jobs, then ready, then runs, then notified, each
// sorted and in statements of their own. Facts that a lock protects are read in a statement after the one that
// locked. What decides about time is now() of the database.
//
// Two transactions do not start at the top: the ready claim (ready before gates) and Notify (notified before
// runs). Both skip locked rows, so they cannot deadlock.
//
// Operations, then dead letters, come before all of these: who holds one of them may go on to a job's row,
// and nobody who holds anything else goes back to them. A batch of an operation holds many rows and so
// passes over those that are locked; it waits for none.
//
// What is done for a tenant goes through three doors, join, reader and readOnly, which make the database act as a role
// that sees this tenant's rows only; what is done for all names everybody in the tenant's place. Whoever changes
// something for somebody writes an entry of the audit log in the same transaction: audit, queueAudit.
package store
