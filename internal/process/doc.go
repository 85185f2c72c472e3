// Package process runs replicas as what they are in production, separate processes of the real binary (Serve),
// speaks to their API (API) and reads what they cost (CPU). A Process does not outlive the one that launched it.
//
// Package prove tests the guarantee with it, package bench measures.
package process
