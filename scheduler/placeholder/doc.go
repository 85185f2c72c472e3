// Package placeholder fills values of an attempt into texts that the author of a job wrote: slot data for targets
// that read no headers. The list of placeholders is closed, and none of them is code: a text is read once, when it is
// compiled, and filled-in values are never read again.
//
//	{{scheduled_for}}        {{scheduled_for|date}}        the slot, in UTC
//	{{scheduled_for_local}}  {{scheduled_for_local|hour}}  the slot as the clocks of the job's zone show it
//	{{run}}  {{attempt}}  {{job}}                          run id, number of the attempt, name of the job
//	{{{{                                                   two literal braces
//
// Anything else between double braces is an error, so that a misspelt placeholder is not sent. Values are escaped for
// the place where they stand.
package placeholder
