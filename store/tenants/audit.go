package tenants

import (
	"strings"
	"time"

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

// tenantShot is a tenant without what is not a setting: its own fields hide those of the tenant.
type tenantShot struct {
	Tenant
	Name      *string    `json:"name,omitempty"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	UpdatedAt *time.Time `json:"updated_at,omitempty"`
}

// Settings returns the settings alone, for JSON: as the audit log shows them, and as a merge patch changes them.
func (t Tenant) Settings() any { return tenantShot{Tenant: t} }
