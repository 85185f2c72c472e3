// Package client calls the API, typed: a [Call] for each operation that the pages or a command need, with the types
// that the API itself is made of. The benchmarks and the tests of the guarantee use it, too.
//
// Start with [New]. An answer that is not 2xx becomes an [Error], which holds the API's problem.
package client
