package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/store"
	"punctual/store/aside"
	"punctual/store/pg"
)

func (s *server) asideRoutes() {
	const one = "/v1/set-aside/{kind}/{item}"
	api.Register(s.api, api.Operation{
		ID: "list-set-aside", Route: "GET /v1/set-aside", Role: auth.RoleViewer, Tag: tagFleet,
		Summary: "List what is set aside",
		Description: "Items that fail by themselves, each with its reason, the oldest first; at most 1,000. They keep " +
			"nothing else waiting. Each is tried again by itself, after a pause that grows to ten minutes. Operators see those " +
			"of all tenants. Empty: all is well.",
	}, s.listAside)
	api.Register(s.api, api.Operation{
		ID: "retry-set-aside", Route: "POST " + one + "/retry", Role: auth.RoleOperator, Tag: tagFleet,
		Summary: "Try what is set aside again", Status: http.StatusAccepted,
		Description: "A replica tries it within seconds, once the cause is fixed. If it fails again, it stays set aside.",
	}, s.retryAside)
	api.Register(s.api, api.Operation{
		ID: "drop-set-aside", Route: "DELETE " + one, Role: auth.RoleOperator, Tag: tagFleet,
		Summary: "Give up what is set aside",
		Conflict: fmt.Errorf("%w: pause, change or delete the job in place of dropping its slot, once the cause is fixed",
			store.ErrState),
		Description: "A run or a workflow is cancelled. A run whose outcome cannot be written is dead, with the reason " +
			"poison. An event creates no further runs, an operation fails, and notices are forgotten. The response is 409 for " +
			"what its job decides: a slot, a pause, dated runs. Pause, change or delete the job.",
	}, s.dropAside)
}

// AsideList lists what is set aside.
type AsideList struct {
	Data []aside.SetAside `json:"data" doc:"The items, the oldest first; at most 1,000."`
}

func (s *server) listAside(ctx context.Context, tenant int32, _ *struct{}) (*answer[AsideList], error) {
	if auth.CallerOf(ctx).Role.Includes(auth.RoleOperator) {
		tenant = pg.Everybody
	}
	list, err := s.Store.Aside.List(ctx, tenant)
	return show(AsideList{Data: list}, err)
}

// AsideRef is the input of operations on one item that is set aside.
type AsideRef struct {
	Kind string `path:"kind" doc:"Its kind, as list-set-aside shows it." example:"outcome"`
	Item string `path:"item" format:"uuid" doc:"Its id." example:"019ae0f2-7b3c-7d21-8e55-2f6a9c0d1e47"`
}

// Exists returns ErrNotFound for a kind that there is not, and for what is no id.
func (r AsideRef) Exists() error {
	if _, is := pg.ParseID(r.Item); !is || !slices.Contains(aside.Kinds(), aside.Kind(r.Kind)) {
		return store.ErrNotFound
	}
	return nil
}

// NotFound implements api.Named.
func (AsideRef) NotFound() string { return "Nothing of that kind and with that id is set aside." }

func (r AsideRef) item() (aside.Kind, uuid.UUID) { return aside.Kind(r.Kind), uuid.MustParse(r.Item) }

func (s *server) retryAside(ctx context.Context, _ int32, in *AsideRef) (*answer[aside.SetAside], error) {
	kind, id := in.item()
	return show(s.Store.RetryAside(ctx, kind, id))
}

func (s *server) dropAside(ctx context.Context, _ int32, in *AsideRef) (*struct{}, error) {
	kind, id := in.item()
	return nil, s.Store.DropAside(ctx, kind, id)
}
