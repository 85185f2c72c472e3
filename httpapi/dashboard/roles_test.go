package dashboard

import (
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"punctual/scheduler/domain"
)

var (
	forms       = regexp.MustCompile(`(?s)<form[^>]*method="post"[^>]*>.*?</form>`)
	destination = regexp.MustCompile(`(?:form)?action="([^"]*)"`)
	hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)
	linked      = regexp.MustCompile(`<a [^>]*href="(/[^"]*)"`)
)

// Nobody fills in a form in vain, or follows a link to a page that the role may not see.
func TestAPageOffersNothingThatTheRoleMayNot(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"viewer", "submitter", "editor", "admin", "operator"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			s := serve(t, false)
			editor := s.as("default", "editor")
			editor.create("daily", "labels", "team=a")
			editor.create("paused")
			editor.post("/jobs/paused/pause").want(303)
			run := editor.post("/jobs/daily/trigger").want(303).to()
			s.bury("daily", domain.ReasonTimeout, 1)
			b := s.as("default", role)
			offered := map[string]url.Values{}
			var links []string
			for _, path := range append([]string{
				"/jobs/daily", "/jobs/paused", "/jobs/daily/definition", "/jobs/daily/changes", "/jobs/daily/notices",
				"/jobs/daily/edit", "/jobs/daily/backfill", run,
			}, paths...) {
				p := b.get(path)
				_, main, _ := strings.Cut(p.body, "<main")
				main, _, _ = strings.Cut(main, "</main>")
				if p.status == 403 {
					if strings.Contains(main, "<form") {
						t.Errorf("%s is refused, and has a form", path)
					}
					continue
				}
				p.want(200)
				for _, form := range forms.FindAllString(main, -1) {
					if strings.Contains(form, "<fieldset class=\"all\" disabled>") {
						continue
					}
					fields := url.Values{}
					for _, m := range hiddenField.FindAllStringSubmatch(form, -1) {
						fields.Add(m[1], html.UnescapeString(m[2]))
					}
					to := destination.FindAllStringSubmatch(form, -1)
					if len(to) == 0 {
						to = [][]string{{"", path}}
					}
					for _, m := range to {
						offered[html.UnescapeString(m[1])] = fields
					}
				}
				for _, m := range linked.FindAllStringSubmatch(p.body, -1) {
					link, _, _ := strings.Cut(html.UnescapeString(m[1]), "?") // what a role may see depends on the path
					links = append(links, link)
				}
			}
			slices.Sort(links)
			for _, link := range slices.Compact(links) {
				if p := b.get(link); p.status == 403 {
					t.Errorf("a link leads to %s, which the role may not see", link)
				}
			}
			last := func(path string) bool { return strings.Contains(path, "delete") || strings.Contains(path, "freeze") }
			for _, now := range []bool{false, true} {
				for path, fields := range offered {
					if last(path) != now {
						continue
					}
					if p := b.visit("POST", b.url+path, "same-origin", fields); p.status == 403 {
						t.Errorf("a form is offered that sends to %s %v, which the role may not", path, fields)
					}
				}
			}
		})
	}
}

// A freeze can be ended on any page, as each tells of it, by whoever may.
func TestAFreezeIsEndedWhereItIsSaid(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	editor, admin, operator := s.as("default", "editor"), s.as("default", "admin"), s.as("default", "operator")
	admin.post("/settings/freeze", "scope", "tenant", "note", "a move").want(303)
	editor.get("/jobs").shows("Frozen since", "a move").hides("Unfreeze")
	sound(admin.get("/jobs")).shows("Unfreeze", `name="scope" value="tenant"`)
	admin.post("/settings/freeze", "scope", "tenant", "unfreeze", "1").want(303)
	operator.post("/settings/freeze", "scope", "deployment").want(303)
	admin.get("/jobs").shows("for any tenant").hides("Unfreeze")
	operator.get("/jobs").shows("Unfreeze", `name="scope" value="deployment"`)
	operator.post("/settings/freeze", "scope", "deployment", "unfreeze", "1").want(303)
	editor.get("/jobs").hides("Frozen since")
}
