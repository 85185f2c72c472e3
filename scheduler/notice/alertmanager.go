package notice

import (
	"regexp"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// How long alerts last unless something ends them earlier. Without an end, Alertmanager would end them after five
// minutes.
const (
	untilResolved = 30 * 24 * time.Hour // trouble whose end the recipient hears of
	unresolved    = 24 * time.Hour      // trouble whose end it does not hear of
	passing       = time.Hour           // events that are over when they are told: missed slots, late runs
	ofATest       = 5 * time.Minute
)

// alertJobs bounds the names of jobs in an annotation, in bytes.
const alertJobs = 100_000

// alert is a postableAlert of Alertmanager's API v2.
type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// alertNames are the names of the alerts, by event.
var alertNames = map[jobspec.Event]string{
	jobspec.EventFailing: "PunctualJobFailing",
	jobspec.EventDead:    "PunctualRunDead",
	jobspec.EventStale:   "PunctualJobStale",
	jobspec.EventMissed:  "PunctualSlotsMissed",
	jobspec.EventLate:    "PunctualRunLate",
	jobspec.EventDropped: "PunctualRunDropped",

	jobspec.EventOverlapping: "PunctualSlotsOverlap",
	jobspec.EventTest:        "PunctualTest",
}

// heldAlerts are the names of the alerts about late runs and missed slots, by what held them up, and about skipped
// slots.
var heldAlerts = map[Kind]string{
	KindLate: "PunctualRunLate", KindMissed: "PunctualSlotsMissed", KindLimit: "PunctualLimitReached",
	KindQueue: "PunctualQueueUnserved", KindFreeze: "PunctualFrozen", KindDatabase: "PunctualDatabaseAway",
	KindReplicas: "PunctualNoReplica", KindOverlap: "PunctualSlotsOverlap", KindDropped: "PunctualRunDropped",
}

// alertmanager writes a message as alerts. A job has one for each kind of trouble, because the labels say how bad it
// is. A recovery ends the alerts of whatever happened before it, also of what earlier notices told, but for skipped
// slots, which have an end of their own. Any other subject is one alert.
func alertmanager(m Message, resolves bool, now time.Time) []alert {
	alerts := []alert{}
	for _, s := range m.Subjects {
		if s.ofOneJob() {
			alerts = append(alerts, ofJob(s, resolves, now)...)
		} else {
			alerts = append(alerts, ofSubject(m, s, resolves, now))
		}
	}
	return alerts
}

func ofJob(s Subject, resolves bool, now time.Time) (alerts []alert) {
	digest := s.Jobs[0]
	for _, e := range digest.Events {
		switch {
		case e.Event == jobspec.EventOverlapOver:
			alerts = replace(alerts, resolved(digest, jobspec.EventOverlapping, e))
		case e.Event.EndsTrouble():
			alerts = resolveAll(alerts, digest, e)
		default:
			alerts = replace(alerts, fired(digest, e, resolves, now))
		}
	}
	// Under another name or other labels, the same trouble is other alerts, which nothing else would end.
	for _, former := range digest.Former {
		was := digest
		was.Job, was.Labels = former.Job, former.Labels
		over := domain.DigestEvent{Event: jobspec.EventEnded, FirstAt: now, LastAt: now}
		if s.Kind == KindOverlap {
			alerts = append(alerts, resolved(was, jobspec.EventOverlapping, over))
		} else {
			alerts = append(alerts, resolveAll(nil, was, over)...)
		}
	}
	return alerts
}

// resolveAll ends the alerts of all kinds of trouble of a job, but for skipped slots, which have an end of their own.
func resolveAll(alerts []alert, digest domain.Digest, e domain.DigestEvent) []alert {
	for _, trouble := range jobspec.Events {
		if trouble != jobspec.EventRecovered && trouble != jobspec.EventOverlapping {
			alerts = replace(alerts, resolved(digest, trouble, e))
		}
	}
	return alerts
}

// ofSubject writes the alert of a subject that is not a single job. Its labels do not depend on the jobs, so that what
// ends it is the same alert.
func ofSubject(m Message, s Subject, resolves bool, now time.Time) alert {
	labels := map[string]string{"tenant": m.Tenant}
	lasts := passing
	switch s.Kind {
	case KindHost:
		labels["alertname"], labels["host"], labels["severity"] = "PunctualHostUnreachable", s.Name, "critical"
	case KindLate, KindMissed, KindDropped, KindLimit, KindQueue, KindFreeze, KindDatabase, KindReplicas, KindOverlap:
		labels["alertname"], labels["severity"] = heldAlerts[s.Kind], severity(jobspec.EventLate)
		if s.Kind == KindLimit || s.Kind == KindQueue {
			labels[string(s.Kind)] = s.Name
		}
		resolves = true // in the end, whatever was asked for
	case KindJob, KindJobs:
		labels["alertname"], labels["key"], labels["severity"] = "PunctualJobsFailing", s.Key, "critical"
	}
	if s.State == StateFiring {
		lasts = unresolved
		if resolves {
			lasts = untilResolved
		}
	}
	a := alert{
		Labels: labels,
		Annotations: map[string]string{
			"summary": Headline(Message{Tenant: m.Tenant, Subjects: []Subject{s}}), "jobs": names(s, alertJobs),
		},
		StartsAt: now.UTC(), EndsAt: now.UTC().Add(lasts), GeneratorURL: m.Link,
	}
	if s.Since != nil {
		a.StartsAt = s.Since.UTC()
	}
	if s.Cause != "" {
		a.Annotations["error"] = s.Cause
	}
	annotate(&a, s)
	if s.State == StateResolved {
		a.EndsAt = now.UTC()
	}
	return a
}

// replace adds an alert in place of one with the same name.
func replace(alerts []alert, a alert) []alert {
	for i := range alerts {
		if alerts[i].Labels["alertname"] == a.Labels["alertname"] {
			alerts[i] = a
			return alerts
		}
	}
	return append(alerts, a)
}

// about writes an alert of a kind of trouble, which e began or ended. It says when the trouble began.
func about(digest domain.Digest, trouble jobspec.Event, e domain.DigestEvent) alert {
	a := alert{
		Labels: map[string]string{
			"alertname": alertNames[trouble], "job": digest.Job, "tenant": digest.Tenant, "severity": severity(trouble),
		},
		Annotations:  map[string]string{"summary": jobHeadline(digest), "description": describe(e)},
		StartsAt:     e.FirstAt.UTC(),
		GeneratorURL: digest.Link,
	}
	if e.Since != nil && e.Since.Before(a.StartsAt) {
		a.StartsAt = e.Since.UTC()
	}
	for name, value := range digest.Labels {
		if name = labelName.ReplaceAllString(name, "_"); a.Labels[name] == "" && value != "" {
			a.Labels[name] = value
		}
	}
	annotate(&a, Subject{Jobs: []domain.Digest{digest}})
	return a
}

// labelName matches what Alertmanager does not take in the name of a label.
var labelName = regexp.MustCompile(`^[^a-zA-Z_]|[^a-zA-Z0-9_]`)

// annotate adds what may change before the alert ends: another label would make it another alert.
func annotate(a *alert, s Subject) {
	for _, f := range facts(s) {
		name := map[string]string{"host": "host", "reason": "reason", "runbook": "runbook_url"}[f.name]
		if _, told := a.Labels[name]; name != "" && !told {
			a.Annotations[name] = f.value
		}
	}
}

func fired(digest domain.Digest, e domain.DigestEvent, resolves bool, now time.Time) alert {
	a := about(digest, e.Event, e)
	if len(e.Runs) > 0 {
		for name, value := range map[string]string{
			"error": e.Runs[0].Error, "response": e.Runs[0].Response, "reason": string(e.Runs[0].Reason), "run": e.Runs[0].Link,
		} {
			if value != "" {
				a.Annotations[name] = value
			}
		}
	}
	a.EndsAt = now.UTC().Add(lasts(e.Event, resolves))
	return a
}

func lasts(e jobspec.Event, resolves bool) time.Duration {
	switch e {
	case jobspec.EventFailing, jobspec.EventDead, jobspec.EventStale:
		if resolves {
			return untilResolved
		}
		return unresolved
	case jobspec.EventOverlapping:
		return untilResolved // which is told to all who hear of it
	case jobspec.EventTest:
		return ofATest
	case jobspec.EventMissed, jobspec.EventLate, jobspec.EventDropped, jobspec.EventOverlapOver, jobspec.EventRecovered,
		jobspec.EventEnded:
	}
	return passing
}

func resolved(digest domain.Digest, trouble jobspec.Event, recovery domain.DigestEvent) alert {
	a := about(digest, trouble, recovery)
	a.EndsAt = recovery.LastAt.UTC()
	return a
}
