package store

import (
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/store/audit"
)

// How the audit log shows keys, tenants and secrets: never with the secret itself, nor with anything made of it.

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

type secretShot struct {
	Description string `json:"description"`
	Version     int32  `json:"version"`
}

// secretPut is the change that gave a secret its value or its description. before is nil for a new secret.
func secretPut(before *Secret, after Secret) audit.Change {
	c := audit.Change{
		Action: audit.SecretPut, ID: after.ID, Name: after.Name,
		After: secretShot{after.Description, after.Version},
	}
	if before != nil {
		c.Before = secretShot{before.Description, before.Version}
	}
	return c
}

type signingSecretShot struct {
	ExpiresAt *time.Time `json:"expires_at"`
}

// signingSecretEnds is the change that ends a signing secret: at an instant, or now if at is nil.
func signingSecretEnds(id uuid.UUID, at *time.Time) audit.Change {
	c := audit.Change{Action: audit.SigningSecretDelete, ID: id, Before: signingSecretShot{}}
	if at != nil {
		c.After = signingSecretShot{at}
	}
	return c
}

// rotationShot shows which keys of the deployment a rotation has begun to use.
type rotationShot struct {
	DataKey   int64 `json:"data_key"`
	MasterKey bool  `json:"new_master_key"`
}
