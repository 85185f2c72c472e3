// Package api makes calls of requests, and problems of errors, whatever an operation is about: it knows no job, run or
// tenant. What callers may do, and what is said of a thing that does not exist, is told to it by the package that has
// the operations.
package api
