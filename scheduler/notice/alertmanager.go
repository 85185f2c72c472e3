package notice

import (
	"regexp"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/spec"
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
var alertNames = map[spec.Event]string{
	spec.EventFailing: "PunctualJobFailing",
	spec.EventDead:    "PunctualRunDead",
	spec.EventStale:   "PunctualJobStale",
	spec.EventMissed:  "PunctualSlotsMissed",
	spec.EventLate:    "PunctualRunLate",
	spec.EventDropped: "PunctualRunDropped",

	spec.EventOverlapping: "PunctualSlotsOverlap",
	spec.EventTest:        "PunctualTest",
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
		case e.Event == spec.EventOverlapOver:
			alerts = replace(alerts, resolved(digest, spec.EventOverlapping, e))
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
		over := domain.DigestEvent{Event: spec.EventEnded, FirstAt: now, LastAt: now}
		if s.Kind == KindOverlap {
			alerts = append(alerts, resolved(was, spec.EventOverlapping, over))
		} else {
			alerts = append(alerts, resolveAll(nil, was, over)...)
		}
	}
	return alerts
}

// resolveAll ends the alerts of all kinds of trouble of a job, but for skipped slots, which have an end of their own.
func resolveAll(alerts []alert, digest domain.Digest, e domain.DigestEvent) []alert {
	for _, trouble := range spec.Events {
		if trouble != spec.EventRecovered && trouble != spec.EventOverlapping {
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
		labels["alertname"], labels["severity"] = heldAlerts[s.Kind], severity(spec.EventLate)
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
func about(digest domain.Digest, trouble spec.Event, e domain.DigestEvent) alert {
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

func lasts(e spec.Event, resolves bool) time.Duration {
	switch e {
	case spec.EventFailing, spec.EventDead, spec.EventStale:
		if resolves {
			return untilResolved
		}
		return unresolved
	case spec.EventOverlapping:
		return untilResolved // which is told to all who hear of it
	case spec.EventTest:
		return ofATest
	case spec.EventMissed, spec.EventLate, spec.EventDropped, spec.EventOverlapOver, spec.EventRecovered,
		spec.EventEnded:
	}
	return passing
}

func resolved(digest domain.Digest, trouble spec.Event, recovery domain.DigestEvent) alert {
	a := about(digest, trouble, recovery)
	a.EndsAt = recovery.LastAt.UTC()
	return a
}
