// Package reports heeds what targets that share the database have written about their runs. It owns the table reports.
//
// Such a target may end its attempt in the transaction that does the work: it inserts a row into reports. Whoever ends
// an attempt of such a tenant otherwise writes the row first, in the transaction that ends it, even if the run is to be
// retried. So a report that has committed is never of an attempt that has ended otherwise, and no next attempt starts
// while a transaction of the target is open.
//
// So the Follower decides about all outcomes before they are written. Reports of attempts whose replicas do not end
// them soon are applied by a chore (Apply).
package reports
