// Package failpoint names the steps between which a replica may die. In a binary built with the tag failpoint a test
// can choose the step at which it dies. In any other binary At is empty and costs nothing.
//
// Such a binary reads PUNCTUAL_FAILPOINT, as in
//
//	claim-committed:3=kill
//
// The third time it reaches that step, it ends as by kill -9 (or, with =stop, freezes as by SIGSTOP).
package failpoint

// Point is a step.
type Point string

// The steps of a claim, of sending, and of everything that ends attempts, each in the order in which a replica
// reaches them.
const (
	ClaimBegun     Point = "claim-begun"     // nothing is locked yet
	ClaimLocked    Point = "claim-locked"    // due slots are locked
	ClaimDecided   Point = "claim-decided"   // facts are read and plans made; nothing is written
	ClaimCommitted Point = "claim-committed" // runs are written, but none is sent

	ReadyLocked    Point = "ready-locked"    // rows of ready are locked
	ReadyDecided   Point = "ready-decided"   // facts are read; nothing is written
	ReadyCommitted Point = "ready-committed" // attempts are claimed, but none is sent

	EventLocked    Point = "event-locked"    // an event is locked, for a batch of its subscribers
	EventDecided   Point = "event-decided"   // subscribers are read and locked; nothing is written
	EventCommitted Point = "event-committed" // runs of subscribers are written

	WorkflowLocked  Point = "workflow-locked"  // a workflow is locked and read; the end of its step is not committed yet
	WorkflowDecided Point = "workflow-decided" // what follows is decided; nothing of it is written
	WorkflowWritten Point = "workflow-written" // the chore has written what follows, and not committed
	WorkflowLooked  Point = "workflow-looked"  // the chore has committed what follows

	SendBegun    Point = "send-begun"    // the attempt has its worker slot
	SendWriting  Point = "send-writing"  // there is a connection, but nothing of the request is written
	SendWritten  Point = "send-written"  // the request is written, but there is no answer
	SendAnswered Point = "send-answered" // the answer is read and judged

	FinishBegun     Point = "finish-begun"     // outcomes are gathered
	FinishCommitted Point = "finish-committed" // outcomes are written

	// ChainWritten: the runs that an end triggers are written. After a callback of a target, they are not committed.
	ChainWritten Point = "chain-written"

	RecoverJudged    Point = "recover-judged"    // claims of a lost replica are read
	RecoverCommitted Point = "recover-committed" // the attempts of these claims are ended

	CallbackLocked    Point = "callback-locked"    // the run that a target calls about is locked
	CallbackCommitted Point = "callback-committed" // the attempt is ended, but the target is not answered
)

// Points are all steps.
var Points = []Point{
	ClaimBegun, ClaimLocked, ClaimDecided, ClaimCommitted,
	ReadyLocked, ReadyDecided, ReadyCommitted,
	EventLocked, EventDecided, EventCommitted,
	WorkflowLocked, WorkflowDecided, WorkflowWritten, WorkflowLooked,
	SendBegun, SendWriting, SendWritten, SendAnswered,
	FinishBegun, FinishCommitted,
	ChainWritten,
	RecoverJudged, RecoverCommitted,
	CallbackLocked, CallbackCommitted,
}
