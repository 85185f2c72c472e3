package dashboard

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
)

// Config configures the pages. Log is required, and Sessions is unless NoAuth is set.
type Config struct {
	Log      *slog.Logger
	Version  string // of the binary
	NoAuth   bool   // visitors need not sign in
	Sessions Sealer
	// Secure makes browsers send the session's cookie over HTTPS only.
	Secure bool
	// SignIn signs visitors in at an issuer of tokens; nil: they sign in with keys only.
	SignIn *auth.SignIn
}

// Sealer encrypts sessions, so that any replica can read what another has written, and nobody else can.
type Sealer interface {
	SealSession(ctx context.Context, session []byte) (string, error)
	OpenSession(ctx context.Context, sealed string) ([]byte, error)
}

// Pages are the pages.
type Pages struct {
	Config
	api      http.Handler
	renewals renewals
}

//go:embed assets templates
var files embed.FS

// New returns the pages.
func New(c Config) (*Pages, error) {
	if c.Sessions == nil && !c.NoAuth {
		return nil, errors.New("dashboard: Config.Sessions is required, unless visitors need not sign in")
	}
	return &Pages{Config: c}, nil
}

// Routes adds all pages to a router. api answers the calls of the pages.
func (p *Pages) Routes(mux chi.Router, api http.Handler) {
	p.api = api
	assets, _ := fs.Sub(files, "assets") // the folder is embedded
	mux.With(cached).Handle("/assets/*", http.StripPrefix("/assets/", http.FileServerFS(assets)))
	pages := mux.With(middleware.Compress(5))
	pages.Get("/login", p.open((*visit).askToSignIn))
	pages.Post("/login", p.open((*visit).signIn))
	if p.SignIn != nil {
		pages.Get("/login/oidc", p.open((*visit).toIssuer))
		pages.Get(auth.RedirectPath, p.open((*visit).fromIssuer))
	}
	pages.Post("/logout", p.open((*visit).signOut))
	pages.Get("/approvals/{run}", p.open((*visit).approval))
	pages.Post("/approvals/{run}", p.open(withForm((*visit).decideApproval)))
	for path, show := range map[string]func(*visit) error{
		"/jobs":                   (*visit).jobs,
		"/jobs/{job}":             ofJob((*visit).job),
		"/jobs/{job}/definition":  ofJob((*visit).definition),
		"/jobs/{job}/changes":     ofJob((*visit).changes),
		"/jobs/{job}/notices":     ofJob((*visit).notices),
		"/jobs/{job}/edit":        ofJob((*visit).editJob),
		"/jobs/{job}/backfill":    ofJob((*visit).backfill),
		"/new":                    (*visit).newJob,
		"/preview":                (*visit).preview,
		"/names":                  (*visit).names,
		"/runs":                   (*visit).runs,
		"/runs/{run}":             (*visit).run,
		"/runs/{run}/rerun":       (*visit).planRerun,
		"/dead-letters":           (*visit).letters,
		"/events":                 (*visit).eventNames,
		"/events/{name}":          (*visit).eventsOfName,
		"/events/{name}/{event}":  (*visit).event,
		"/operations":             (*visit).operations,
		"/operations/{operation}": (*visit).operation,
		"/queues":                 (*visit).queues,
		"/timeline":               (*visit).timeline,
		"/forecast":               (*visit).forecast,
		"/audit":                  (*visit).audit,
		"/notices/{notice}":       (*visit).notice,
		"/settings":               (*visit).settings,
	} {
		pages.Get(path, p.page(show))
	}
	for path, do := range map[string]func(*visit) error{
		"/jobs":                          (*visit).changeJobs,
		"/jobs/{job}/pause":              (*visit).pauseJob,
		"/jobs/{job}/resume":             (*visit).resumeJob,
		"/jobs/{job}/trigger":            (*visit).triggerJob,
		"/jobs/{job}/dated/cancel":       (*visit).cancelDated,
		"/jobs/{job}/dated/move":         (*visit).moveDated,
		"/jobs/{job}/delete":             (*visit).deleteJob,
		"/jobs/{job}/edit":               ofJob((*visit).saveJob),
		"/jobs/{job}/backfill":           (*visit).startBackfill,
		"/jobs/{job}/restore":            (*visit).restoreVersion,
		"/new":                           (*visit).createJob,
		"/runs/{run}/cancel":             (*visit).cancelRun,
		"/runs/{run}/rerun":              (*visit).rerunRun,
		"/runs/{run}/approve":            decideRun(client.ApproveRun, "The step is approved."),
		"/runs/{run}/reject":             decideRun(client.RejectRun, "The step is rejected."),
		"/dead-letters/replay":           ofLetters("replay"),
		"/dead-letters/resolve":          ofLetters("resolve"),
		"/operations/{operation}/cancel": (*visit).cancelOperation,
		"/breakers/reset":                (*visit).resetBreakers,
		"/settings/keys":                 (*visit).createKey,
		"/settings/keys/{key}/revoke":    (*visit).revokeKey,
		"/settings/notify/test":          (*visit).testNotify,
		"/settings/freeze":               (*visit).freeze,
		"/tenant":                        (*visit).actFor,
		"/clock":                         (*visit).setClock,
	} {
		pages.Post(path, p.page(withForm(do)))
	}
}

// Home shows the overview, at /.
func (p *Pages) Home(w http.ResponseWriter, r *http.Request) {
	middleware.Compress(5)(p.page((*visit).overview)).ServeHTTP(w, r)
}

// Refuse says that there is no page for a request.
func (p *Pages) Refuse(w http.ResponseWriter, r *http.Request, why *problem.Problem) {
	asked := &visit{Pages: p, w: w, r: r}
	handler := p.open
	if _, signedIn := asked.kept(); signedIn || p.NoAuth {
		handler = p.page // which knows the visitor
	}
	maps.Copy(w.Header(), why.Header)
	if why.Code == problem.CodeNoRoute {
		why = problem.New(why.Code, "There is no page at "+r.URL.Path+".")
	}
	handler(func(*visit) error { return why })(w, r)
}

// cached lets browsers keep assets, but not use them unasked: after an upgrade, old scripts would meet new pages.
func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", assetsTag())
		if strings.HasSuffix(r.URL.Path, "/") {
			http.NotFound(w, r) // no listing of the folder
			return
		}
		next.ServeHTTP(w, r)
	})
}

// assetsTag is the ETag of all assets: they are those of the binary.
var assetsTag = sync.OnceValue(func() string {
	sum := sha256.New()
	_ = fs.WalkDir(files, "assets", func(path string, _ fs.DirEntry, _ error) error {
		text, _ := files.ReadFile(path) // a folder has none, and what is embedded can be read
		_, _ = sum.Write(text)
		return nil
	})
	return `"` + hex.EncodeToString(sum.Sum(nil)[:8]) + `"`
})
