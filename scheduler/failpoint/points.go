// Package failpoint names the steps between which a replica may die, and in a binary built with the tag
// failpoint lets a test choose at which of them it does. In any other binary At is empty and costs nothing.
//
// Such a binary reads PUNCTUAL_FAILPOINT, as in
//
//	claim-committed:3=kill
//
// and at the third time it comes to that step ends as by kill -9 (or, with =stop, freezes as by SIGSTOP).
package failpoint

// Point is a step.
type Point string

// The steps of a claim, of sending, and of everything that ends attempts, each in the order in which a replica
// comes to them.
const (
	ClaimBegun     Point = "claim-begun"     // nothing is locked yet
	ClaimLocked    Point = "claim-locked"    // due slots are locked
	ClaimDecided   Point = "claim-decided"   // facts are read and plans made; nothing is written
	ClaimCommitted Point = "claim-committed" // runs are written, and none is sent

	ReadyLocked    Point = "ready-locked"    // rows of ready are locked
	ReadyDecided   Point = "ready-decided"   // facts are read; nothing is written
	ReadyCommitted Point = "ready-committed" // attempts are claimed, and none is sent

	SendBegun    Point = "send-begun"    // the attempt has its worker slot
	SendWriting  Point = "send-writing"  // there is a connection, and nothing of the request is written
	SendWritten  Point = "send-written"  // the request is written, and there is no answer
	SendAnswered Point = "send-answered" // the answer is read and judged

	FinishBegun     Point = "finish-begun"     // outcomes are gathered
	FinishCommitted Point = "finish-committed" // they are written

	RecoverJudged    Point = "recover-judged"    // claims of a lost replica are read
	RecoverCommitted Point = "recover-committed" // their attempts are ended

	CallbackLocked    Point = "callback-locked"    // the run a target calls about is locked
	CallbackCommitted Point = "callback-committed" // the attempt is ended, and the target not answered
)

// Points are all of them.
var Points = []Point{
	ClaimBegun, ClaimLocked, ClaimDecided, ClaimCommitted,
	ReadyLocked, ReadyDecided, ReadyCommitted,
	SendBegun, SendWriting, SendWritten, SendAnswered,
	FinishBegun, FinishCommitted,
	RecoverJudged, RecoverCommitted,
	CallbackLocked, CallbackCommitted,
}
