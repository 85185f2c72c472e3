// Package forecast counts the slots to come: how many there are in each step of a window, which steps are the busiest,
// whose slots they are, and what more jitter would do. It is pure, and knows neither SQL nor the API.
//
// A [Builder] is told of one job after another. Jobs with the same timetable and jitter are a group: their slots are
// found once for all of them, and the slots of an interval are not even found, but counted. A builder keeps sums by
// step and a bounded number of groups, so its memory does not grow with the jobs.
//
// Slots and starts are two things. A slot counts in the step of its nominal fire time, whole. Its start is due later,
// by the job's jitter. A start counts in every step in which it may be due, with the part of the jitter that lies in
// the step: a slot at 00:00 with a jitter of 4m counts as a quarter of a start in each of four minutes. That is what is
// to be expected of many jobs, since their offsets are hashed from their ids, evenly over the jitter. As in
// [jobspec.Timetable.Due], a jitter longer than half the gap to the next slot spreads over half the gap.
package forecast
