// Package domain is what Punctual is about: slots, runs and attempts, and every decision about them. It is pure:
// functions are passed the time, and nothing here waits, logs or talks to a database.
//
// What a job is to do stands in package jobspec. [Compile] makes a definition a [Job], which is ready to use.
//
// [Decide] says what becomes of a due slot: runs, skips, and the next slot. A run's id is derived from its slot
// ([SlotRunID]). An [Assignment] is one attempt, and [Assignment.Request] the request that it sends. [Judge] says what
// its end means for the run. [AdvanceSteps] says which steps of a workflow follow. A [History] says which slots a job
// had, whatever was changed meanwhile.
package domain
