// Package wire describes requests to targets and their results, and checks what goes into requests. It sends nothing:
// package delivery does. So whoever decides about requests needs no HTTP client.
//
// The functions [CheckMethod], [CheckURL], [CheckHost] and [CheckHeader] are for the time when a job is written; their
// errors tell its author what would be right.
package wire
