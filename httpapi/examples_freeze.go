package httpapi

import (
	"encoding/json"

	"punctual/httpapi/auth"
	"punctual/scheduler"
	"punctual/store/freeze"
)

// Examples of the documentation: freezes.
var (
	exampleFreeze   = json.RawMessage(`{"scope":"tenant","note":"the warehouse moves"}`)
	exampleUnfreeze = json.RawMessage(`{"scope":"tenant"}`)
	exampleFrozen   = showFreezeState(freeze.State{
		Tenant: &scheduler.Freeze{
			Since: at("2026-12-01T11:00:00.204Z"), By: "key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)",
			Note: "the warehouse moves", Reason: scheduler.FrozenAsked,
		}, InFlight: 12,
	}, auth.RoleAdmin)
	exampleUnfrozen = FreezeState{}
)
