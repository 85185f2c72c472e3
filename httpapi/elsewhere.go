package httpapi

import "strings"

// elsewhere holds fields of jobs of other systems, in lower case and without underscores, and what is written here.
var elsewhere = map[string]string{
	"payload": "did you mean target.body?", "data": "did you mean target.body?", "args": "did you mean target.body?",
	"callback": "did you mean target.url?", "callbackurl": "did you mean target.url?",
	"endpoint": "did you mean target.url?", "webhook": "did you mean target.url?", "uri": "did you mean target.url?",
	"retrypolicy": "did you mean retry?",
	"retries":     countsFirst, "maxretries": countsFirst, "retrycount": countsFirst, "retrylimit": countsFirst,
	"timeoutsec": asDuration, "timeoutsecs": asDuration, "timeoutseconds": asDuration, "timeoutms": asDuration,
	"cronexpr": "did you mean schedule.cron?", "cronexpression": "did you mean schedule.cron?",
	"runat": "did you mean schedule.at?", "scheduledat": "did you mean schedule.at?",
	"fireat":       "did you mean schedule.at?",
	"tz":           "did you mean schedule.timezone?",
	"missedpolicy": "did you mean missed.policy?", "misfirepolicy": "did you mean missed.policy?",
	"enabled": asPaused, "isactive": asPaused, "suspend": asPaused, "disabled": asPaused,
	"type":           "schedule says it: it has cron, every, at or delay",
	"idempotencykey": "send it as the header Idempotency-Key",
	"pool":           "did you mean queue?", "workerpool": "did you mean queue?",
}

const (
	countsFirst = "did you mean retry.max_attempts? It counts the first attempt too"
	asDuration  = `did you mean timeout? It has a unit, such as "30s"`
	asPaused    = `did you mean paused? Write "paused": true or false`
)

// Elsewhere says what a field of another system is called here; empty when it does not know the field.
func (JobInput) Elsewhere(field string) (here string) {
	return elsewhere[strings.ToLower(strings.ReplaceAll(field, "_", ""))]
}
