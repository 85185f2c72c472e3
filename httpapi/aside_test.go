package httpapi

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/store/aside"
	"punctual/store/tenants"
)

// Each kind of what is set aside is listed, tried again and given up by operators. What a job decides is not given up.
func TestOperatorsTryWhatIsSetAsideAgainOrGiveItUp(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("alpha")
	operator, viewer := s.as("default", auth.RoleOperator), s.as("default", auth.RoleViewer)
	admin := s.as("alpha", auth.RoleAdmin)
	tenant, err := s.store.Tenants.TenantID(t.Context(), tenants.DefaultTenant)
	must(t, err)
	list := func(of *service) []aside.SetAside { return get[AsideList](of, "/v1/set-aside").Data }
	byJob := []aside.Kind{aside.Slot, aside.Pause, aside.Dated}
	for _, kind := range aside.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			id := uuid.New()
			set := aside.Item{Kind: kind, ID: id, Tenant: tenant}
			if !s.store.Aside.Put(t.Context(), set, errors.New("the row is damaged")) {
				t.Fatal("it could not be set aside")
			}
			one := "/v1/set-aside/" + string(kind) + "/" + id.String()
			for _, of := range []*service{operator, viewer} {
				got := list(of)
				if len(got) != 1 || got[0].Kind != kind || got[0].ID != id || got[0].Reason != "the row is damaged" {
					t.Errorf("listed: %+v", got)
				}
			}
			if got := list(admin); len(got) != 0 {
				t.Errorf("listed for another tenant: %+v", got)
			}
			for _, of := range []*service{viewer, admin} {
				of.do("POST", one+"/retry", "").code(problem.CodeForbidden)
				of.do("DELETE", one, "").code(problem.CodeForbidden)
			}
			again := into[aside.SetAside](operator.do("POST", one+"/retry", "").want(202))
			if again.RetryAt.After(again.TriedAt.Add(aside.FirstRetry / 2)) {
				t.Errorf("it is not tried at once: %+v", again)
			}
			for _, is := range byJob {
				if is == kind {
					operator.do("DELETE", one, "").want(409).shows("pause, change or delete the job")
					s.store.Aside.Done(t.Context(), kind, id)
					return
				}
			}
			operator.do("DELETE", one, "").want(204)
			operator.do("DELETE", one, "").want(404)
			operator.do("POST", one+"/retry", "").want(404)
		})
	}
	if got := list(operator); len(got) != 0 {
		t.Errorf("at last: %+v", got)
	}
	operator.do("POST", "/v1/set-aside/nothing/"+uuid.NewString()+"/retry", "").want(404).
		shows("Nothing of that kind and with that id is set aside.")
	operator.do("DELETE", "/v1/set-aside/run/nothing", "").want(422)
}
