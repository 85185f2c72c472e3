// Package placeholder fills what is particular to an attempt into texts that the author of a job wrote: slot data for
// targets that read no headers. There is a closed list of placeholders, and nothing of it is code: a text is read once,
// when it is compiled, and what is filled in is never read again.
//
//	{{scheduled_for}}        {{scheduled_for|date}}        the slot, in UTC
//	{{scheduled_for_local}}  {{scheduled_for_local|hour}}  the slot as the clocks of the job's zone show it
//	{{run}}  {{attempt}}  {{job}}                          run id, number of the attempt, name of the job
//	{{{{                                                   two literal braces
//
// What is not one of them is an error, so that a misspelt one is not sent. Values are escaped for where they stand.
package placeholder
