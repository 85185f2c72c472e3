// Package pg is what every room of the store needs of Postgres, and it knows no job: connections in parts that do not
// wait for each other, transactions with their limits and row-level security, plans that are kept, pages of lists, and
// what errors of the database mean.
//
// Start with DB in db.go. DB.InTx is the door for writes, and DB.Reader for reads of a tenant. Which connections a
// query goes through is the caller's choice (Part, in connections.go). How a tenant's queries are kept to its own rows
// is in rowsecurity.go, and what its errors mean in errors.go.
package pg
