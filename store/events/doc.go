// Package events lets callers emit events, and makes a run of each job that has subscribed. It owns the table events.
//
// An event is one row with its body. Its subscribers are the jobs whose version at that instant names the event. A
// chore fans the event out (FanOut): batch by batch, in the order of the jobs' ids, each batch in a transaction of its
// own with the cursor in the event's row. So a replica that dies repeats nothing, and several replicas work on several
// events. The events take turns: a small one does not wait for a large one to end.
//
// A run's id is derived from event and job ([domain.EventRunID]), so an event has one run of each subscriber. A
// subscriber that was paused has a recorded skip under this id, and one whose filter does not match has nothing.
//
// The event's body is not copied: the claim of a run reads it. So an event is kept while a run of it may be sent or
// replayed (Forget).
package events
