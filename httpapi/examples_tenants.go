package httpapi

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/auth"
	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/pg"
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

	exampleKey = tenants.Key{
		ID: uuid.MustParse("019ada4e-9c3b-7d52-a1c8-5be0f7d96a34"), Tenant: "billing", Name: "ci",
		Prefix: "punctual_5f0e8b110c6d9a44", Role: string(auth.RoleEditor), State: "active", CreatedBy: "command:alice",
		CreatedAt: at("2026-12-01T15:20:11.803Z"), ExpiresAt: new(at("2026-12-31T15:20:11.803Z")),
	}
	exampleNewKey = NewKey{exampleKey, "punctual_5f0e8b110c6d9a44_wXb7…"}
	exampleKeys   = List[tenants.Key]{Data: []tenants.Key{exampleKey}}
	exampleTenant = tenants.Tenant{
		Name: "billing", Weight: 1, MaxJobs: new(10000), MaxRequestsPerSecond: new(200),
		MinInterval:    new(domain.DurationOf(time.Minute)),
		AllowedTargets: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")}, Notify: []domain.Notify{},
		CreatedAt: at("2026-11-02T09:14:03.120441Z"), UpdatedAt: at("2026-11-20T16:40:55.002318Z"),
	}
	exampleCaller = Caller{
		Role: auth.RoleEditor, Tenant: "billing", HomeTenant: "billing", Kind: audit.Key,
		Name: pg.OrNull("019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"),
	}
	exampleOwn      = TenantWithUsage{exampleTenant, TenantUsage{Jobs: 812}}
	exampleTenants  = List[tenants.Tenant]{Data: []tenants.Tenant{exampleTenant}}
	exampleNoTenant = `There is no tenant "biling", which the header Punctual-Tenant names.`
)
