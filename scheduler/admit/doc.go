// Package admit says what a replica may take on. Quotas go in: how many runs of each kind of work each queue has room
// for, shared out among tenants. Permits come out: what a claimed run has of the replica, to be given back when it
// ends. It knows no database, and starts no goroutine.
//
//   - slots.go counts worker slots, and shares.go divides a queue's among kinds of work. ceiling.go takes fewer while
//     the replica lacks something.
//   - share.go shares quotas out among the tenants that wait.
//   - limits.go is the replica's share of tenants' limits. usage.go answers what replicas wish of a limit, allowance.go
//     makes and takes these wishes, and grant.go is what one claim may start.
//   - holds.go keeps back runs whose host cannot be reached or hangs.
//   - permit.go is the way of one run through all of them.
package admit
