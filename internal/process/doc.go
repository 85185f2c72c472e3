// Package process runs replicas as in production: as separate processes of the real binary (Serve). It also
// reads what they cost (CPU). A Process does not outlive the process that launched it.
//
// Package prove uses it to test the guarantee, package bench to measure.
package process
