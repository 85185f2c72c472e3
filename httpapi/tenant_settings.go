package httpapi

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/tenants"
)

// TenantSettings are the settings of a tenant that operators decide.
type TenantSettings struct {
	Weight               *int             `json:"weight,omitempty" minimum:"1" maximum:"1000" doc:"Its relative share of the concurrency while several tenants wait for it: a tenant with twice the weight gets twice as many. Absent: 1." example:"1"`
	MaxJobs              *int             `json:"max_jobs,omitempty" minimum:"1" maximum:"2147483647" doc:"The most active and paused jobs that it may have. Absent: no limit." example:"10000"`
	MaxPendingRuns       *int             `json:"max_pending_runs,omitempty" minimum:"1" maximum:"1000000" doc:"The most dated runs that it may have pending. Absent: no limit." example:"100000"`
	MaxConcurrentRuns    *int             `json:"max_concurrent_runs,omitempty" minimum:"1" maximum:"2147483647" doc:"The most runs of this tenant that all replicas together may send at once; others wait. Absent: no limit." example:"100"`
	MaxRunsPerSecond     *int             `json:"max_runs_per_second,omitempty" minimum:"1" maximum:"2147483647" doc:"The most attempts of this tenant that all replicas together may start in a second; others wait. Absent: no limit." example:"50"`
	MaxRequestsPerSecond *int             `json:"max_requests_per_second,omitempty" minimum:"1" maximum:"2147483647" doc:"The most API requests of this tenant that all replicas together answer in a second; others get 429. Absent: no limit." example:"200"`
	MinInterval          jobspec.Duration `json:"min_interval,omitzero" doc:"Shortest time between two slots of one of its jobs. Absent: no limit." example:"1m"`
	MaxKeyAge            jobspec.Duration `json:"max_key_age,omitzero" doc:"How long a new API key of it may work, at least 1h. Earlier keys stay as they are. The deployment may have a limit, too (--max-key-age). Absent: only that of the deployment." example:"2160h"`
	ChangesKept          jobspec.Duration `json:"changes_kept,omitzero" doc:"How long GET /v1/runs/changes says which of its runs have ended, 1h to 720h. To begin or end that stops writes of runs for a moment. Absent: nothing is recorded." example:"24h"`
	AllowedTargets       []string         `json:"allowed_targets,omitempty" maxItems:"100" doc:"Non-public networks that its jobs may call, in addition to those that the deployment allows all tenants. Absent: none." example:"[\"10.20.0.0/16\"]"`
	TenantNotify
}

// TenantNotify are the settings that a tenant's own admins may change too.
type TenantNotify struct {
	Notify []jobspec.Notify `json:"notify,omitempty" doc:"Recipients of notices about jobs that have no notify of their own. Absent: no recipients." maxItems:"10"`
}

func (t TenantNotify) validate() []problem.FieldError {
	return api.Within("body", jobspec.ValidateNotify("notify", t.Notify))
}

// SetByServer says why admins may not set the fields that only tenants.Tenant has.
func (TenantNotify) SetByServer(field string) (why string, is bool) {
	_, has := body.Schema(reflect.TypeFor[TenantWithUsage]()).Properties[field]
	return body.LeaveOut, has && field != "notify"
}

const (
	largestWeight  = 1000
	mostNetworks   = 100
	mostPending    = 1_000_000
	longestMinimum = 366 * 24 * time.Hour
	longestKept    = 30 * 24 * time.Hour
)

func (t TenantSettings) validate() []problem.FieldError {
	var errors []problem.FieldError
	for _, limit := range []struct {
		name  string
		value *int
		most  int
	}{
		{"weight", t.Weight, largestWeight},
		{"max_jobs", t.MaxJobs, math.MaxInt32},
		{"max_pending_runs", t.MaxPendingRuns, mostPending},
		{"max_concurrent_runs", t.MaxConcurrentRuns, math.MaxInt32},
		{"max_runs_per_second", t.MaxRunsPerSecond, math.MaxInt32},
		{"max_requests_per_second", t.MaxRequestsPerSecond, math.MaxInt32},
	} {
		errors = append(errors, upTo("body."+limit.name, limit.value, limit.most)...)
	}
	errors = slices.Concat(errors, span("body.min_interval", t.MinInterval, time.Second, longestMinimum),
		span("body.max_key_age", t.MaxKeyAge, LeastKeyAge, longestKey),
		span("body.changes_kept", t.ChangesKept, time.Hour, longestKept))
	if len(t.AllowedTargets) > mostNetworks {
		errors = append(errors,
			problem.Atf("body.allowed_targets", "%d networks; at most %d", len(t.AllowedTargets), mostNetworks))
	}
	for i, network := range t.AllowedTargets {
		if wrong := badNetwork(network); wrong != "" {
			errors = append(errors, problem.At(fmt.Sprintf("body.allowed_targets[%d]", i), wrong))
		}
	}
	return append(errors, t.TenantNotify.validate()...)
}

// badNetwork returns what is wrong with a network in CIDR notation.
func badNetwork(text string) string {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return fmt.Sprintf("%q is not a network; write one such as 10.20.0.0/16 or fd00::/8", problem.Clip(text))
	case prefix != prefix.Masked():
		return fmt.Sprintf("%s has bits set after its prefix length; did you mean %s?", prefix, prefix.Masked())
	case prefix.Addr().Is4In6():
		return fmt.Sprintf("%s is an IPv4 network in IPv6 notation; write it in IPv4 notation", prefix)
	}
	return ""
}

// apply gives a tenant these settings, which must be valid.
func (t TenantSettings) apply(to *tenants.Tenant) {
	to.Weight, to.AllowedTargets, to.Notify = or(t.Weight, 1), nil, t.Notify
	to.MaxJobs, to.MaxPendingRuns, to.MaxConcurrentRuns = t.MaxJobs, t.MaxPendingRuns, t.MaxConcurrentRuns
	to.MaxRunsPerSecond, to.MaxRequestsPerSecond = t.MaxRunsPerSecond, t.MaxRequestsPerSecond
	to.MinInterval, to.MaxKeyAge, to.ChangesKept = limitOf(t.MinInterval), limitOf(t.MaxKeyAge), limitOf(t.ChangesKept)
	for _, network := range t.AllowedTargets {
		to.AllowedTargets = append(to.AllowedTargets, netip.MustParsePrefix(network))
	}
}

// limitOf returns a duration in the form of a tenant's limit; nil: there is none.
func limitOf(d jobspec.Duration) *jobspec.Duration {
	if d.IsZero() {
		return nil
	}
	return new(jobspec.DurationOf(d.Value()))
}
