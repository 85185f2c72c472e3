// Package jobspec is what the definition of a job says: schedule, target, policies, steps, recipients. It is pure:
// functions are passed the time, and nothing here knows of runs.
//
// Start with [Definition], which is what a caller writes, in the form of the API. [Definition.Validate] says what is
// wrong with it, in words that name the field, the value and what would be right. [Definition.WithDefaults] fills in
// what it leaves out. A [Timetable] computes its slots, and a [Pattern] says which timetables have the same slots.
// [NewFills] finds the placeholders of its request.
package jobspec
