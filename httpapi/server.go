package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/store"
)

// Config configures the API. Store is required, every other field may be absent.
type Config struct {
	Store         *store.Store
	Log           *slog.Logger
	Version       string                          // of the binary, shown at /
	Gatherer      prometheus.Gatherer             // what /metrics shows
	Registerer    prometheus.Registerer           // where the request metrics go
	DefaultJitter time.Duration                   // of the deployment: says when upcoming slots are due
	NoAuth        bool                            // no authentication: every caller is an operator
	Tenant        string                          // of requests with NoAuth that name none; empty: "default"
	OIDC          auth.OIDC                       // whose tokens are accepted beside keys
	Guard         *guard.Guard                    // which addresses jobs may call, to check URLs
	OnlyLocal     bool                            // answer only requests to localhost, an address or PublicHost
	PublicHost    string                          // host under which targets reach the API; may be empty
	Origin        domain.Origin                   // what requests tell of the deployment, to show them
	Transport     *scheduler.Transport            // sends test notices; nil: they fail
	Mailer        *delivery.Mailer                // to which addresses e-mail may go; nil: to none
	Ready         func(ctx context.Context) error // also needed to be ready; its error is shown
	Lacks         func() string                   // what this replica lacks to send requests; empty: nothing
	Pages         Pages                           // for people; nil: none

	timeout time.Duration // of a request; 0: requestTimeout
}

// Pages are the pages for people. They call the API as any client does.
type Pages interface {
	// Routes adds the pages to a router. api answers their calls.
	Routes(mux chi.Router, api http.Handler)
	// Home shows the first page.
	Home(w http.ResponseWriter, r *http.Request)
	// Refuse says that there is no page for a request.
	Refuse(w http.ResponseWriter, r *http.Request, why *problem.Problem)
}

// requestTimeout bounds what one request may wait for the database.
const requestTimeout = 30 * time.Second

type server struct {
	Config
	api     *api.API
	callers *auth.Callers
	freezes *freezeBook
	outlook *forecastBook
	unready atomic.Value // string: the last probe's reason; empty: ready
}

// The groups of operations, in the order of the documentation.
const (
	tagJobs        = "jobs"
	tagRuns        = "runs"
	tagCallbacks   = "callbacks"
	tagDeadLetters = "dead letters"
	tagOperations  = "operations"
	tagSchedules   = "schedules"
	tagEvents      = "events"
	tagTenants     = "tenants and keys"
	tagAudit       = "audit"
	tagSecrets     = "secrets"
	tagFleet       = "queues and replicas"
	tagOverview    = "overview"
)
