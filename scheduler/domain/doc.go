// Package domain is what Punctual is about: jobs, slots, runs and attempts, and every decision about them. It is pure:
// functions are passed the time, and nothing here waits, logs or talks to a database.
//
// Start with [Definition], which is what a caller writes, in the form of the API. [Definition.Validate] says what is
// wrong with it. [Compile] makes it a [Job], which is ready to use. A [Timetable] computes the job's slots,
// and a [Pattern] says which timetables have the same slots.
//
// [Decide] says what becomes of a due slot: runs, skips, and the next slot. A run's id is derived from its slot
// ([SlotRunID]). An [Assignment] is one attempt, and [Assignment.Request] the request that it sends. [Judge] says what
// its end means for the run. A [History] says which slots a job had, whatever was changed meanwhile.
package domain
