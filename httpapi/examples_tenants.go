package httpapi

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/auth"
	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/notices"
	"punctual/store/pg"
	"punctual/store/secrets"
	"punctual/store/tenants"
)

// Examples of the documentation: keys and tenants.
var (
	exampleKeyInput    = json.RawMessage(`{"name":"ci","role":"editor","expires_in":"720h"}`)
	exampleTenantInput = json.RawMessage(`{"name":"billing","max_jobs":10000,"max_requests_per_second":200,` +
		`"min_interval":"1m","allowed_targets":["10.20.0.0/16"]}`)
	exampleTenantPatch = json.RawMessage(`{"weight":2,"max_jobs":null}`)

	exampleTenantNotify = json.RawMessage(`{"notify":[{"on":["failing","dead","stale","recovered"],"format":"slack",` +
		`"url":"https://hooks.slack.com/services/T000/B000/XXXX"}]}`)
	exampleNotifyTest = json.RawMessage(`{"entry":{"on":["failing","recovered"],"format":"slack",` +
		`"url":"https://hooks.slack.com/services/T000/B000/XXXX"}}`)
	exampleTested = NotifyResults{Data: []NotifyResult{{
		Format: domain.FormatSlack, URL: "https://hooks.slack.com/services/T000/B000/XXXX", Delivered: true,
		HTTPStatus: pg.OrNull(200),
	}}}

	exampleNotices = Notices{
		List[notices.Notice]{Data: []notices.Notice{{
			ID: uuid.MustParse("019ad98a-2a60-8d07-9c52-7b0f1e3d4a86"), DeliveredAt: moment("2026-12-01T02:00:01Z"),
			HappenedAt: moment("2026-12-01T02:00:00Z"),
			Headline:   "Job daily-invoice-gen has dead runs (tenant billing)", Events: []string{"dead"},
			Jobs:   []uuid.UUID{uuid.MustParse("019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11")},
			Format: domain.FormatSlack, URL: "https://hooks.slack.com/services/T000/B000/XXXX",
		}}},
		[]notices.Waiting{},
	}

	exampleNotice = notices.Detail{
		Notice: exampleNotices.Data[0],
		Named:  []notices.NamedJob{{ID: exampleNotices.Data[0].Jobs[0], Name: "daily-invoice-gen"}},
	}

	exampleKey = tenants.Key{
		ID: uuid.MustParse("019ada4e-9c3b-7d52-a1c8-5be0f7d96a34"), Tenant: "billing", Name: "ci",
		Prefix: "punctual_5f0e8b110c6d9a44", Role: string(auth.RoleEditor), State: "active", CreatedBy: "command:alice",
		CreatedAt: moment("2026-12-01T15:20:11.803Z"), ExpiresAt: new(moment("2026-12-31T15:20:11.803Z")),
	}
	exampleNewKey = NewKey{exampleKey, "punctual_5f0e8b110c6d9a44_wXb7…"}
	exampleKeys   = List[tenants.Key]{Data: []tenants.Key{exampleKey}}
	exampleTenant = tenants.Tenant{
		Name: "billing", Weight: 1, MaxJobs: new(10000), MaxRequestsPerSecond: new(200),
		MinInterval:    new(domain.DurationOf(time.Minute)),
		MaxKeyAge:      new(domain.DurationOf(2160 * time.Hour)),
		ChangesKept:    new(domain.DurationOf(24 * time.Hour)),
		AllowedTargets: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")}, Notify: []domain.Notify{},
		CreatedAt: moment("2026-11-02T09:14:03.120441Z"), UpdatedAt: moment("2026-11-20T16:40:55.002318Z"),
	}
	exampleCaller = Caller{
		Role: auth.RoleEditor, Tenant: "billing", HomeTenant: "billing", Kind: audit.Key,
		Name: pg.OrNull("019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"),
	}
	exampleOwn     = TenantWithUsage{exampleTenant, TenantUsage{Jobs: 812}}
	exampleTenants = List[tenants.Tenant]{Data: []tenants.Tenant{exampleTenant}}
	exampleGrant   = tenants.Grant{
		NewGrant: tenants.NewGrant{Schema: "shop_jobs", Role: "shop"}, CreatedAt: moment("2026-11-02T09:20:41.5Z"),
		CreatedBy: "key deploy (019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11)",
	}
	exampleNoTenant = `There is no tenant "biling", which the header Punctual-Tenant names.`
)

var (
	exampleSecretInput = json.RawMessage(`{"value": "s3cr3t", "description": "of the billing team"}`)

	exampleSecret = secrets.Secret{
		Name: "billing-token", Description: "of the billing team", Version: 2,
		CreatedAt: time.Date(2026, 11, 2, 9, 30, 0, 0, time.UTC), UpdatedAt: time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC),
	}

	exampleSigningSecret = secrets.SigningSecret{
		ID: uuid.MustParse("019ae0f2-6c1d-7a53-9b0e-5d4c2b1a0f3e"), CreatedAt: time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC),
	}

	exampleNewSigningSecret = NewSigningSecret{exampleSigningSecret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbdbMUDWDBH0="}
)

var exampleAudit = List[audit.Entry]{Data: []audit.Entry{{
	JobChange: exampleJobChange, Address: new("203.0.113.7"), RequestID: new("7UBLQ5SRJ2ZTNBQFRQTMLNPKJE"),
}}}

var exampleJobChange = audit.JobChange{
	ID: uuid.MustParse("019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42"), At: moment("2026-11-28T18:00:00.5Z"),
	ActorKind: audit.Key, Actor: new("019a3c5e-0000-7c3e-9a44-0c6d5f0e8b11"), ActorName: new("deploy"),
	Action: audit.JobPause, Resource: "job", ResourceID: &exampleJobID, JobID: &exampleJobID,
	Name:   new("daily-invoice-gen"),
	Before: json.RawMessage(`{"version":7,"state":"active"}`),
	After: json.RawMessage(`{"version":8,"state":"paused","paused_until":"2026-12-01T09:00:00Z",` +
		`"note":"the warehouse moves"}`),
}
