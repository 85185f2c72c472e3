// Package session is what a session with Postgres is from its beginning, for replicas, commands and migrations alike:
// how it is reached, with which password, and with which settings. A role or a database may have other defaults than
// Postgres has itself (ALTER ROLE … SET). What the statements rely on is therefore said here, or at BEGIN, and not
// assumed.
package session
