// Package notices tells people what happens to jobs. It owns the tables notices (events that are to be told) and
// notified (the health of each job that has recipients).
//
// Events are written in the transaction that writes what happened: events.go. The chore of notify.go makes runs of
// them, which any replica claims and sends like other runs. stale.go finds jobs that have not succeeded for too long,
// and defaults.go knows the recipients of tenants.
package notices
