// Package pg is what every room of the store needs of Postgres, and it knows no job: connections in pools that do not
// wait for each other, transactions with their limits and row-level security, plans that are kept, pages of lists, and
// what errors of the database mean.
//
// Start with DB in db.go: it has the pools, and each statement names the one that it goes through. Pool.InTx is the
// door for writes, and Pool.Reader for reads of a tenant. How a tenant's queries are kept to its own rows is in
// rowsecurity.go, and what its errors mean in errors.go.
package pg
