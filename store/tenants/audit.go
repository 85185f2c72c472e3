package tenants

import (
	"net/netip"
	"strings"
	"time"

	"punctual/scheduler"
	"punctual/store/audit"
)

// How the audit log shows keys and tenants: never with a key itself, nor with anything made of it.

type keyShot struct {
	Prefix    string     `json:"prefix"`
	Role      string     `json:"role"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

func (k Key) change(action audit.Action) audit.Change {
	shot := keyShot{Prefix: strings.TrimPrefix(k.Prefix, keyStart), Role: k.Role, ExpiresAt: k.ExpiresAt}
	if action == audit.KeyRevoke {
		return audit.Change{Action: action, ID: k.ID, Name: k.Name, Before: shot}
	}
	return audit.Change{Action: action, ID: k.ID, Name: k.Name, After: shot}
}

type tenantShot struct {
	Weight               int            `json:"weight"`
	MaxJobs              *int           `json:"max_jobs"`
	MaxConcurrentRuns    *int           `json:"max_concurrent_runs"`
	MaxRunsPerSecond     *int           `json:"max_runs_per_second"`
	MaxRequestsPerSecond *int           `json:"max_requests_per_second"`
	MinInterval          *string        `json:"min_interval"`
	AllowedTargets       []netip.Prefix `json:"allowed_targets"`

	Notify []scheduler.Notify `json:"notify"`
}

func (t TenantRecord) shot() tenantShot {
	shot := tenantShot{
		Weight: t.Weight, MaxJobs: t.MaxJobs,
		MaxConcurrentRuns: t.MaxConcurrentRuns, MaxRunsPerSecond: t.MaxRunsPerSecond,
		MaxRequestsPerSecond: t.MaxRequestsPerSecond, AllowedTargets: t.AllowedTargets, Notify: t.Notify,
	}
	if shot.Notify == nil {
		shot.Notify = []scheduler.Notify{}
	}
	if shot.AllowedTargets == nil {
		shot.AllowedTargets = []netip.Prefix{}
	}
	if t.MinInterval != nil {
		shot.MinInterval = new(t.MinInterval.String())
	}
	return shot
}
