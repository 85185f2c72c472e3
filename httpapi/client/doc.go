// Package client calls the API, typed: one method for each operation, with the types that the API itself is made of.
// The pages, the commands for jobs, the benchmarks and the tests of the guarantee use it.
//
// Start with [New]. An answer that is not 2xx becomes an [Error], which holds the API's problem.
package client
